"""Each formula of the loss by hand and against a loop over tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aes_hdc.learner.losses import (
    Batch,
    LossSettings,
    clipped_terms,
    importance_weights,
    kl_terms,
    loss_sums,
    sequence_log_ratio,
    value_terms,
)
from aes_hdc.policy.logprobs import Scores, Tokens

DEFAULT = LossSettings()  # Clip 0.2 and 0.28, dual clip 3.


def terms(ratio, advantage, settings=DEFAULT):
    """One token's (term, clipped)."""
    found = clipped_terms(jnp.log(jnp.float32(ratio)), jnp.float32(advantage), settings)
    return float(found[0]), bool(found[1])


@pytest.mark.parametrize(
    ("ratio", "advantage", "term", "is_clipped"),
    [
        (1.0, 2.0, -2.0, False),
        (1.1, 1.0, -1.1, False),
        (1.5, 1.0, -1.28, True),  # The gain is capped at 1.28.
        (0.5, 1.0, -0.5, False),  # The loss of a good token is not.
        (0.5, -1.0, 0.8, True),  # -clip(0.5) A = 0.8: no more to be gained.
        (1.5, -1.0, 1.5, False),
        (9.0, -2.0, 6.0, True),  # Dual clip: at most 3 |A|.
        (9.0, 2.0, -2.56, True),  # The dual clip is for A < 0 only.
        (1.5, 0.0, 0.0, False),
    ],
)
def test_clipped_terms_by_hand(ratio, advantage, term, is_clipped):
    found, flag = terms(ratio, advantage)
    assert found == pytest.approx(term, abs=1e-5)  # exp(log r) in float32.
    assert flag == is_clipped


def test_dual_clip_of_zero_is_off():
    found, flag = terms(9.0, -2.0, LossSettings(dual_clip=0.0))
    assert found == pytest.approx(18.0, rel=1e-5)
    assert not flag


@pytest.mark.parametrize(
    ("delta", "k2", "k3"),
    [
        (0.0, 0.0, 0.0),
        (1.0, 0.5, np.e - 2),
        (-1.0, 0.5, np.exp(-1.0)),
        (50.0, 50.0, np.exp(10.0) - 11),  # Clamped to 10.
        (-50.0, 50.0, np.exp(-10.0) + 9),
    ],
)
def test_kl_terms_by_hand(delta, k2, k3):
    policy, reference = jnp.float32(-60.0), jnp.float32(-60.0 + delta)
    assert float(kl_terms(policy, reference, "k2")) == pytest.approx(k2, rel=1e-5)
    assert float(kl_terms(policy, reference, "k3")) == pytest.approx(k3, rel=1e-5)


def test_k3_is_exact_near_zero():
    # exp(d) - d - 1 in float32 is 0 or 1e-7 here; d^2 / 2 is 5e-9.
    found = float(kl_terms(jnp.float32(0.0), jnp.float32(1e-4), "k3"))
    assert found == pytest.approx(0.0, abs=1e-8)


def test_estimators_average_to_the_divergence():
    policy, reference = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    exact = (policy * np.log(policy / reference)).sum()
    k3 = kl_terms(jnp.log(policy), jnp.log(reference), "k3")
    assert float((policy * np.asarray(k3)).sum()) == pytest.approx(exact, rel=1e-5)


def sums_of(logprobs, entropy, batch, settings, values=None):
    """`loss_sums` of plain arrays."""
    values = jnp.zeros_like(logprobs) if values is None else values
    scores = Scores(jnp.asarray(logprobs), jnp.asarray(entropy), values, values[:, 0])
    return loss_sums(scores, batch, settings)


def make_batch(seed=0, rows=3, actions=5):
    """Random (log-probabilities, entropies, batch) with a ragged mask."""
    rng = np.random.default_rng(seed)
    shape = (rows, actions)
    mask = (np.arange(actions) < rng.integers(1, actions + 1, rows)[:, None]) * 1.0
    tokens = Tokens(None, None, loss_mask=mask.astype(np.float32))
    logprobs, behavior, reference = (
        -rng.exponential(1.0, shape).astype(np.float32) for _ in range(3)
    )
    advantages = rng.normal(size=shape).astype(np.float32)
    entropy = rng.uniform(0, 3, shape).astype(np.float32)
    old = behavior + rng.normal(0, 0.3, shape).astype(np.float32)
    values, returns = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    batch = Batch(tokens, advantages, behavior, old, reference, values, returns)
    return logprobs, entropy, batch


def loop(logprobs, entropy, batch, settings, values):
    """The loss token by token in float64, as the formulas read."""
    total, clips, kl_sum = 0.0, 0, 0.0
    for index in np.ndindex(logprobs.shape):
        if not batch.tokens.loss_mask[index]:
            continue
        new, old = float(logprobs[index]), float(batch.old_logprobs[index])
        advantage = float(batch.advantages[index])
        row = np.flatnonzero(batch.tokens.loss_mask[index[0]])
        share = 1 / len(row) if settings.by_row else 1.0
        if settings.kind == "imitation":
            total -= advantage * new * share
            continue
        log_ratio = new - old
        if settings.ratio == "sequence":
            differences = logprobs[index[0]] - batch.old_logprobs[index[0]]
            log_ratio = float(differences[row].astype(np.float64).mean())
        ratio = np.exp(np.clip(log_ratio, -20, 20))
        bounded = min(max(ratio, 1 - settings.clip_low), 1 + settings.clip_high)
        term = max(-ratio * advantage, -bounded * advantage)
        is_clipped = -bounded * advantage > -ratio * advantage
        if settings.dual_clip and advantage < 0:
            is_clipped |= term > -settings.dual_clip * advantage
            term = min(term, -settings.dual_clip * advantage)
        clips += is_clipped
        if settings.importance_cap:
            behavior = float(batch.behavior_logprobs[index])
            term *= min(np.exp(old - behavior), settings.importance_cap)
        if settings.kl_coef:
            delta = np.clip(float(batch.reference_logprobs[index]) - new, -10, 10)
            kl = delta**2 / 2 if settings.kl == "k2" else np.exp(delta) - delta - 1
            kl_sum += kl
            term += settings.kl_coef * kl
        if settings.value_coef:
            value, before = float(values[index]), float(batch.values[index])
            target, reach = float(batch.returns[index]), settings.value_clip or np.inf
            moved = before + min(max(value - before, -reach), reach)
            squares = (value - target) ** 2, (moved - target) ** 2
            term += settings.value_coef * 0.5 * max(squares)
        total += share * (term - settings.entropy_coef * float(entropy[index]))
    return total, clips, kl_sum


@pytest.mark.parametrize(
    "settings",
    [
        DEFAULT,
        LossSettings(dual_clip=0.0),
        LossSettings(clip_low=0.05, clip_high=0.5, entropy_coef=0.3),
        LossSettings(kl="k2", kl_coef=0.7),
        LossSettings(kl="k3", kl_coef=0.7, entropy_coef=0.1),
        LossSettings(kind="imitation"),
        LossSettings(ratio="sequence"),
        LossSettings(by_row=True, entropy_coef=0.1),
        LossSettings(kind="imitation", by_row=True),
        LossSettings(importance_cap=1.1, kl_coef=0.2),
        LossSettings(value_coef=0.5, value_clip=0.2),
        LossSettings(value_coef=0.5, value_clip=0.0),
    ],
    ids=[
        "default",
        "no-dual",
        "entropy",
        "k2",
        "k3",
        "imitation",
        "sequence",
        "by-row",
        "imitation-by-row",
        "importance",
        "value",
        "value-free",
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_sums_equal_a_loop_over_tokens(settings, seed):
    logprobs, entropy, batch = make_batch(seed)
    values = batch.values + batch.returns  # Some move less than 0.2 and most more.
    loss, sums = sums_of(logprobs, entropy, batch, settings, values)
    total, clips, kl = loop(logprobs, entropy, batch, settings, values)
    assert float(loss) == pytest.approx(total, rel=1e-5)  # Float32 sums of 15 terms.
    assert float(sums["loss"]) == float(loss)
    mask = batch.tokens.loss_mask
    assert float(sums["tokens"]) == mask.sum()
    assert float(sums["entropy"]) == pytest.approx((entropy * mask).sum(), rel=1e-5)
    gap = np.abs(logprobs - batch.behavior_logprobs) * mask
    assert float(sums["logprob_gap"]) == pytest.approx(gap.sum(), rel=1e-5)
    assert float(sums["logprob_gap_max"]) == pytest.approx(gap.max(), rel=1e-6)
    by_row = sums["logprob_gap_by_row"], sums["logprob_gap_max_by_row"]
    np.testing.assert_allclose(by_row[0], gap.sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(by_row[1], gap.max(axis=1), rtol=1e-6)
    if settings.kind == "policy":
        assert float(sums["clip_fraction"]) == clips
    if settings.kl_coef:
        assert float(sums["kl"]) == pytest.approx(kl, rel=1e-5)


@pytest.mark.parametrize("log_ratio", [-50.0, -20.0, 20.0, 50.0])
@pytest.mark.parametrize("advantage", [-1.0, 1.0])
@pytest.mark.parametrize("kl", ["k2", "k3"])
def test_log_ratios_up_to_fifty_stay_finite(log_ratio, advantage, kl):
    settings = LossSettings(kl=kl, kl_coef=0.1, dual_clip=0.0)
    tokens = Tokens(None, None, loss_mask=np.ones((1, 1), np.float32))
    full = np.full((1, 1), 1.0, np.float32)
    batch = Batch(tokens, advantage * full, *[-60 * full] * 5)

    def loss(logprobs):
        return sums_of(logprobs, jnp.zeros((1, 1)), batch, settings)[0]

    value, slope = jax.value_and_grad(loss)(jnp.asarray((log_ratio - 60) * full))
    assert np.isfinite(float(value))
    assert np.isfinite(np.asarray(slope)).all()


def test_nan_is_not_hidden():
    logprobs, entropy, batch = make_batch()
    logprobs[0, 0] = np.nan
    loss, _ = sums_of(logprobs, entropy, batch, DEFAULT)
    assert np.isnan(float(loss))


def test_masked_tokens_have_exactly_no_gradient():
    logprobs, entropy, batch = make_batch()
    batch = batch._replace(advantages=batch.advantages * 1e6)
    settings = LossSettings(kl_coef=1.0, entropy_coef=1.0)
    slopes = jax.grad(lambda *x: sums_of(*x, batch, settings)[0], argnums=(0, 1))(
        jnp.asarray(logprobs), jnp.asarray(entropy)
    )
    hidden = batch.tokens.loss_mask == 0
    assert hidden.any()
    for slope in slopes:
        assert (np.asarray(slope)[hidden] == 0).all()


def test_gradient_at_ratio_one_is_minus_the_advantage():
    logprobs, entropy, batch = make_batch()
    batch = batch._replace(old_logprobs=logprobs)
    slope = jax.grad(lambda x: sums_of(x, entropy, batch, DEFAULT)[0])(
        jnp.asarray(logprobs)
    )
    expected = -batch.advantages * batch.tokens.loss_mask
    np.testing.assert_allclose(slope, expected, rtol=1e-6)


def test_reward_of_seven_tenths_arrives_as_seven_tenths():
    tokens = Tokens(None, None, loss_mask=np.ones((1, 1), np.float32))
    value = np.full((1, 1), 0.7, np.float32)
    batch = Batch(tokens, value, *[np.zeros_like(value)] * 5)
    loss, _ = sums_of(jnp.zeros((1, 1)), jnp.zeros((1, 1)), batch, DEFAULT)
    assert float(loss) == -np.float32(0.7)


def test_sequence_ratio_by_hand():
    # Differences .3, -.1 and, masked, 9: their mean is .1 in both places.
    new = jnp.array([[-1.0, -2.0, -3.0]])
    old = jnp.array([[-1.3, -1.9, -12.0]])
    mask = jnp.array([[1.0, 1.0, 0.0]])

    def total(new):
        return (jnp.exp(sequence_log_ratio(new, old, mask)) * mask).sum()

    found = sequence_log_ratio(new, old, mask)
    np.testing.assert_allclose(np.asarray(found)[0, :2], [0.1, 0.1], atol=1e-6)
    # Each token's gradient is its own, s * 1, as if the others stood still.
    slope = np.asarray(jax.grad(total)(new))[0]
    np.testing.assert_allclose(slope, [np.exp(0.1), np.exp(0.1), 0.0], rtol=1e-5)


@pytest.mark.parametrize(
    ("old", "behavior", "weight"),
    [(-1.0, -1.0, 1.0), (-1.0, -2.0, 2.0), (-2.0, -1.0, np.exp(-1)), (0.0, -90.0, 2.0)],
)
def test_importance_weights_by_hand(old, behavior, weight):
    found = importance_weights(jnp.float32(old), jnp.float32(behavior), 2.0)
    assert float(found) == pytest.approx(weight, rel=1e-6)


def test_rows_weigh_alike_by_row_and_tokens_alike_without():
    # A row of one token and a row of four, every term -1.
    mask = np.array([[1, 0, 0, 0], [1, 1, 1, 1]], np.float32)
    zeros, ones = np.zeros((2, 4), np.float32), np.ones((2, 4), np.float32)
    batch = Batch(Tokens(None, None, loss_mask=mask), ones, *[zeros] * 5)
    for by_row, expected in ((False, -5.0), (True, -2.0)):
        settings = LossSettings(by_row=by_row)
        loss, _ = sums_of(zeros, zeros, batch, settings)
        assert float(loss) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "old", "target", "clip", "term"),
    [
        (0.5, 0.4, 1.0, 0.2, 0.125),  # Within reach: (0.5 - 1)^2 / 2.
        (1.0, 0.0, 1.0, 0.2, 0.32),  # Clipped to 0.2, still 0.8 away.
        (1.0, 0.0, 1.0, 0.0, 0.0),  # Off.
        (-1.0, 0.0, 1.0, 0.2, 2.0),  # The worse of the two: the free one.
    ],
)
def test_value_terms_by_hand(value, old, target, clip, term):
    found = value_terms(*map(jnp.float32, (value, old, target)), clip)
    assert float(found) == pytest.approx(term, abs=1e-6)
