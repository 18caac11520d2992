import dataclasses
import json

import numpy as np
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aes_hdc.curriculum import baselines
from aes_hdc.curriculum.hdc import Curriculum, harness_distribution, window
from aes_hdc.curriculum.settings import ARMS, Settings
from aes_hdc.errors import UserError

# (h, s, successes) of groups of two -> move, and (r, l, u) after it.
TRACE = [
    ((0, 0, 1), None, (0, 0, 0)),
    ((0, 0, 1), "scale", (0, 0, 1)),
    ((0, 0, 2), None, (0, 0, 1)),
    ((0, 1, 2), None, (0, 0, 1)),
    ((0, 1, 1), "harness", (1, 0, 0)),
    ((0, 0, 2), None, (1, 0, 0)),
    ((1, 0, 0), None, (1, 0, 0)),
    ((1, 0, 1), None, (1, 0, 0)),
    ((1, 0, 2), "scale", (1, 0, 1)),
    ((1, 1, 2), None, (1, 0, 1)),
    ((1, 1, 1), "finished", (1, 0, 1)),
    ((1, 1, 2), None, (1, 0, 1)),
]


def small_settings(**overrides):
    values = {
        "num_harness_levels": 2,
        "scale_groups": 2,
        "harness_groups": 2,
        "scale_threshold": 0.5,
        "harness_threshold": 0.75,
        "patience": 0,
    }
    return Settings(**(values | overrides))


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (0, (1.0,)),
        (1, (0.4, 0.6)),
        (2, (0.151016, 0.248984, 0.6)),
        (3, (0.074529, 0.122878, 0.202592, 0.6)),
        (4, (0.040615, 0.066962, 0.110402, 0.182022, 0.6)),
    ],
)
def test_harness_distribution_has_the_worked_values(level, expected):
    got = harness_distribution(level, alpha=0.5, p_cur=0.6)
    np.testing.assert_allclose(got, expected, atol=5e-7)  # printed to six decimals


def test_harness_distribution_at_its_limits():
    flat = harness_distribution(3, alpha=0.0, p_cur=0.6)
    np.testing.assert_allclose(flat, (0.4 / 3, 0.4 / 3, 0.4 / 3, 0.6), rtol=1e-15)
    assert harness_distribution(3, alpha=0.5, p_cur=1.0).tolist() == [0, 0, 0, 1]
    steep = harness_distribution(4, alpha=1e6, p_cur=0.6)  # exp underflows
    np.testing.assert_allclose(steep, (0, 0, 0, 0.4, 0.6), rtol=1e-15)


def test_window_has_the_worked_values():
    got = [window(high, 2) for high in range(6)]
    assert got == [(0, 0), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5)]


@pytest.mark.parametrize(("target", "width"), [(0, 1), (5, 1), (6, 2), (9, 2)])
def test_default_window_widens_with_the_ladder(target, width):
    assert Settings().width(target) == width


def test_controller_follows_the_worked_trace():
    curriculum = Curriculum({"maze": 1}, small_settings())
    for step, ((harness_level, scale_level, successes), move, state) in enumerate(
        TRACE
    ):
        curriculum.record("maze", harness_level, scale_level, successes, 2)
        decisions = curriculum.end_update(step)
        assert [d.move for d in decisions] == ([] if move is None else [move])
        frontier = curriculum.frontier("maze")
        assert (frontier.harness_level, *curriculum.scale_window("maze")) == state
        for decision in decisions:
            after = (decision.harness_level, decision.low, decision.high)
            assert (decision.step, after) == (step, state)


def test_decision_carries_the_success_it_was_taken_on():
    curriculum = Curriculum({"maze": 1}, small_settings())
    curriculum.record("maze", 0, 0, 1, 2)
    curriculum.record("maze", 0, 0, 2, 2)
    (decision,) = curriculum.end_update(7)
    expected = {"step": 7, "env_id": "maze", "move": "scale", "success": 0.75}
    expected |= {"groups": 2, "harness_level": 0, "low": 0, "high": 1}
    assert decision.to_json() == expected


def test_threshold_is_compared_exactly():
    # 0.6 as a binary float lies below six tenths summed in floats in some orders.
    settings = small_settings(scale_threshold=0.6, scale_groups=3)
    curriculum = Curriculum({"maze": 1}, settings)
    for successes in (1, 3, 5):  # (.2 + .6 + 1) / 3
        curriculum.record("maze", 0, 0, successes, 5)
    assert [d.move for d in curriculum.end_update(0)] == ["scale"]


def test_groups_without_a_counting_episode_are_absent():
    curriculum = Curriculum({"maze": 1}, small_settings())
    for _ in range(2):
        curriculum.record("maze", 0, 0, 0, 0)
    curriculum.record("maze", 0, 0, 2, 2)
    assert curriculum.end_update(0) == []
    curriculum.record("maze", 0, 0, 1, 1)  # a group thinned by crashes is one group
    assert [d.move for d in curriculum.end_update(1)] == ["scale"]


def test_one_update_moves_an_environment_once():
    curriculum = Curriculum({"b": 3, "a": 3}, small_settings(scale_groups=1))
    for env_id in ("b", "a"):
        for scale_level in range(4):
            curriculum.record(env_id, 0, scale_level, 2, 2)
    decisions = curriculum.end_update(0)
    assert [(d.env_id, d.high) for d in decisions] == [("a", 1), ("b", 1)]
    assert curriculum.end_update(1) == []  # evidence was emptied by the move


def test_lack_of_moves_is_reported_once():
    curriculum = Curriculum({"maze": 1}, small_settings(patience=3))
    reports = []
    for step in range(20):
        curriculum.record("maze", 0, 0, 0, 2)
        reports += curriculum.end_update(step)
    assert [(d.step, d.move, d.success) for d in reports] == [(5, "stalled", 0.0)]
    for step in (20, 21):
        curriculum.record("maze", 0, 0, 2, 2)
        reports += curriculum.end_update(step)
    assert reports[-1].move == "scale"


@pytest.mark.parametrize(
    ("arm", "harness_levels", "scale_levels"),
    [("none", {2}, {0, 1, 2, 3}), ("scale_only", {2}, {0}), ("both", {0}, {0})],
)
def test_arm_starts_where_its_definition_says(arm, harness_levels, scale_levels):
    curriculum = Curriculum({"e": 3}, small_settings(num_harness_levels=3, arm=arm))
    rng = np.random.default_rng(0)
    draws = [curriculum.sample("e", rng) for _ in range(200)]
    assert {h for h, _ in draws} == harness_levels
    assert {s for _, s in draws} == scale_levels


def test_harness_only_judges_at_the_target_and_keeps_the_whole_window():
    curriculum = Curriculum({"e": 3}, small_settings(arm="harness_only"))
    for _ in range(4):
        curriculum.record("e", 0, 0, 2, 2)
    assert curriculum.end_update(0) == []
    for _ in range(2):
        curriculum.record("e", 0, 3, 2, 2)
    (decision,) = curriculum.end_update(1)
    assert (decision.move, decision.harness_level) == ("harness", 1)
    assert (decision.low, decision.high) == (0, 3)


def test_sampling_follows_the_distribution():
    curriculum = Curriculum({"e": 3}, small_settings(num_harness_levels=4))
    frontier = curriculum.frontier("e")
    frontier.harness_level, frontier.high = 2, 2
    rng = np.random.default_rng(0)
    draws = np.array([curriculum.sample("e", rng) for _ in range(20_000)])
    shares = np.bincount(draws[:, 0], minlength=4) / len(draws)
    # Four standard errors of a share at 20,000 draws are at most 0.0142.
    np.testing.assert_allclose(
        shares, curriculum.harness_probabilities("e"), atol=0.0142
    )
    assert set(draws[:, 1]) == {1, 2}
    assert abs(np.mean(draws[:, 1] == 2) - 0.5) < 0.0142


@pytest.mark.parametrize(
    "overrides",
    [
        {"p_cur": 1.5},
        {"alpha": -1.0},
        {"alpha": float("nan")},
        {"scale_groups": 0},
        {"arm": "bot"},
        {"window": -1},
    ],
)
def test_bad_settings_are_refused(overrides):
    with pytest.raises(ValueError, match=next(iter(overrides))):
        small_settings(**overrides)


def test_bad_calls_are_refused():
    curriculum = Curriculum({"maze": 1}, small_settings())
    with pytest.raises(ValueError, match="is not one of"):
        curriculum.record("mase", 0, 0, 1, 2)
    with pytest.raises(ValueError, match="not a count"):
        curriculum.record("maze", 0, 0, 3, 2)


def _drop(key):
    return lambda data: data.pop(key)


def _set(*path, value):
    def change(data):
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _drop("frontiers"),
        _set("extra", value=1),
        _set("schema", value=2),
        _set("settings", "alpha", value="x"),
        _set("settings", "beta", value=1),
        _set("env_targets", "maze", value=-1),
        _set("frontiers", "maze", "high", value=2),
        _set("frontiers", "maze", "high", value=True),
        _set("frontiers", "maze", "harness_level", value=-1),
        _set("frontiers", "maze", "evidence", value=[[3, 2]]),
        _set("frontiers", "maze", "evidence", value=[[1, 2]] * 3),
        _set("frontiers", "maze", "finished", value=True),
        _set("frontiers", "maze", "stalled", value=None),
    ],
)
def test_a_damaged_state_is_refused(change):
    curriculum = Curriculum({"maze": 1}, small_settings())
    data = json.loads(json.dumps(curriculum.to_json()))
    change(data)
    with pytest.raises(UserError):
        baselines.from_json(data)


class CurriculumMachine(RuleBasedStateMachine):
    """Random play against a curriculum and a copy that goes through JSON."""

    def __init__(self):
        super().__init__()
        self.settings = small_settings(num_harness_levels=3, patience=2, window=1)
        self.live = Curriculum({"a": 2, "b": 0}, self.settings)
        self.before = self.positions()
        self.step = 0

    def positions(self):
        return {e: dataclasses.replace(self.live.frontier(e)) for e in ("a", "b")}

    @rule(
        env_id=st.sampled_from(["a", "b"]),
        seed=st.integers(0, 99),
        successes=st.integers(0, 2),
        at_frontier=st.booleans(),
    )
    def play(self, env_id, seed, successes, at_frontier):
        cell = self.live.sample(env_id, np.random.default_rng(seed))
        frontier = self.live.frontier(env_id)
        assert cell[0] <= frontier.harness_level
        low, high = self.live.scale_window(env_id)
        assert low <= cell[1] <= high
        if at_frontier:
            cell = (frontier.harness_level, frontier.high)
        self.live.record(env_id, *cell, successes, 2)

    @rule()
    def update(self):
        text = json.dumps(self.live.to_json(), allow_nan=False)
        copy = Curriculum.from_json(json.loads(text))
        decisions = self.live.end_update(self.step)
        assert copy.end_update(self.step) == decisions
        assert copy.to_json() == self.live.to_json()
        assert len({d.env_id for d in decisions}) == len(decisions)
        self.step += 1

    @invariant()
    def frontiers_never_fall_but_for_the_restart(self):
        for env_id, now in self.positions().items():
            before = self.before[env_id]
            if now.harness_level == before.harness_level:
                assert before.high <= now.high <= before.high + 1
            else:
                assert now.harness_level == before.harness_level + 1
                assert (before.high, now.high) == (self.live.env_targets[env_id], 0)
            assert now.finished >= before.finished
        self.before = self.positions()

    @invariant()
    def window_and_probabilities_obey_their_laws(self):
        for env_id in ("a", "b"):
            low, high = self.live.scale_window(env_id)
            assert high == self.live.frontier(env_id).high
            assert low == max(0, high - 1)
            probabilities = self.live.harness_probabilities(env_id)
            assert probabilities.sum() == pytest.approx(1, abs=1e-15)
            top = self.live.frontier(env_id).harness_level
            assert not probabilities[top + 1 :].any()


CurriculumMachine.TestCase.settings = hypothesis_settings(
    max_examples=30, stateful_step_count=60, deadline=None
)
TestCurriculumMachine = CurriculumMachine.TestCase


@pytest.mark.parametrize("arm", [*ARMS])
def test_every_arm_survives_json(arm):
    curriculum = Curriculum({"a": 2, "b": 6}, small_settings(arm=arm))
    for step in range(12):
        for env_id in ("a", "b"):
            frontier = curriculum.frontier(env_id)
            curriculum.record(env_id, frontier.harness_level, frontier.high, 2, 2)
        curriculum.end_update(step)
        data = json.loads(json.dumps(curriculum.to_json()))
        assert baselines.from_json(data).to_json() == curriculum.to_json()
