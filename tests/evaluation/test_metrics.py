import math

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aes_hdc.evaluation import metrics


def flat(values, instances=50):
    """Every instance at its environment's mean: no sampling error at all."""
    return {f"e{i}": np.full(instances, v) for i, v in enumerate(values)}


def test_relative_gain_is_a_ratio_of_means():
    got = metrics.compare(flat((0.05, 0.20, 0.50)), flat((0.20, 0.20, 0.65)))
    assert got.relative_gain == pytest.approx(
        0.4, abs=1e-12
    )  # not 110 %, a mean of ratios
    assert got.difference.mean == pytest.approx(0.1, abs=1e-12)
    assert (got.before.mean, got.after.mean) == pytest.approx((0.25, 0.35), abs=1e-12)
    assert got.difference.low == pytest.approx(0.1, abs=1e-12)


def test_environments_weigh_the_same_whatever_their_instances():
    before = {"a": np.zeros(2), "b": np.ones(98)}
    assert metrics.compare(before, before).before.mean == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("base", "is_defined"),
    [((0.0,) * 50, False), ((0.019,) * 50, False), ((0.02,) * 50, True)],
)
def test_relative_gain_needs_a_base(base, is_defined):
    got = metrics.compare({"a": np.array(base)}, {"a": np.full(50, 0.5)})
    assert (got.relative_gain is not None) == is_defined
    assert got.difference.mean == pytest.approx(0.5 - base[0])


def test_a_base_that_may_be_zero_has_no_relative_gain():
    base = np.zeros(50)
    base[0] = 1  # mean 0.02; a third of the samples miss the one success
    got = metrics.compare({"a": base}, {"a": np.ones(50)})
    assert got.before.low == 0
    assert got.relative_gain is None


def test_pairing_cancels_what_both_policies_share():
    rng = np.random.default_rng(0)
    base = (rng.random(400) < 0.5).astype(float)
    got = metrics.compare({"a": base * 0.5}, {"a": base * 0.5 + 0.25})
    assert got.difference.high - got.difference.low < 1e-12
    assert got.before.high - got.before.low > 0.03


def test_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(1)
    hits = 0
    for trial in range(200):
        base = {e: (rng.random(40) < 0.3).astype(float) for e in "abc"}
        more = {e: (rng.random(40) < 0.5).astype(float) for e in "abc"}
        got = metrics.compare(base, more, num_samples=400, seed=trial)
        hits += got.difference.low <= 0.2 <= got.difference.high
    assert 0.90 <= hits / 200 <= 0.99  # 0.95 within three standard errors


def test_same_seed_gives_the_same_interval_in_any_order():
    rng = np.random.default_rng(2)
    base, more = ({e: rng.random(20) for e in "ab"} for _ in range(2))
    other = metrics.compare(dict(reversed(base.items())), more)
    assert metrics.compare(base, more) == other
    assert metrics.compare(base, more, seed=1) != other


def test_headline_has_the_keys_of_the_file():
    got = metrics.compare(flat((0.5,)), flat((0.75,))).to_json()
    assert list(got) == [
        "before",
        "before_low",
        "before_high",
        "after",
        "after_low",
        "after_high",
        "difference",
        "difference_low",
        "difference_high",
        "relative_gain",
    ]
    assert got["relative_gain"] == pytest.approx(0.5)


def test_unpaired_panels_are_refused():
    with pytest.raises(ValueError, match="panels differ"):
        metrics.compare(flat((0.1,)), flat((0.1, 0.2)))
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        metrics.compare({"a": np.array([2.0])}, {"a": np.array([1.0])})
    with pytest.raises(ValueError, match="inhomogeneous"):
        metrics.compare({"a": np.ones(2)}, {"a": np.ones(3)})


def test_wilson_interval_has_the_published_values():
    # Newcombe 1998, method 3: 81/263, 15/148, 0/20 and 1/29.
    for successes, episodes, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        got = metrics.wilson_interval(successes, episodes)
        assert (got.low, got.high) == pytest.approx(
            (low, high), abs=5e-5
        )  # four digits
    with pytest.raises(ValueError, match="no rate"):
        metrics.wilson_interval(0, 0)


@hypothesis.settings(deadline=None)
@given(st.integers(1, 60), st.data())
def test_wilson_interval_is_symmetric_and_holds_the_rate(episodes, data):
    successes = data.draw(st.integers(0, episodes))
    got = metrics.wilson_interval(successes, episodes)
    mirrored = metrics.wilson_interval(episodes - successes, episodes)
    assert 0 <= got.low <= got.mean <= got.high <= 1
    assert (got.low, got.high) == pytest.approx((1 - mirrored.high, 1 - mirrored.low))


def test_pass_at_k():
    assert metrics.pass_at_k(1, 4, 1) == 0.25
    assert metrics.pass_at_k(1, 4, 2) == 0.5
    assert metrics.pass_at_k(3, 4, 2) == 1
    assert metrics.pass_at_k(0, 4, 4) == 0
    with pytest.raises(ValueError, match="undefined"):
        metrics.pass_at_k(1, 4, 5)


def test_success_rate():
    assert metrics.success_rate([True, False, True, True]) == 0.75
    assert math.isnan(metrics.success_rate([]))
