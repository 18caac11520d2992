"""Both adapters: a toy Gymnasium environment as ours, and ours as Gymnasium's."""

import copy
import pickle
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from aes_hdc import envs
from aes_hdc.envs import actions
from aes_hdc.envs.adapters import gym_env
from aes_hdc.envs.adapters.foreign import TRIALS, adapt, fit
from aes_hdc.envs.adapters.gym_env import GymEnv
from aes_hdc.envs.adapters.ladder import Ladder, Rung, make

GYM_ID = "AesHdcToyWalk-v0"


class ToyWalk(gymnasium.Env):
    """A walk on a line of cells; the last one wins, the first one loses."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, cells=9, max_steps=100, breaks=False, render_mode=None):
        self.observation_space = gymnasium.spaces.Discrete(cells)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.cells, self.max_steps, self.breaks = cells, max_steps, breaks
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.count = int(self.np_random.integers(1, self.cells - 1)), 0
        return self.at, {}

    def step(self, action):
        if self.breaks:
            raise OSError("no more cells")
        self.count += 1
        self.at += (-1, 1, 0)[action]
        done = self.at in (0, self.cells - 1)
        won = self.at == self.cells - 1
        return self.at, float(won), done, self.count >= self.max_steps, {}

    def render(self):
        frame = np.zeros((10, 10 * self.cells, 3), np.uint8)
        frame[:, 10 * self.at : 10 * self.at + 10] = 255
        return frame


gymnasium.register(GYM_ID, entry_point=ToyWalk)


def toy(solve=None, **options):
    """The class of a toy ladder with one rung."""
    rung = {"budget": 12, "small": True, **options}
    return adapt(
        Ladder(
            id="toy_walk",
            family="toy",
            rungs=(Rung(GYM_ID, rung.pop("kwargs", {}), **rung),),
            verbs={"back": 0, "ahead": 1, "wait": 2},
            scene=lambda env: f"cell {env.unwrapped.at}",
            goal=lambda env: "go ahead",
            rules="the last cell wins",
            size=lambda env: env.unwrapped.cells,
            abilities=("path_integration", "closed_loop_control"),
            solve=solve,
            repeats=lambda env: {"ahead": 3},
        )
    )


def ahead(env):
    """The plan of the toy."""
    return [("ahead", 1)] * (env.unwrapped.cells - 1 - env.unwrapped.at)


@pytest.fixture(params=[True, False], ids=["deepcopy", "replay"])
def walk(request):
    return toy(solve=ahead, copies=request.param)()


def test_a_plan_wins_within_the_budget(walk):
    state = walk.reset(3, 0)
    while not state.over:
        step = walk.step(state, walk.oracle_reply(state))
    assert (step.label, step.reward) == ("success", 1.0)


def test_the_first_cell_is_a_loss(walk):
    state = walk.reset(3, 0)
    state.budget = 99
    while not state.over:
        step = walk.step(state, "back")
    assert (step.label, step.reward, step.terminated) == ("wrong", 0.0, True)


def test_a_repeat_plays_several_steps_and_ends_with_the_episode(walk):
    states = [walk.reset(seed, 0) for seed in range(40)]
    far = next(s for s in states if s.scene in ("cell 1", "cell 2", "cell 4"))
    cell = int(far.scene.split()[1])
    assert walk.step(far, "ahead 3").action == "ahead 3"
    assert far.scene == f"cell {cell + 3}"
    while not far.over:  # The last repeat has fewer cells left than three.
        step = walk.step(far, "ahead 3")
    assert step.success


def test_what_changes_nothing_is_illegal(walk):
    state = walk.reset(3, 0)
    scene = state.scene
    step = walk.step(state, "wait")
    assert not step.valid
    assert state.scene == scene
    assert step.feedback.startswith("illegal: wait changes nothing here")


def test_verbs_of_two_words_are_one_verb_with_a_choice():
    verbs = {"step back": 0, "step ahead": 1, "wait": 2}
    ladder = replace(toy().ladder, verbs=verbs, repeats=lambda env: {"step": 2})
    env = adapt(ladder)()
    state = next(s for s in map(env.reset, range(40), [0] * 40) if s.scene == "cell 4")
    line = "step back|ahead [1-2] or wait"
    assert actions.grammar_text(env.grammar(state)) == line
    assert env.step(state, "step back 2").action == "step back 2"
    assert env.step(state, "step ahead").action == "step ahead 1"
    assert state.scene == "cell 3"
    assert env.step(state, "step").feedback.startswith("missing arg")


def test_verbs_are_one_word_or_two_and_none_is_both():
    for verbs in ({"": 0}, {"a b c": 0}, {"turn": 0, "turn left": 1}):
        with pytest.raises(ValueError, match="use one word, or two"):
            replace(toy().ladder, verbs=verbs)


def test_hints_name_the_verb_or_rule_an_action_out():
    ladder = toy(solve=ahead).ladder
    state = adapt(ladder)().reset(3, 0)
    assert adapt(ladder)().hint(state) == "use ahead"  # Once or twice or thrice.
    once = replace(ladder, repeats=lambda env: {}, solve=lambda env: [("ahead",)])
    assert adapt(once)().hint(state) == ""  # Only `back` is legal besides it.
    twins = replace(once, verbs={**once.verbs, "retreat": 0})
    assert adapt(twins)().hint(state) == "not retreat"


def test_copies_and_pickles_are_independent(walk):
    state = walk.reset(3, 0)
    scene = state.scene
    twins = walk.clone(state), copy.deepcopy(state), pickle.loads(pickle.dumps(state))
    walk.step(state, "ahead")
    for twin in twins:
        assert walk.dump(twin) == scene
        walk.step(twin, "ahead")
        assert walk.dump(twin) == state.scene
        assert (walk.render(twin, 96) == walk.render(state, 96)).all()


def test_its_own_limit_is_a_turn_limit():
    env = toy(kwargs={"cells": 9, "max_steps": 2})()
    state = next(s for s in map(env.reset, range(40), [0] * 40) if s.scene == "cell 4")
    assert not env.step(state, "ahead").done
    step = env.step(state, "back")
    assert (step.label, step.truncated, step.terminated) == ("turn_limit", True, False)


def test_without_a_solver_the_best_of_eight_random_episodes_is_played():
    env = toy()()
    wins = {"random": 0, "stronger": 0}
    for seed in range(30):
        start = env.reset(seed, 0)
        state = env.clone(start)
        while not state.over:
            step = env.step(state, env.oracle_reply(state))
        wins["stronger"] += step.success
        state, rng = env.clone(start), np.random.default_rng(seed)
        while not state.over:
            step = env.step(state, env.random_reply(state, rng))
        wins["random"] += step.success
    assert TRIALS == 8
    # A random walk wins about half of the time, the best of eight nearly always.
    assert wins["stronger"] > 25 > wins["random"]


def test_an_error_names_the_environment_the_seed_and_the_action():
    env = toy(kwargs={"breaks": True})()
    state = env.reset(3, 0)
    with pytest.raises(RuntimeError, match=rf"{GYM_ID} seed \d+: action 1 after \[\]"):
        env.step(state, "ahead")


def test_ids_come_from_the_registry_only():
    for gym_id in ("os:Env-v0", "aes_hdc.envs:Toy-v0", "../Toy-v0", "NoSuch-v0"):
        with pytest.raises(ValueError, match="is not registered"):
            make(Rung(gym_id))


def test_only_discrete_actions_are_taken():
    with pytest.raises(ValueError, match="not Discrete"):
        make(Rung("Pendulum-v1"))


@pytest.mark.parametrize("shape", [(3, 7), (96, 96), (40, 17), (210, 160), (1, 500)])
def test_fitted_frames_keep_their_colours_and_are_centred(shape):
    frame = np.full((*shape, 3), 200, np.uint8)
    out = fit(frame, 96)
    assert out.shape == (96, 96, 3)
    assert set(np.unique(out)) <= {0, 200}
    assert (out == fit(frame, 96)).all()
    rows, columns = np.nonzero(out[..., 0])
    for used in (rows, columns):
        assert abs((95 - used.max()) - used.min()) <= 1


@pytest.mark.parametrize(
    "frame",
    [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((4, 4, 4), "u1")],
)
def test_other_frames_are_refused(frame):
    with pytest.raises(ValueError, match="is not"):
        fit(frame, 96)


# Only environments of many turns: the checker takes a random text for its one step,
# which rightly ends an episode of one turn and then counts as an error.
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
@pytest.mark.parametrize("name", ["frozen_lake", "lights_out"])
def test_ours_pass_the_checker_of_gymnasium(name):
    version = envs.make(name).spec.version
    env = gymnasium.make(f"aes_hdc/{name}-v{version}", render_mode="rgb_array")
    check_env(env.unwrapped)


def test_every_environment_is_registered_and_registering_again_is_harmless():
    gym_env.register()
    for spec in envs.all_specs():
        assert f"aes_hdc/{spec.id}-v{spec.version}" in gymnasium.registry


def test_an_episode_of_ours_under_gymnasium():
    env = GymEnv("frozen_lake", level=1, frame_px=128, split="test")
    seen, info = env.reset(seed=5)
    assert info == {}
    assert seen["image"].shape == (128, 128, 3)
    assert seen["text"].startswith("goal: ")
    seen, reward, terminated, truncated, info = env.step("jump")
    assert (reward, terminated, truncated, info["valid"]) == (0.0, False, False, False)
    assert seen["text"].startswith(info["feedback"])
    assert seen in env.observation_space
    assert (env.reset(seed=5)[0]["image"] == env.reset(seed=5)[0]["image"]).all()
    assert (env.reset(seed=5)[0]["image"] != env.reset()[0]["image"]).any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"split": "dev"}, "train"),
        ({"level": 99}, "0 to"),
        ({"frame_px": 100}, "multiple of 32"),
        ({"render_mode": "human"}, "rgb_array"),
        ({"harness": "glasses"}, "glasses"),
    ],
)
def test_bad_arguments_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        GymEnv("frozen_lake", **options)
