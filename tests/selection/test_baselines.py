import numpy as np
import pytest

from aes_hdc.selection import baselines

CORE = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]], bool)


def test_random_order_does_not_depend_on_how_the_pool_is_listed():
    draws = [
        baselines.random_order(ids, np.random.default_rng(3), 2)
        for ids in (["a", "b", "c", "d"], ["d", "b", "c", "a"])
    ]
    assert draws[0] == draws[1]
    assert len(set(draws[0])) == 2
    with pytest.raises(ValueError, match="num_picks"):
        baselines.random_order(["a"], np.random.default_rng(0), 2)


def test_random_order_reaches_every_subset():
    rng = np.random.default_rng(0)
    seen = {frozenset(baselines.random_order("abcd", rng, 2)) for _ in range(200)}
    assert len(seen) == 6


def test_coverage_curve_counts_abilities():
    assert baselines.coverage_curve([0, 2, 1], CORE).tolist() == [2, 3, 4]
    assert baselines.coverage_curve([], CORE).tolist() == []


def test_random_curve_is_the_mean_over_orders():
    curve = baselines.random_curve(CORE, np.random.default_rng(0), num_orders=4000)
    # By hand: one row covers 5/3; pairs cover 3, 3, 3; four standard errors are 0.03.
    np.testing.assert_allclose(curve, [5 / 3, 3, 4], atol=0.03)


def test_permuted_pairs_keep_their_values():
    pairs = np.arange(16.0).reshape(4, 4)
    shuffled = baselines.permute_pairs(pairs, np.random.default_rng(1))
    assert sorted(shuffled.ravel()) == sorted(pairs.ravel())
    assert sorted(shuffled.diagonal()) == sorted(pairs.diagonal())


def test_blind_picks_tell_what_they_cover_and_claim_no_gain():
    core = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]], bool)
    picks = baselines.blind_picks(["b", "c"], ["a", "b", "c"], core)
    assert [(pick.env_id, pick.covered, pick.gain) for pick in picks] == [
        ("b", 1, 0.0),
        ("c", 2, 0.0),
    ]
