import pytest

from aes_hdc import envs
from aes_hdc.envs import base
from aes_hdc.envs.base import Cue, Level, register


@pytest.fixture
def lake():
    """Ice with the gift two cells right of the agent and a hole below it.

    The board: agent, ice, gift / hole, ice, ice / ice, ice, ice.
    """
    return "row 1 ice ice gift\nrow 2 hole ice ice\nrow 3 ice ice ice\nagent 1 1"


@pytest.fixture
def make(lake):
    def build(**kwargs):
        env = envs.make("frozen_lake", **kwargs)
        return env, env.load(lake)

    return build


def kinds(step):
    return [event.kind for event in step.events]


def test_make_lists_siblings_of_an_unknown_id():
    with pytest.raises(ValueError, match=r"there are .*frozen_lake"):
        envs.make("frozen_pond")


def test_budget_is_half_as_much_again_and_three(make):
    _, state = make()
    assert state.budget == 5  # One move: ceil(1.5 * 1) + 3.


def test_a_chain_stops_where_an_action_is_rejected(make):
    env, state = make(max_actions=3)
    step = env.step(state, "move right; move up; move right")
    assert (step.valid, step.action, state.turn, state.bad) == (
        True,
        "move right 1",
        1,
        0,
    )
    assert step.feedback.startswith("1 of 3 done. illegal: the edge")
    assert kinds(step)[-1] == "rejected"


def test_a_chain_stops_at_the_end_of_the_episode(make):
    env, state = make(max_actions=3)
    step = env.step(state, "move right 2; move down")
    assert (step.success, step.action) == (True, "move right 2")


def test_a_chain_is_cut_at_max_actions(make):
    env, state = make()
    step = env.step(state, "move right; move right")
    assert (step.done, state.turn, step.feedback) == (False, 1, "1 of 2 done. ok")


def test_recovery_is_an_event(make):
    env, state = make()
    assert kinds(env.step(state, "fly")) == ["rejected"]
    assert "recovered" in kinds(env.step(state, "move right"))
    assert "recovered" not in kinds(env.step(state, "move down"))


def test_falling_in_is_wrong_and_final(make):
    env, state = make()
    step = env.step(state, "move down")
    assert (step.label, step.terminated, step.reward) == ("wrong", True, 0.0)
    assert kinds(step) == ["moved", "fell_in"]


@pytest.mark.parametrize(
    ("reply", "label", "valid"),
    [
        ("move right 2", "success", True),
        ("move right; move right", "success", True),
        ("move down", "wrong", True),
        ("move right", "wrong", True),  # A plan that stops short.
        ("move right; fly", "wrong", True),
        ("fly", "turn_limit", False),
        ("move right; move left; " * 2 + "move right 2", "success", True),
        ("move right; move left; " * 3 + "move right 2", "wrong", True),  # Over budget.
    ],
)
def test_a_plan_is_judged_by_playing_it(make, reply, label, valid):
    env, state = make()
    state.one = True
    step = env.step(state, reply)
    assert (step.label, step.valid, step.done) == (label, valid, True)
    assert state.over


def test_a_hint_that_gives_the_action_away_is_refused(make, monkeypatch):
    env, state = make()
    two = (("move", "right", 2), ("move", "right", 1))
    for cue in (Cue("right", two[:1]), Cue("try move right 2", two)):
        monkeypatch.setattr(env, "cue", lambda state, plan, cue=cue: cue)
        with pytest.raises(ValueError, match="leaves one action"):
            env.hint(state)


def test_splits_are_a_function_of_the_seed_and_of_the_hash():
    assert base.split_of(2**31 - 1) == "train"
    assert base.split_of(2**31) == "validation"
    assert base.split_of(2**32) == "test"
    with pytest.raises(ValueError, match="seed"):
        base.split_of(2**31 + 2**20)
    shares = [base.hash_split(bytes([first])) for first in range(256)]
    assert [shares.count(s) for s in ("train", "validation", "test")] == [128, 64, 64]


def test_an_id_is_registered_once_and_reasons_are_given():
    with pytest.raises(ValueError, match="twice"):
        register("frozen_lake", family="nav", turns="M", levels=(1,), abilities=())(
            type("Other", (base.VisualEnv,), {})
        )
    with pytest.raises(ValueError, match="no_plan_reason"):
        register(
            "x", family="nav", turns="M", levels=(1,), abilities=(), has_plan=False
        )


@pytest.mark.parametrize(
    ("name", "family", "split"),
    [
        ("pancake_flip", "sort", "ood"),
        ("map_coloring", "graph", "ood"),
        ("odd_one_out", "count", "ood"),
        ("count_objects", "count", "pool"),
    ],
)
def test_held_out_environments_follow_a_rule(name, family, split):
    spec = envs.base.Spec(name, family, "M", (Level(1),), ())
    assert spec.split == split
