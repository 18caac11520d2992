"""Policy losses over the tokens that the policy wrote."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from aes_hdc.policy.logprobs import Tokens

# exp of a larger log-ratio says nothing but that the policies have nothing in common.
MAX_LOG_RATIO = 20.0
MAX_LOG_KL = 10.0


class Batch(NamedTuple):
    """One micro-batch for the learner.

    Attributes:
        tokens: the conversations; `loss_mask` 1 where the loss looks.
        advantages: [B, N] float32, of the action slots.
        behavior_logprobs: [B, N] float32, nats, of the policy that played.
        reference_logprobs: [B, N] float32, nats, of the frozen policy; read only where
            the KL coefficient is not 0.
    """

    tokens: Tokens
    advantages: Any
    behavior_logprobs: Any
    reference_logprobs: Any


@dataclass(frozen=True)
class LossSettings:
    """Named switches of the policy loss.

    Attributes:
        kind: "policy" is the clipped loss, "imitation" the negative
            log-likelihood, weighted by the advantages.
        clip_low: the ratio is clipped below at 1 - clip_low.
        clip_high: the ratio is clipped above at 1 + clip_high.
        dual_clip: for negative advantages the loss is at most dual_clip * |A|; 0 is
            off.
        kl: estimator of the KL to the reference, "k2" or "k3".
        kl_coef: its weight.
        entropy_coef: weight of the entropy bonus.
    """

    kind: Literal["policy", "imitation"] = "policy"
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float = 3.0
    kl: Literal["k2", "k3"] = "k3"
    kl_coef: float = 0.0
    entropy_coef: float = 0.0


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


def loss_sums(
    logprobs: jax.Array, entropy: jax.Array, batch: Batch, settings: LossSettings
) -> tuple[jax.Array, Sums]:
    """Sums the loss over action tokens; the caller divides once, over the batch.

    Args:
        logprobs: [B, N] float32, nats, under the policy being trained.
        entropy: [B, N] float32, nats.
        batch: the micro-batch.
        settings: the switches.

    Returns:
        The summed loss, and sums (`*_max`: maxima) of metrics over the same tokens.
    """
    mask = batch.tokens.loss_mask
    log_ratio = logprobs - batch.behavior_logprobs
    sums = {
        "tokens": mask.sum(),
        "entropy": (entropy * mask).sum(),
        "logprob_gap": (jnp.abs(log_ratio) * mask).sum(),
        "logprob_gap_max": jnp.max(jnp.abs(log_ratio) * mask),
    }
    if settings.kind == "imitation":
        loss = -(batch.advantages * logprobs * mask).sum()
        return loss, sums | {"loss": loss}
    terms, is_clipped = clipped_terms(log_ratio, batch.advantages, settings)
    sums["clip_fraction"] = (is_clipped * mask).sum()
    if settings.kl_coef:
        kl = kl_terms(logprobs, batch.reference_logprobs, settings.kl)
        sums["kl"] = (kl * mask).sum()
        terms = terms + settings.kl_coef * kl
    loss = ((terms - settings.entropy_coef * entropy) * mask).sum()
    return loss, sums | {"loss": loss}
