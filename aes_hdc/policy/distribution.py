"""The distribution over the next token, the same for the sampler and the learner."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

# Finite, so that a masked row stays a number; exp of it is exactly 0 in float32.
MASKED_LOGIT = -1e30


@dataclass(frozen=True)
class TokenDistribution:
    """Turns logits into log-probabilities of softmax(logits / temperature).

    Tokens that no reply may hold (image placeholders, padding rows of the vocabulary)
    get probability 0 here and thus in sampler and learner alike.

    Attributes:
        forbidden: ids of those tokens.
        temperature: > 0.
    """

    forbidden: tuple[int, ...] = ()
    temperature: float = 1.0

    def log_softmax(self, logits: jax.Array) -> jax.Array:
        """Returns [..., V] float32 log-probabilities, nats, for [..., V] logits."""
        logits = logits.astype(jnp.float32) / self.temperature
        if self.forbidden:
            logits = logits.at[..., jnp.asarray(self.forbidden)].set(MASKED_LOGIT)
        return jax.nn.log_softmax(logits, axis=-1)
