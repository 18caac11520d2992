import json

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aes_hdc.errors import UserError
from aes_hdc.profiles import files
from aes_hdc.profiles.aggregate import Thresholds, build_profiles
from aes_hdc.profiles.annotator import Annotated
from aes_hdc.profiles.association import Table, kappa
from aes_hdc.profiles.matrices import matrices


def trajectories(abilities_of, *, strong=16, weak=8, env_id="e", instances=20):
    """Both policies on the same instances; the first of each policy's plays succeed.

    `abilities_of(policy, index, success)` gives the sequence of a trajectory.
    """
    out = []
    for policy, solved in (("strong", strong), ("weak", weak)):
        for i in range(instances):
            names = tuple(abilities_of(policy, i, i < solved))
            out.append(Annotated(env_id, (i, 0), policy, i < solved, names))
    return out


def build(abilities_of, second=None, thresholds=None, **kwargs):
    first = trajectories(abilities_of, **kwargs)
    other = None if second is None else trajectories(second, **kwargs)
    return build_profiles(first, other, {"e": 2}, thresholds or Thresholds())["e"]


def test_ability_of_every_success_is_core():
    profile = build(lambda policy, i, success: ["planning ahead"] if success else [])
    ability = profile.abilities["planning ahead"]
    assert ability.status == "core"
    assert (ability.count, ability.prevalence) == (24, 0.6)
    assert ability.prevalence_by_policy == {"strong": 0.8, "weak": 0.4}
    assert (ability.lift, ability.lift_low) == (1.0, 1.0)
    assert (profile.version, profile.trajectories, profile.instances) == (2, 40, 20)
    assert (profile.evidence, profile.success) == ("ok", {"strong": 0.8, "weak": 0.4})


def test_ability_without_link_to_success_is_soft():
    profile = build(lambda policy, i, success: ["looking around"] if i % 2 else [])
    ability = profile.abilities["looking around"]
    assert ability.status == "soft"
    assert ability.lift == pytest.approx(0, abs=0.05)


def test_ability_of_few_successes_is_soft_however_telling():
    profile = build(lambda policy, i, success: ["a trick"] if success and i < 4 else [])
    assert profile.abilities["a trick"].status == "soft"  # prevalence 0.2


def test_lift_alone_makes_an_ability_critical():
    # In 12 of 16 and 5 of 8 successes: under 90 %, but hardly ever in failures.
    def abilities_of(policy, i, success):
        return ["careful step"] if success and i % 4 != 3 else []

    ability = build(abilities_of).abilities["careful step"]
    assert ability.lift_low > 0
    assert ability.status == "core"
    dull = build(abilities_of, thresholds=Thresholds(min_lift=2.0))
    assert dull.abilities["careful step"].status == "soft"


def test_successes_need_to_be_five_before_their_share_counts():
    # Everyone always does it: only the share of successes can make it critical.
    for solved, status in ((2, "soft"), (5, "core")):
        profile = build(
            lambda *_: ["counting dots"],
            strong=solved,
            weak=0,
            thresholds=Thresholds(min_core_share=0.5),
        )
        ability = profile.abilities["counting dots"]
        assert (ability.status, ability.lift, ability.lift_low) == (status, None, None)


def test_rare_abilities_are_dropped_by_trajectory_and_by_instance():
    profile = build(
        lambda policy, i, success: (
            (["thrice"] if i < 3 and policy == "weak" else [])
            + (["two places"] if i < 2 else [])
            + (["enough"] if i in (0, 1, 2) else [])
        )
    )
    assert profile.dropped["thrice"] == "rare: 3 of 40 trajectories, 3 instances"
    assert profile.dropped["two places"] == "rare: 4 of 40 trajectories, 2 instances"
    assert list(profile.abilities) == ["enough"]


def test_abilities_the_passes_disagree_on_are_dropped():
    profile = build(
        lambda policy, i, success: ["shaky", "firm"] if i % 2 else [],
        lambda policy, i, success: (
            (["firm"] if i % 2 else []) + (["shaky"] if i % 3 else [])
        ),
    )
    assert profile.dropped["shaky"].startswith("unstable: kappa")
    assert list(profile.abilities) == ["firm"]


def test_passes_over_other_episodes_are_refused():
    first = trajectories(lambda *_: [])
    with pytest.raises(ValueError, match="same episodes"):
        build_profiles(first, first[::-1], {"e": 1}, Thresholds())


@pytest.mark.parametrize(
    ("strong", "weak", "evidence"),
    [
        (12, 2, "ok"),
        (18, 2, "ok"),
        (20, 2, "confounded"),
        (11, 8, "confounded"),
        (16, 1, "confounded"),
    ],
)
def test_evidence_follows_the_success_of_the_policies(strong, weak, evidence):
    assert build(lambda *_: [], strong=strong, weak=weak).evidence == evidence


def test_one_policy_is_confounded():
    only = [a for a in trajectories(lambda *_: []) if a.policy == "strong"]
    assert (
        build_profiles(only, None, {"e": 1}, Thresholds())["e"].evidence == "confounded"
    )


def test_transitions_join_neighbours_that_were_kept():
    def abilities_of(policy, i, success):
        return ["see", "see", "plan", "see"] + (["odd", "act"] if i == 0 else ["act"])

    profile = build(abilities_of)
    assert profile.dropped.keys() == {"odd"}
    edges = {(a, b): n for a, b, n in profile.transitions}
    assert edges == {("see", "plan"): 40, ("plan", "see"): 40, ("see", "act"): 38}
    assert profile.abilities["see"].count == 120


def test_profiles_do_not_depend_on_the_order_of_episodes():
    first = trajectories(lambda p, i, s: ["a bit"] if (i * 7) % 3 else ["or so"])
    shuffled = [first[i] for i in np.random.default_rng(0).permutation(len(first))]
    profiles = [
        build_profiles(x, None, {"e": 1}, Thresholds()) for x in (first, shuffled)
    ]
    assert profiles[0] == profiles[1]


def test_pooled_lift_by_hand():
    # Policy 0: 2 of 2 with, 1 of 2 without: gap .5, size 1. Policy 1: 1 of 3 with,
    # 0 of 1 without: gap 1/3, size 3/4. Pooled (.5 + .25) / 1.75.
    table = Table(
        presence=np.array([[1], [1], [0], [0], [1], [1], [1], [0]], bool),
        success=np.array([1, 1, 1, 0, 1, 0, 0, 0], float),
        policy=np.array([0, 0, 0, 0, 1, 1, 1, 1]),
        num_policies=2,
    )
    assert table.lift(np.ones(8))[0] == pytest.approx(0.75 / 1.75)
    assert table.success_share(np.ones(8))[0] == pytest.approx(3 / 4)
    np.testing.assert_allclose(table.prevalence(np.ones(8))[:, 0], [0.5, 0.75])
    doubled = np.array([2, 2, 2, 2, 0, 0, 0, 0])
    assert table.lift(doubled)[0] == pytest.approx(0.5)


def test_kappa_has_textbook_values():
    # 20 both, 15 neither, 5 and 10 split: agreement .7, chance .5.
    first = np.repeat([1, 1, 0, 0], [20, 5, 10, 15])
    second = np.repeat([1, 0, 1, 0], [20, 5, 10, 15])
    assert kappa(first, second) == pytest.approx(0.4)
    assert kappa(first, first) == 1
    assert kappa(np.ones(4), np.array([1, 1, 1, 0])) == 0.75
    assert kappa(np.ones(4), np.zeros(4)) == 0


@hypothesis.settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_kappa_is_symmetric_and_bounded(pairs):
    first, second = np.array(pairs).T
    assert kappa(first, second) == pytest.approx(kappa(second, first))
    assert -1 <= kappa(first, second) <= 1


def two_profiles():
    first = trajectories(lambda p, i, s: ["see", "plan"] if s else ["see"], env_id="e")
    second = trajectories(lambda p, i, s: ["see"] if i % 2 else [], env_id="d")
    return build_profiles(first + second, None, {"d": 1, "e": 1}, Thresholds())


def test_matrices_lay_out_the_profiles():
    got = matrices(two_profiles(), ["e", "d"])
    assert (got.env_ids, got.abilities) == (("e", "d"), ("plan", "see"))
    assert got.core.tolist() == [[True, True], [False, False]]
    assert got.soft.tolist() == [[False, False], [False, True]]
    np.testing.assert_allclose(got.prevalence, [[0.6, 1.0], [0, 0.5]])
    assert got.transitions[0].tolist() == [[0, 0], [24, 0]]
    assert not got.transitions[1].any()


def test_profiles_survive_the_file(tmp_path):
    profiles = two_profiles()
    files.save(tmp_path / "profiles.json", profiles)
    assert files.load(tmp_path / "profiles.json") == profiles
    with pytest.raises(UserError):
        files.load(tmp_path / "absent.json")


def _at(*path):
    def put(value):
        data = json.loads(json.dumps(files.to_json(two_profiles())))
        inner = data
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        return data

    return put


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ([], "needed"),
        (_at("schema")(2), "build the profiles again"),
        (_at("extra")(1), "exactly"),
        (_at("abilities")(["see"]), "not in the list"),
        (_at("environments", "e", "version")("1"), "wrong type"),
        (_at("environments", "e", "version")(True), "wrong type"),
        (_at("environments", "e", "evidence")("fine"), "ok or confounded"),
        (_at("environments", "e", "tags")([]), "exactly"),
        (
            _at("environments", "e", "abilities", "see", "status")("hard"),
            "core or soft",
        ),
        (_at("environments", "e", "abilities", "see", "prevalence")(1.5), "0..1"),
        (
            _at("environments", "e", "transitions")([["see", "plan", "24"]]),
            "transition",
        ),
    ],
)
def test_foreign_files_are_refused(data, fault):
    with pytest.raises(UserError, match=fault):
        files.from_json(data)
