"""Laws of play: bad replies, limits, rewards, and players that deserve nothing."""

import itertools
import random
import string

import numpy as np
import pytest

from aes_hdc import envs
from aes_hdc.envs import actions
from aes_hdc.envs.base import MAX_BAD
from aes_hdc.envs.events import KINDS
from aes_hdc.episode import LABELS

FIXED = [
    "", " ", ";", ";;;", "<answer></answer>", "<answer>", "</answer>", "\x00", "\ud800",
    "<answer><answer></answer></answer>", "<answer>;</answer>", "x" * 5000, "\n" * 5000,
    "<answer>" * 600, "\\boxed{}", "final answer:", "<think>", "</think>", "{}", "()",
    "none", "null", "-1", "99999999999999999999", "1e9", "nan", "gehe nach rechts",
    "\u53f3\u3078\u79fb\u52d5", "\u0663", "move", "answer", "answer answer answer",
    "__import__('os')", "move move move move", "answer 99999999", "answer -1",
    "turn", "forward forward",
]  # fmt: skip


def junk(rng, vocabulary):
    """One hostile reply."""
    kind = rng.randrange(4)
    if kind == 0:
        return "".join(chr(rng.randrange(1, 0x2FFF)) for _ in range(rng.randrange(60)))
    if kind == 1:
        return "".join(rng.choices(string.printable, k=rng.randrange(80)))
    if kind == 2:
        return " ".join(rng.choices(vocabulary, k=rng.randrange(1, 9)))
    return "<answer>" + ";".join(rng.choices(vocabulary, k=4)) + "</answer>"


def test_no_reply_breaks_an_environment(env_id):
    env = envs.make(env_id)
    rng = random.Random(0)
    for level in (0, len(env.spec.levels) - 1):
        start = env.reset(1, level)
        before = env.dump(start)
        line = actions.grammar_text(env.grammar(start))
        vocabulary = [*line.replace("|", " ").split(), "0", "7", "x", "<answer>"]
        replies = FIXED + [junk(rng, vocabulary) for _ in range(250 - len(FIXED))]
        for reply in replies:
            state = env.clone(start)
            step = env.step(state, reply)
            assert step.label in LABELS
            if step.valid:
                continue
            assert env.dump(state) == before
            assert (step.reward, step.success, state.turn) == (0.0, False, 1)
            assert len(step.feedback) <= 400
            assert step.feedback.isascii()
            assert step.feedback.endswith(line)
            assert step.events[-1].kind == "rejected"


def test_three_bad_replies_end_the_episode(env, start):
    start.budget = 9
    if env.spec.turns == "S":
        step = env.step(start, "zzz")
        assert (step.done, step.label) == (True, "turn_limit")
        return
    for count in range(1, MAX_BAD + 1):
        step = env.step(start, "zzz")
        assert step.done == (count == MAX_BAD)
    assert step.label == "invalid_limit"
    assert step.truncated


def test_a_finished_episode_cannot_be_stepped(env, start):
    while not start.over:
        env.step(start, env.oracle_reply(start))
    with pytest.raises(ValueError, match="over"):
        env.step(start, "zzz")


def test_turn_limit_is_the_budget(env, start):
    if env.spec.turns == "S":
        assert start.budget == 1
        return
    start.budget = 2
    assert not env.step(start, "zzz").done
    step = env.step(start, "zzz")
    assert (step.truncated, step.label) == (True, "turn_limit")


def test_every_verb_parses_from_its_own_example(env, level, start):
    rng = np.random.default_rng(level)
    grammar = env.grammar(start)
    for verb in grammar:
        action = actions.sample({verb: grammar[verb]}, rng)
        assert actions.parse(actions.to_text(action), grammar) == action


def test_illegal_actions_change_nothing_and_legal_ones_something(env, level, starts):
    rng = np.random.default_rng(level)
    for state in starts:
        for _ in range(6):
            trial = env.clone(state)
            before = env.dump(trial)
            action = actions.sample(env.grammar(state), rng)
            step = env.step(trial, actions.to_text(action))
            waited = any(e.kind in ("waited", "repeated") for e in step.events)
            changed = env.dump(trial) != before
            assert not changed if not step.valid else changed or step.done or waited


def test_rewards_are_paid_once_at_success(env, level, starts):
    rng = np.random.default_rng(level)
    for state in starts:
        paid = []
        while not state.over:
            step = env.step(state, env.random_reply(state, rng))
            paid.append(step.reward)
            assert {e.kind for e in step.events} <= set(KINDS)
            assert all(type(e.amount) is int for e in step.events)
            assert all(e.subject.isascii() for e in step.events)
        assert all(x == 0 for x in paid[:-1])
        assert paid[-1] == float(step.success) == float(step.label == "success")


def success(env, level, reply, seeds=range(60)):
    """Share of episodes that a player without a clue solves."""
    won = 0
    for seed in seeds:
        state = env.reset(seed, level)
        while not state.over:
            step = env.step(state, reply(state))
        won += step.success
    return won / len(seeds)


def test_random_play_is_weak(env):
    rng = np.random.default_rng(0)
    easy, *_, hard = (
        success(env, level, lambda state: env.random_reply(state, rng))
        for level in (0, len(env.spec.levels) - 1)
    )
    assert 0.02 <= easy <= 0.45
    assert hard <= 0.2
    assert hard <= easy


def test_constant_and_first_option_players_are_weak(env):
    """The first legal action, the last, and one fixed answer for all instances."""

    def pick(state, rank):
        legal = [a for a in actions.every(env.grammar(state)) if env.is_legal(state, a)]
        return actions.to_text(legal[rank])

    def small(level):
        grammar = env.grammar(env.reset(0, level))
        return len([*itertools.islice(actions.every(grammar), 500)]) < 500

    for level in range(3):
        if small(level):
            seeds = range(40)
            for rank in (0, -1):
                share = success(env, level, lambda state, r=rank: pick(state, r), seeds)
                assert share <= 0.4
    start = env.reset(0, 0)
    fixed = env.oracle_reply(start)
    assert success(env, 0, lambda state: fixed, range(1, 61)) <= 0.5


def test_a_repeated_action_never_profits(env, level, starts):
    for state in starts:
        reply = env.oracle_reply(state)
        total = 0.0
        while not state.over:
            total += env.step(state, reply).reward
        assert total <= 1
