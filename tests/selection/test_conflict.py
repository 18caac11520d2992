import numpy as np
import pytest

from aes_hdc.selection import conflict

GRADIENTS = np.array([[3, 4, 0], [4, 3, 0], [-5, 0, 0], [0, 0, 1]], float)


def repeat(gradients, num_blocks):
    return np.repeat(gradients[:, None, :], num_blocks, axis=1)


def measure(sketches, **overrides):
    groups = np.full(len(sketches), 16)
    return conflict.measure(sketches, groups, np.zeros_like(groups), **overrides)


def noisy_pair(rng, *, num_pairs, cosine, snr, num_blocks=8, size=200):
    """Pairs of unit gradients whose mean over all blocks has |g|^2 / noise = snr."""
    first, second = np.zeros(size), np.zeros(size)
    first[0] = 1
    second[:2] = cosine, np.sqrt(1 - cosine**2)
    truth = np.tile(np.stack([first, second]), (num_pairs, 1))
    scale = np.sqrt(num_blocks / (snr * size))
    shape = (2 * num_pairs, num_blocks, size)
    return truth[:, None, :] + scale * rng.standard_normal(shape)


def test_three_tasks_in_closed_form():
    # Quadratic losses |x - c|^2 / 2 at x = 0 have gradients -c and no noise.
    got = measure(repeat(-GRADIENTS[:3], 4))
    expected = [[1, 0.96, -0.6], [0.96, 1, -0.8], [-0.6, -0.8, 1]]
    np.testing.assert_allclose(got.cosine, expected, atol=1e-6)
    np.testing.assert_allclose(got.cosine_se, 0, atol=1e-6)
    np.testing.assert_allclose(got.norm_sq, 25, atol=1e-6)
    np.testing.assert_allclose(got.reliability, 1, atol=1e-6)
    assert got.measured.all()


def test_statistics_of_three_blocks_by_hand():
    # s = 1, 2, 3: U = (36 - 14) / 6; deleting one block leaves products 6, 3, 2.
    got = measure(np.array([[[1.0], [2], [3]]]))
    assert got.norm_sq[0] == pytest.approx(11 / 3)
    deleted = np.array([6, 3, 2])
    assert got.norm_se[0] == pytest.approx(np.sqrt(2 * deleted.var()))
    assert got.reliability[0] == pytest.approx(1)


def test_squared_norm_is_unbiased_and_its_error_honest():
    rng = np.random.default_rng(0)
    got = measure(noisy_pair(rng, num_pairs=200, cosine=0.5, snr=0.5))
    spread = got.norm_sq.std()
    # 400 independent estimates: four standard errors of their mean.
    assert abs(got.norm_sq.mean() - 1) < 4 * spread / np.sqrt(400)
    # With noise variance v = 0.08 in each of 200 dimensions, U has variance 4 v / M +
    # 2 * 200 v^2 / (M (M - 1)); deleting blocks counts the second part
    # 2 (M - 1) / (M - 2) times, so it errs on the safe side. The sampling error
    # of a standard deviation over 400 is 4 %.
    first, second = 4 * 0.08 / 8, 400 * 0.08**2 / 56
    assert spread == pytest.approx(np.sqrt(first + second), rel=0.15)
    expected = np.sqrt(first + second * 2 * 7 / 6)
    assert np.sqrt((got.norm_se**2).mean()) == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("snr", [2.0, 0.5])
def test_cosine_keeps_the_truth_where_the_plain_one_shrinks(snr):
    rng = np.random.default_rng(1)
    sketches = noisy_pair(rng, num_pairs=100, cosine=0.495, snr=snr, size=4000)
    got = measure(sketches, min_ratio=0.0)
    pairs = (np.arange(0, 200, 2), np.arange(1, 200, 2))
    means = sketches.mean(axis=1)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    plain = (means[pairs[0]] * means[pairs[1]]).sum(axis=1)
    # The plain cosine shrinks by snr / (1 + snr); 0.03 covers the sampling error.
    assert plain.mean() == pytest.approx(0.495 * snr / (1 + snr), abs=0.03)
    assert got.cosine[pairs].mean() == pytest.approx(0.495, abs=0.03)
    errors = got.cosine[pairs] - 0.495
    covered = np.abs(errors) <= 3 * got.cosine_se[pairs]
    assert covered.mean() > 0.95


def test_pure_noise_is_mostly_unmeasured():
    rng = np.random.default_rng(2)
    got = measure(rng.standard_normal((200, 8, 300)))
    assert got.measured.mean() < 0.1  # a one-sided test at two standard errors
    assert abs(np.nanmean(got.reliability)) < 0.02


def test_environments_without_signal_have_no_cosine():
    sketches = repeat(GRADIENTS, 4)
    sketches[1] = 0
    got = conflict.measure(sketches, np.full(4, 8), np.array([0, 0, 8, 7]))
    assert got.measured.tolist() == [True, False, False, True]
    assert np.isnan(got.cosine[1]).all()
    assert np.isnan(got.cosine[2]).all()
    assert np.isnan(got.reliability[1])
    assert got.cosine[0, 3] == pytest.approx(0)


def test_reliability_tells_signal_from_noise():
    rng = np.random.default_rng(3)
    strong = measure(noisy_pair(rng, num_pairs=20, cosine=0.0, snr=10.0))
    weak = measure(noisy_pair(rng, num_pairs=20, cosine=0.0, snr=0.2))
    # Halves have half the ratio: expected about 5 / 6 and 0.1 / 1.1.
    assert strong.reliability.mean() == pytest.approx(5 / 6, abs=0.05)
    assert weak.reliability.mean() == pytest.approx(0.1 / 1.1, abs=0.08)


def test_odd_and_many_blocks_work():
    for num_blocks in (3, 5, 12):
        got = measure(repeat(GRADIENTS, num_blocks))
        np.testing.assert_allclose(got.reliability, 1, atol=1e-12)


def test_bad_sketches_are_refused():
    with pytest.raises(ValueError, match="blocks"):
        measure(np.ones((2, 2, 4)))
    with pytest.raises(ValueError, match="finite"):
        measure(np.full((2, 3, 4), np.nan))
