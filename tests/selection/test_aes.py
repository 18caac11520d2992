import dataclasses
from itertools import pairwise

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aes_hdc.selection import aes

IDS = ("e1", "e2", "e3", "e4")
CORE = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]], bool)
SOFT = np.array([[0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]], bool)
FREQUENCY = np.array([[2, 2, 1, 0], [0, 4, 3, 0], [3, 0, 0, 4], [1, 0, 0, 0]], float)
EDGES = np.zeros((4, 4, 4))
EDGES[0, 0, 1], EDGES[0, 1, 2], EDGES[1, 1, 2], EDGES[2, 3, 0] = 4, 3, 1, 1
GRADIENTS = np.array([[3, 4, 0], [4, 3, 0], [-5, 0, 0], [0, 0, 1]], float)
COSINE = GRADIENTS @ GRADIENTS.T
COSINE /= np.sqrt(np.outer(COSINE.diagonal(), COSINE.diagonal()))
ZERO = np.zeros((4, 4))


def pick_worked(count, **overrides):
    settings = {
        "coverage_weight": 1.0,
        "redundancy_weight": 0.5,
        "conflict_weight": 0.5,
    } | overrides
    weights = aes.ability_weights(CORE, SOFT, core_weight=1.0, soft_weight=0.5)
    alike = aes.similarity(FREQUENCY, EDGES, use_idf=False)
    against = aes.opposition(COSINE, ZERO, conflict_z=0.0)
    return aes.select(
        IDS[:count],
        weights[:count],
        CORE[:count],
        alike[:count, :count],
        against[:count, :count],
        **settings,
    )


def ids_of(picks):
    return [pick.env_id for pick in picks]


def test_similarity_has_the_worked_values():
    alike = aes.similarity(FREQUENCY, EDGES, use_idf=False)
    pairs = {(0, 1): 2 / 3, (0, 2): 0.2, (1, 2): 0, (0, 3): 1 / 3, (2, 3): 0.3}
    for (first, second), value in (pairs | {(1, 3): 0}).items():
        assert alike[first, second] == pytest.approx(value, abs=1e-15)
    np.testing.assert_array_equal(alike, alike.T)


def test_similarity_without_any_edges_is_the_ability_cosine():
    alike = aes.similarity(FREQUENCY, np.zeros_like(EDGES), use_idf=False)
    assert alike[0, 2] == pytest.approx(0.4, abs=1e-15)
    assert alike.diagonal() == pytest.approx(1, abs=1e-15)


def test_idf_lowers_the_weight_of_what_everyone_has():
    frequency = np.array([[1.0, 1, 0], [1, 0, 1]])
    none = np.zeros((2, 3, 3))
    plain = aes.similarity(frequency, none, use_idf=False)[0, 1]
    weighted = aes.similarity(frequency, none)[0, 1]
    rare = 1 + np.log(3 / 2)  # the shared ability has idf 1
    assert (plain, weighted) == pytest.approx((0.5, 1 / (1 + rare**2)), abs=1e-15)


def test_greedy_follows_the_worked_steps():
    picks = pick_worked(3)
    assert ids_of(picks) == ["e1", "e3", "e2"]
    terms = [(p.gain, p.new_coverage, p.redundancy, p.conflict) for p in picks]
    expected = [
        (2.5, 2.5, 0, 0),
        (0.6, 1.0, 0.2, 0.6),
        (0.5 - 1 / 3 - 0.4, 0.5, 2 / 3, 0.8),
    ]
    np.testing.assert_allclose(terms, expected, atol=1e-14)
    assert [p.covered for p in picks] == [2, 3, 4]


@pytest.mark.parametrize(
    ("count", "overrides", "expected"),
    [
        (3, {"soft_covers": True}, "e1 e3"),
        (4, {"soft_covers": True}, "e1 e3"),
        (4, {}, "e1 e3 e4 e2"),
        (4, {"require_new_core": True}, "e1 e3 e2"),
        (4, {"redundancy_weight": 0.0}, "e1 e3 e2"),
        (4, {"conflict_weight": 0.0}, "e1 e3 e2"),
        (4, {"num_picks": 2}, "e1 e3"),
        (3, {"num_picks": 9}, "e1 e3 e2"),
        (4, {"num_picks": 9, "require_new_core": True}, "e1 e3 e2"),
    ],
)
def test_switches_have_the_worked_outcomes(count, overrides, expected):
    assert " ".join(ids_of(pick_worked(count, **overrides))) == expected


def test_the_trap_is_taken_at_the_worked_gain():
    trap = pick_worked(4)[2]
    assert (trap.env_id, trap.covered) == ("e4", 3)
    assert trap.gain == pytest.approx(-1 / 6, abs=1e-14)


def test_noise_margin_has_the_worked_value():
    cosine = np.array([[1, -0.12], [-0.12, 1]])
    error = np.full((2, 2), 0.05)
    assert aes.opposition(cosine, error)[0, 1] == pytest.approx(0.02, abs=1e-15)
    literal = aes.opposition(cosine, error, conflict_z=0.0)
    assert literal[0, 1] == pytest.approx(0.12, abs=1e-15)


def test_unmeasured_pairs_take_the_median_of_the_pool():
    cosine = COSINE.copy()
    cosine[3, :] = cosine[:, 3] = np.nan
    against = aes.opposition(cosine, np.zeros((4, 4)), conflict_z=0.0)
    assert against[0, 3] == against[3, 2] == pytest.approx(0.6)  # of 0, .6, .8
    assert against[0, 2] == pytest.approx(0.6)
    assert not aes.opposition(np.full((4, 4), np.nan), ZERO).any()


def test_ties_go_to_the_lower_id_after_rounding():
    weights = np.array([[0.1 + 0.2], [0.3]])  # differ in the last bit only
    core = np.ones((2, 1), bool)
    zero = np.zeros((2, 2))
    for ids in (("b", "a"), ("a", "b")):
        assert ids_of(aes.select(ids, weights, core, zero, zero)) == ["a"]


def test_nothing_to_cover_selects_nothing():
    empty = np.zeros((2, 3))
    pairs = np.zeros((2, 2))
    assert aes.select(("a", "b"), empty, empty.astype(bool), pairs, pairs) == []


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="soft_weight"):
        aes.ability_weights(CORE, SOFT, core_weight=0.3, soft_weight=1.0)
    with pytest.raises(ValueError, match="repeat"):
        aes.select(("a", "a"), np.ones((2, 1)), np.ones((2, 1)), ZERO, ZERO)
    with pytest.raises(ValueError, match="negative"):
        aes.select(("a",), -np.ones((1, 1)), np.ones((1, 1)), ZERO, ZERO)


@st.composite
def pools(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_envs, num_abilities = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    status = rng.integers(0, 3, (num_envs, num_abilities))
    alike = rng.random((num_envs, num_envs)).round(1)
    cosine = rng.uniform(-1, 1, (num_envs, num_envs)).round(1)
    settings = {
        "redundancy_weight": float(rng.choice([0, 0.3, 1])),
        "conflict_weight": float(rng.choice([0, 0.3, 1])),
        "soft_covers": bool(rng.integers(2)),
        "require_new_core": bool(rng.integers(2)),
    }
    ids = [f"e{i}" for i in range(num_envs)]
    core = status == 2
    weights = aes.ability_weights(core, status == 1)
    alike, against = np.maximum(alike, alike.T), np.maximum(0, -(cosine + cosine.T) / 2)
    return (ids, weights, core, alike, against), settings


def gain_of(pool, settings, env, chosen):
    """Gain(env | chosen), straight from the definition."""
    _, weights, _, alike, against = pool
    covered = [
        max((weights[c, a] for c in chosen), default=0.0)
        for a in range(len(weights[0]))
    ]
    coverage = sum(max(0, w - c) for w, c in zip(weights[env], covered, strict=True))
    redundancy = max((alike[env, c] for c in chosen), default=0.0)
    conflict = max((against[env, c] for c in chosen), default=0.0)
    return (
        coverage
        - settings["redundancy_weight"] * redundancy
        - settings["conflict_weight"] * conflict
    )


@hypothesis.settings(deadline=None)
@given(pools())
def test_logged_gains_are_the_definition_and_the_best(case):
    pool, settings = case
    ids, chosen = pool[0], []
    for pick in aes.select(*pool, **settings):
        gains = {e: gain_of(pool, settings, e, chosen) for e in range(len(ids))}
        mine = ids.index(pick.env_id)
        assert pick.gain == pytest.approx(gains[mine], abs=1e-12)
        if not settings["require_new_core"]:
            best = max(gains[e] for e in gains if e not in chosen)
            assert gains[mine] >= best - 1e-12
        chosen.append(mine)
    assert len(set(chosen)) == len(chosen)


@hypothesis.settings(deadline=None)
@given(pools(), st.data())
def test_gain_never_rises_as_the_selection_grows(case, data):
    pool, settings = case
    order = data.draw(st.permutations(range(len(pool[0]))))
    env, *rest = order
    gains = [gain_of(pool, settings, env, rest[:k]) for k in range(len(rest) + 1)]
    assert all(b <= a + 1e-12 for a, b in pairwise(gains))


def lazy_order(pool, settings):
    """Lazy greedy: recomputes only the gain on top of the queue."""
    ids = pool[0]
    key = lambda e, chosen: (-round(gain_of(pool, settings, e, chosen), 9), ids[e])  # noqa: E731
    queue, chosen = sorted((key(e, []), e) for e in range(len(ids))), []
    while queue:
        _, env = queue.pop(0)
        fresh = (key(env, chosen), env)
        if queue and queue[0] < fresh:
            queue = sorted([*queue, fresh])
        else:
            chosen.append(env)
    return [ids[e] for e in chosen]


@hypothesis.settings(deadline=None)
@given(pools())
def test_lazy_greedy_is_exact(case):
    pool, settings = case
    settings = settings | {"require_new_core": False, "num_picks": len(pool[0])}
    assert ids_of(aes.select(*pool, **settings)) == lazy_order(pool, settings)


@hypothesis.settings(deadline=None)
@given(pools())
def test_the_stop_covers_all_and_no_sooner(case):
    pool, settings = case
    ids, weights, core, _, _ = pool
    picks = aes.select(*pool, **settings)
    covers = (weights > 0 if settings["soft_covers"] else core) & core.any(axis=0)
    rows = [ids.index(p.env_id) for p in picks]
    counts = [covers[rows[: k + 1]].any(axis=0).sum() for k in range(len(rows))]
    needed = core.any(axis=0).sum()
    assert [p.covered for p in picks] == counts
    assert ([*counts][-1:] or [0]) == [needed]
    assert all(count < needed for count in counts[:-1])


@hypothesis.settings(deadline=None)
@given(pools(), st.data())
def test_the_order_of_candidates_does_not_matter(case, data):
    (ids, weights, core, alike, against), settings = case
    order = data.draw(st.permutations(range(len(ids))))
    pairs = np.ix_(order, order)
    shuffled = ([ids[i] for i in order], weights[order], core[order])
    picks = aes.select(*shuffled, alike[pairs], against[pairs], **settings)
    plain = aes.select(ids, weights, core, alike, against, **settings)
    assert ids_of(picks) == ids_of(plain)
    for left, right in zip(picks, plain, strict=True):
        terms = [v for v in dataclasses.astuple(left) if isinstance(v, float)]
        others = [v for v in dataclasses.astuple(right) if isinstance(v, float)]
        assert terms == pytest.approx(others, abs=1e-12)
