"""Policy losses over the tokens that the policy wrote."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aes_hdc.policy.logprobs import Scores, Tokens

# exp of a larger log-ratio says nothing but that the policies have nothing in common.
MAX_LOG_RATIO = 20.0
MAX_LOG_KL = 10.0


class Batch(NamedTuple):
    """One micro-batch for the learner.

    Attributes:
        tokens: the conversations; `loss_mask` 1 where the loss looks.
        advantages: [B, N] float32, of the action slots.
        behavior_logprobs: [B, N] float32, nats, as the sampler stored them.
        old_logprobs: [B, N] float32, nats, of the policy that played as the learner
            computes them, or the stored ones.
        reference_logprobs: [B, N] float32, nats, of the frozen policy; read only where
            the KL coefficient is not 0.
        values: [B, N] float32, of the states when they were played; read, like the
            returns, only where the value coefficient is not 0.
        returns: [B, N] float32, what the values should have been.
        value_flow: scalar, share of the value's gradient that reaches the core.
    """

    tokens: Tokens
    advantages: Any
    behavior_logprobs: Any
    old_logprobs: Any
    reference_logprobs: Any
    values: Any
    returns: Any
    value_flow: Any = np.float32(1.0)


@dataclass(frozen=True)
class LossSettings:
    """Named switches of the policy loss.

    Attributes:
        kind: "policy" is the clipped loss, "imitation" the negative
            log-likelihood, weighted by the advantages.
        ratio: "token" has one ratio a token, "sequence" the geometric mean over the
            row, GSPO's.
        by_row: divides each row's loss by its number of tokens, so that the mean over
            rows is the mean of their means.
        clip_low: the ratio is clipped below at 1 - clip_low.
        clip_high: the ratio is clipped above at 1 + clip_high.
        dual_clip: for negative advantages the loss is at most dual_clip * |A|; 0 is
            off.
        importance_cap: the loss of a token is weighted by min(old / behavior, cap),
            which corrects a sampler that rounds otherwise than the learner; 0 is off.
        kl: estimator of the KL to the reference, "k2" or "k3".
        kl_coef: its weight.
        entropy_coef: weight of the entropy bonus.
        value_coef: weight of the value loss; 0 where nothing values states.
        value_clip: a value counts as moved by at most this; 0 is off.
    """

    kind: Literal["policy", "imitation"] = "policy"
    ratio: Literal["token", "sequence"] = "token"
    by_row: bool = False
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float = 3.0
    importance_cap: float = 0.0
    kl: Literal["k2", "k3"] = "k3"
    kl_coef: float = 0.0
    entropy_coef: float = 0.0
    value_coef: float = 0.0
    value_clip: float = 0.2


Sums = dict[str, jax.Array]


def clipped_terms(
    log_ratio: jax.Array, advantages: jax.Array, settings: LossSettings
) -> tuple[jax.Array, jax.Array]:
    """Computes PPO's pessimistic bound max(-r A, -clip(r) A) per token, with dual clip.

    Schulman et al., 2017; the asymmetric range is DAPO's (Yu et al., 2025), the dual
    clip -c A for A < 0 is Ye et al.'s, 2020.

    Args:
        log_ratio: [...] float32, nats.
        advantages: [...] float32.
        settings: the clip range.

    Returns:
        The terms and whether each was clipped, both in the shape of the arguments.
    """
    ratio = jnp.exp(jnp.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO))
    clipped = jnp.clip(ratio, 1 - settings.clip_low, 1 + settings.clip_high)
    free, bound = -ratio * advantages, -clipped * advantages
    terms = jnp.maximum(free, bound)
    is_clipped = bound > free
    if settings.dual_clip:
        limit = -settings.dual_clip * advantages
        is_clipped |= (advantages < 0) & (terms > limit)
        terms = jnp.where(advantages < 0, jnp.minimum(terms, limit), terms)
    return terms, is_clipped


def sequence_log_ratio(
    logprobs: jax.Array, old_logprobs: jax.Array, mask: jax.Array
) -> jax.Array:
    """Computes the log-ratio of a whole row, the same for each of its tokens.

    GSPO, Zheng et al., 2025: log s = mean over the row's tokens of l - l_old. Its value
    is log s everywhere; its gradient is that of the token's own l, so that the sum over
    a row is the gradient of log s times the number of tokens ("GSPO-token").

    Args:
        logprobs: [B, N] float32, nats.
        old_logprobs: [B, N] float32, nats.
        mask: [B, N] float32, 1 at the row's tokens.

    Returns:
        [B, N] float32.
    """
    count = jnp.maximum(mask.sum(axis=1, keepdims=True), 1.0)
    mean = ((logprobs - old_logprobs) * mask).sum(axis=1, keepdims=True) / count
    return jax.lax.stop_gradient(mean - logprobs) + logprobs


def importance_weights(
    old_logprobs: jax.Array, behavior_logprobs: jax.Array, cap: float
) -> jax.Array:
    """Computes the truncated importance weight min(old / behavior, cap) per token.

    Espeholt et al., 2018, for the gap between a sampler and its learner: Yao et al.,
    "Your efficient RL framework secretly brings you off-policy RL training", 2025.

    Args:
        old_logprobs: [...] float32, nats, as the learner computes them.
        behavior_logprobs: [...] float32, nats, as the sampler stored them.
        cap: C, > 0.

    Returns:
        [...] float32 in [0, cap].
    """
    gap = jnp.clip(old_logprobs - behavior_logprobs, -MAX_LOG_RATIO, MAX_LOG_RATIO)
    return jnp.minimum(jnp.exp(gap), cap)


def kl_terms(
    logprobs: jax.Array, reference_logprobs: jax.Array, estimator: str
) -> jax.Array:
    """Estimates KL(policy || reference) per token from sampled tokens.

    With d = log reference - log policy, clamped to +-10: k3 = exp(d) - d - 1 is
    unbiased and positive; k2 = d^2 / 2 has, on-policy, the gradient of the reverse KL.

    Args:
        logprobs: [...] float32, nats, under the policy being trained.
        reference_logprobs: [...] float32, nats.
        estimator: "k2" or "k3".

    Returns:
        [...] float32.
    """
    delta = jnp.clip(reference_logprobs - logprobs, -MAX_LOG_KL, MAX_LOG_KL)
    return delta**2 / 2 if estimator == "k2" else jnp.expm1(delta) - delta


def value_terms(
    values: jax.Array, old_values: jax.Array, returns: jax.Array, clip: float
) -> jax.Array:
    """Computes PPO's value loss per token, max of the free and the clipped square.

    0.5 max((V - R)^2, (V_old + clip(V - V_old, +-c) - R)^2), so that one batch of
    returns cannot move a value far. Schulman et al., 2017, and their code.

    Args:
        values: [...] float32.
        old_values: [...] float32, when the states were played.
        returns: [...] float32.
        clip: c, in the unit of the returns; 0 is off.

    Returns:
        [...] float32.
    """
    loss = jnp.square(values - returns)
    if clip:
        moved = old_values + jnp.clip(values - old_values, -clip, clip)
        loss = jnp.maximum(loss, jnp.square(moved - returns))
    return 0.5 * loss


def loss_sums(
    scores: Scores, batch: Batch, settings: LossSettings
) -> tuple[jax.Array, Sums]:
    """Sums the loss over action tokens; the caller divides once, over the batch.

    Args:
        scores: of the batch, under the policy being trained.
        batch: the micro-batch.
        settings: the switches.

    Returns:
        The summed loss, and sums (`*_max`: maxima, `*_by_row`: [B] per row) of metrics
        over the same tokens.
    """
    mask = batch.tokens.loss_mask
    logprobs, entropy = scores.logprobs, scores.entropy
    gap = jnp.abs(logprobs - batch.behavior_logprobs) * mask
    sums = {
        "tokens": mask.sum(),
        "entropy": (entropy * mask).sum(),
        "logprob_gap": gap.sum(),
        "logprob_gap_max": gap.max(),
        "logprob_gap_by_row": gap.sum(axis=1),
        "logprob_gap_max_by_row": gap.max(axis=1),
    }
    weights = mask
    if settings.by_row:
        weights = mask / jnp.maximum(mask.sum(axis=1, keepdims=True), 1.0)
    if settings.kind == "imitation":
        loss = -(batch.advantages * logprobs * weights).sum()
        return loss, sums | {"loss": loss}
    if settings.ratio == "sequence":
        log_ratio = sequence_log_ratio(logprobs, batch.old_logprobs, mask)
    else:
        log_ratio = logprobs - batch.old_logprobs
    terms, is_clipped = clipped_terms(log_ratio, batch.advantages, settings)
    sums["clip_fraction"] = (is_clipped * mask).sum()
    moved = kl_terms(logprobs, batch.old_logprobs, "k3")
    sums["approx_kl"] = (moved * mask).sum()
    if settings.importance_cap:
        correction = importance_weights(
            batch.old_logprobs, batch.behavior_logprobs, settings.importance_cap
        )
        sums["importance"] = (correction * mask).sum()
        terms = terms * correction
    if settings.kl_coef:
        kl = kl_terms(logprobs, batch.reference_logprobs, settings.kl)
        sums["kl"] = (kl * mask).sum()
        terms = terms + settings.kl_coef * kl
    if settings.value_coef:
        squares = value_terms(
            scores.values, batch.values, batch.returns, settings.value_clip
        )
        sums["value_loss"] = (squares * mask).sum()
        terms = terms + settings.value_coef * squares
    loss = ((terms - settings.entropy_coef * entropy) * weights).sum()
    return loss, sums | {"loss": loss}
