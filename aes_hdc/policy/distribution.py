"""The distribution over the next token, the same for the sampler and the learner."""

import dataclasses
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

# Finite, so that a masked row stays a number; exp of it is exactly 0 in float32.
MASKED_LOGIT = -1e30


@dataclass(frozen=True)
class TokenDistribution:
    """Turns logits into log-probabilities of softmax(logits / temperature).

    Tokens that no reply may hold (image placeholders, padding rows of the vocabulary)
    get probability 0 here and thus in sampler and learner alike. A sampler may leave
    out improbable tokens besides; what remains is made to add up to 1, in the order
    top-k, top-p, min-p, each applied to what the one before has left. The most probable
    token always remains.

    Attributes:
        forbidden: ids of the tokens that no reply may hold.
        temperature: > 0.
        top_k: keeps that many tokens, and those that tie with the last; 0 keeps all.
        top_p: keeps the most probable tokens until their sum reaches it, in (0, 1]
            (nucleus sampling, Holtzman et al., 2020).
        min_p: keeps tokens at least that share as probable as the most probable one, in
            [0, 1) (Nguyen et al., 2024).
    """

    forbidden: tuple[int, ...] = ()
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def full(self) -> "TokenDistribution":
        """The same without leaving improbable tokens out: what is learnt.

        A learner that left them out as well would give a sampled token probability 0 as
        soon as its rank had changed.
        """
        return dataclasses.replace(self, top_k=0, top_p=1.0, min_p=0.0)

    def log_softmax(self, logits: jax.Array) -> jax.Array:
        """Returns [..., V] float32 log-probabilities, nats, for [..., V] logits.

        Tokens that are left out get a finite number below -1e29.
        """
        logits = logits.astype(jnp.float32) / self.temperature
        if self.forbidden:
            # A mask and not a scatter: it needs no vocabulary in one place.
            may_be = np.ones(logits.shape[-1], bool)
            may_be[list(self.forbidden)] = False
            logits = jnp.where(may_be, logits, MASKED_LOGIT)
        if self.top_k:
            k = min(self.top_k, logits.shape[-1])
            least = jax.lax.top_k(logits, k)[0][..., -1:]
            logits = jnp.where(logits >= least, logits, MASKED_LOGIT)
        if self.top_p < 1:
            ranked = jnp.flip(jnp.sort(logits, axis=-1), -1)
            probability = jax.nn.softmax(ranked, axis=-1)
            before = jnp.cumsum(probability, axis=-1) - probability
            # The last token before which less than top_p has gathered.
            least = jnp.where(before < self.top_p, ranked, jnp.inf).min(-1)
            logits = jnp.where(logits >= least[..., None], logits, MASKED_LOGIT)
        if self.min_p:
            top = logits.max(axis=-1, keepdims=True)
            floor = top + jnp.log(self.min_p)
            logits = jnp.where(logits >= floor, logits, MASKED_LOGIT)
        return jax.nn.log_softmax(logits, axis=-1)
