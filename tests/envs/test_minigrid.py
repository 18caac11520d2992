"""The environment laws, as far as they hold for others' environments, on MiniGrid."""

import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

from aes_hdc import envs
from aes_hdc.envs import actions, foreign
from aes_hdc.envs.base import hash_split
from aes_hdc.envs.state import fingerprint
from aes_hdc.envs.vector import Vec
from aes_hdc.episode import LABELS, SPLITS, Harness, Task
from aes_hdc.errors import UserError

IDS = [spec.id for spec in envs.load_suite("minigrid")]
CASES = [(i, k) for i in IDS for k in range(len(envs.make(i).spec.levels))]
SEEDS = (0, 1, SPLITS["validation"].start, SPLITS["test"].start)
every_ladder = pytest.mark.parametrize("ladder", IDS)
every_level = pytest.mark.parametrize(("ladder", "rung"), CASES)


def frame_px(env, rung):
    return env.spec.levels[rung].min_px


def test_there_are_ten_ladders_or_more_and_none_is_in_the_default_registry():
    assert len(IDS) >= 10
    assert not {spec.id for spec in envs.all_specs()} & set(IDS)
    assert all(len(envs.make(i).spec.levels) >= 3 for i in IDS)


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    foreign.load.cache_clear()
    monkeypatch.setattr(foreign.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'pip install "aes_hdc\[minigrid\]"'):
        envs.make("minigrid_empty")
    foreign.load.cache_clear()


def test_unknown_names_list_their_siblings():
    with pytest.raises(ValueError, match="minigrid_empty"):
        envs.make("minigrid_pong")
    with pytest.raises(ValueError, match="minigrid"):
        envs.load_suite("atari")


def test_importing_ours_imports_no_foreign_package():
    code = (
        "import sys; from aes_hdc import envs; envs.all_specs();"
        "print([m for m in ('gymnasium', 'minigrid', 'pygame') if m in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"


@every_level
def test_the_stronger_policy_wins_in_time_and_every_state_is_sound(ladder, rung):
    env = envs.make(ladder)
    won = 0
    for seed in SEEDS[1:3]:
        state = env.reset(seed, rung)
        assert 0 < state.budget < 99
        step = None
        while not state.over:
            reply = env.oracle_reply(state)
            step = env.step(state, reply)
            assert step.valid, (seed, reply, step.feedback, state.scene)
        won += step.success
        assert step.reward == float(step.success)
    if env.ladder.solve is not None:
        assert won == 2


@every_level
def test_equal_seeds_are_equal_instances_of_their_split(ladder, rung):
    one, two = envs.make(ladder), envs.make(ladder)
    np.random.seed(7)  # noqa: NPY002 global state must not matter
    for seed, split in zip(SEEDS[1:], ("train", "validation", "test"), strict=True):
        state = one.reset(seed, rung)
        assert hash_split(fingerprint(state, one.goal(state))) == split
    twin = two.reset(SEEDS[-1], rung)
    assert pickle.dumps(state) == pickle.dumps(twin)
    px = frame_px(one, rung)
    assert (one.render(state, px) == two.render(twin, px)).all()


@every_level
def test_frames_are_legible_and_follow_the_scene(ladder, rung):
    env, rng = envs.make(ladder), np.random.default_rng(rung)
    px = frame_px(env, rung)
    state = env.reset(0, rung)
    seen = {}
    for _ in range(3):
        out = np.full((px, px, 3), 77, np.uint8)
        env.draw(state, out)
        assert out.std() > 5
        assert (out == env.render(state, px)).all()
        assert seen.setdefault(state.scene, out.tobytes()) == out.tobytes()
        if state.over:
            break
        env.step(state, env.random_reply(state, rng))
    assert len(set(seen.values())) == len(seen)
    assert env.render(state, 256).shape == (256, 256, 3)


@every_ladder
def test_states_survive_copies_and_pickles(ladder):
    env, rng = envs.make(ladder), np.random.default_rng(3)
    state = env.reset(0, 1)
    env.step(state, env.random_reply(state, rng))
    if state.over:
        return
    scene = state.scene
    twins = env.clone(state), pickle.loads(pickle.dumps(state))
    reply = env.random_reply(state, rng)
    step = env.step(state, reply)
    for twin in twins:
        assert twin.scene == scene
        other = env.step(twin, reply)
        assert (other.label, other.events, twin.scene) == (
            step.label,
            step.events,
            state.scene,
        )


@every_ladder
def test_bad_replies_change_nothing_and_end_the_episode(ladder):
    env = envs.make(ladder)
    start = env.reset(1, 0)
    line = actions.grammar_text(env.grammar(start))
    junk = ["", "\x00", "forward 99", "forward x", "<answer>", "turn", "x" * 5000]
    junk += ["left", "turn left 2"]
    for reply in [*junk, "__import__('os')", "minigrid:Env-v0", "forward -1"]:
        state = env.clone(start)
        step = env.step(state, reply)
        assert step.label in LABELS
        assert not step.valid
        assert (step.reward, state.scene) == (0.0, start.scene)
        assert step.feedback.endswith(line)
    for count in range(3):
        assert env.step(start, "zzz").done == (count == 2)


@every_ladder
def test_texts_are_short_plain_and_complete(ladder):
    env = envs.make(ladder)
    task = Task(ladder, 1, 0, Harness.ALL)
    state = env.reset(1, 0)
    text = env.prompt(state, task, first=True, feedback="")
    assert text.isascii()
    assert text == text.lower()
    assert not {"reward", "seed", "oracle", "level"} & set(text.split())
    assert len(env.rules(state).split()) <= 35
    assert len(env.dump(state).split()) <= 55
    for verb, args in env.grammar(state).items():
        example = actions.sample({verb: args}, np.random.default_rng(0))
        assert actions.parse(actions.to_text(example), {verb: args}) == example
    with pytest.raises(ValueError, match="foreign"):
        env.load(env.dump(state))


@pytest.mark.parametrize("kind", ["lava_crossing", "empty", "lava_gap"])
def test_a_walk_reads_like_our_own_crossing(kind):
    env, ours = envs.make(f"minigrid_{kind}"), envs.make("lava_crossing")
    texts = []
    for one in (env, ours):
        state = one.reset(1, 0)
        task = Task(one.spec.id, 1, 0, Harness.parse("observation+state"))
        texts.append(one.prompt(state, task, first=True))
    # Only what stands where differs, and all of its words are known from ours.
    places = {"floor", "lava", "goal", "edge", "up", "right", "down", "left"}
    forms = [re.sub(rf"\d+|\b({'|'.join(places)})\b", "_", text) for text in texts]
    assert forms[0] == forms[1]


@every_ladder
def test_hints_leave_two_legal_actions(ladder):
    env = envs.make(ladder)
    state = env.reset(1, 0)
    hints = set()
    while env.ladder.solve is not None and not state.over:
        plan = env.solve(state)
        cue = env.cue(state, plan)
        assert len(set(cue.options)) == 2
        assert plan[0] in cue.options
        assert all(env.is_legal(state, action) for action in cue.options)
        hints.add(env.hint(state))
        env.step(state, env.oracle_reply(state))
    assert all(re.fullmatch("use (turn|forward)|not .+", hint) for hint in hints)


@every_ladder
def test_ladders_grow(ladder):
    env = envs.make(ladder)
    # Wandering starts are slow to draw, and their rooms all have one size.
    seeds = range(3 if env.ladder.rungs[0].wander else 8)
    sizes = [
        np.mean([env.size(env.reset(seed, rung)) for seed in seeds])
        for rung in range(len(env.spec.levels))
    ]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == len(sizes)


def test_what_is_held_is_drawn_and_what_happens_is_told():
    env = envs.make("minigrid_door_key")
    state = env.reset(0, 0)
    kinds = []
    while not state.over:
        before = env.render(state, 96)
        step = env.step(state, env.oracle_reply(state))
        kinds += [event.kind for event in step.events]
        assert (env.render(state, 96) != before).any()
    assert {"turned", "moved", "picked", "toggled", "arrived"} <= set(kinds)


def test_the_whole_plan_in_one_reply():
    env = envs.make("minigrid_door_key")
    state = env.reset(0, 0, turns="one")
    assert env.step(state, env.oracle_reply(state)).success
    with pytest.raises(ValueError, match="by chance"):
        envs.make("minigrid_dynamic_obstacles").reset(0, 0, turns="one")


def test_the_vector_runner_plays_them():
    vec = Vec(96)
    task = Task("minigrid_lava_gap", 4, 0, Harness.ALL)
    first = vec.reset("a", task)
    vec.copy("a", "b")
    reply = vec.env("a").oracle_reply(vec.state("a"))
    one, two = vec.step("a", reply), vec.step("b", reply)
    assert first.frame.shape == (96, 96, 3)
    assert one[1] == two[1]
    assert (one[0] is None) == (two[0] is None)
