"""Laws of the texts: each flag adds its section, and nothing gives the answer away."""

import itertools
import re

import numpy as np
import pytest

from aes_hdc import envs
from aes_hdc.envs import actions, harness
from aes_hdc.episode import Harness, Task

ALL = [Harness(bits) for bits in range(16)]
CAPS = {"goal": 30, "rules": 35, "caption": 25, "dump": 35, "hint": 10, "feedback": 8}
LEAKS = ("reward", "oracle", "seed", "level", "budget", "optimal", "harness")


def words(text):
    """Splits off words and punctuation marks."""
    return re.findall(r"\w+|[^\w\s]", text)


def messages(env, state, level, *, first=True, turns="many"):
    """The message under every harness."""
    feedback = "" if first else "ok"
    task = {h: Task(env.spec.id, 0, level, h, True, turns) for h in ALL}
    return {h: env.prompt(state, task[h], first=first, feedback=feedback) for h in ALL}


def test_each_flag_adds_exactly_its_section(env, level, start):
    for first in (True, False):
        text = messages(env, start, level, first=first)
        bare = set(text[Harness.NONE].splitlines())
        sections = {
            flag: [x for x in text[flag].splitlines() if x not in bare]
            for flag in Harness.ladder_order()
        }
        assert all(sections[f] for f in sections if first or f != Harness.RULES)
        for combined in ALL:
            want = list(text[Harness.NONE].splitlines())
            for flag in Harness.ladder_order():
                if flag in combined:
                    want += sections[flag]
            assert sorted(text[combined].splitlines()) == sorted(want)
        if not first:
            assert not sections[Harness.RULES]


def test_texts_are_plain_and_leak_nothing(env, level, starts):
    for state in starts:
        text = messages(env, state, level)[Harness.ALL]
        assert text.isascii()
        assert text == text.lower()
        assert not [word for word in LEAKS if word in words(text)]
        assert len(words(text)) <= 1500


def test_help_does_not_hold_the_next_action(env, starts):
    for state in starts:
        action = actions.to_text(env.solve(state)[0])
        for text in (env.rules(state), env.caption(state), env.hint(state)):
            assert not re.search(rf"\b{re.escape(action)}\b", text)


def test_hint_leaves_two_legal_actions(env, starts):
    hints = []
    for state in starts:
        plan = env.solve(state)
        cue = env.cue(state, plan)
        if cue.text:
            assert plan[0] in cue.options
            assert len(set(cue.options)) >= 2
            assert all(env.is_legal(state, action) for action in cue.options)
            assert all(
                actions.parse(actions.to_text(x), env.grammar(state)) == x
                for x in cue.options
            )
        hints.append(env.hint(state))
    assert any(hints), "no instance of the level has a hint"


def test_easy_levels_are_terse(env, level):
    if level > 1:
        return
    for seed in range(16):
        state = env.reset(seed, level)
        lengths = {
            "goal": len(words(f"{env.goal(state)} {harness.call(env, state)}")),
            "rules": len(words(env.rules(state))),
            "caption": len(words(env.caption(state))),
            "dump": len(words(env.dump(state))),
            "hint": len(words(env.hint(state))),
        }
        rng = np.random.default_rng(seed)
        step = env.step(state, env.random_reply(state, rng))
        lengths["feedback"] = 0 if step.done else len(words(step.feedback))
        over = {k: n for k, n in lengths.items() if n > CAPS[k]}
        assert not over, (over, env.dump(state), env.caption(state), env.hint(state))


def test_without_help_only_the_goal_line_tells_instances_apart(env, starts):
    shown = {harness.call(env, state) for state in starts}
    assert len(shown) == 1
    assert all("\n" not in env.goal(state) for state in starts)


def test_wrong_answers_are_not_corrected(env, level):
    rng = np.random.default_rng(level)
    for seed in range(8):
        state = env.reset(seed, level, turns="many")
        right = [str(x) for x in env.solve(state)[0][1:]]
        step = env.step(state, env.random_reply(state, rng))
        if env.spec.turns == "S" and not step.success:
            assert not set(right) & set(words(step.feedback))


@pytest.mark.parametrize("turns", ["one", "many"])
def test_prompts_exist_in_both_forms(env_id, turns):
    env = envs.make(env_id)
    if turns == "one" and not env.spec.has_plan:
        return
    state = env.reset(0, 0, turns=turns)
    for reply_format, first in itertools.product(harness.REPLY_FORMATS, (True, False)):
        task = Task(env_id, 0, 0, Harness.ALL, True, turns)
        text = env.prompt(state, task, first=first, reply_format=reply_format)
        line = harness.REPLY_FORMATS[reply_format]
        assert (bool(line) and line in text) == (first and bool(line))


def test_no_word_of_the_help_always_is_the_answer(env, level):
    """A fixed place in a text that holds the answer in every instance gives it away."""
    if env.spec.turns != "S":
        return
    states = [env.reset(seed, level) for seed in range(16)]
    right = [str(env.solve(state)[0][1]) for state in states]
    assert len(set(right)) > 1
    for method in (env.caption, env.rules, env.hint, env.dump):
        texts = [words(method(state)) for state in states]
        shortest = min(map(len, texts))
        for place in range(-shortest, shortest):
            assert [text[place] for text in texts] != right, (method, place)
