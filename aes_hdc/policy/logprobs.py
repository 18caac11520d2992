"""Log-probabilities of replies, one differentiable forward over whole conversations."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from aes_hdc.models.qwen3_vl.model import Qwen3VL
from aes_hdc.policy.distribution import TokenDistribution

Params = Any


class Tokens(NamedTuple):
    """Conversations as the model reads them, B rows right-padded to T slots.

    Attributes:
        ids: [B, T] int32.
        positions: [3, B, T] int32, M-RoPE.
        order: [B, T] int32, the token's place in its row, -1 for padding.
        vision_index: [B, T] int32, row of the flattened vision tokens, -1 for text.
        patches: [M, P, 3 * patch**2] uint8, all pictures of the batch.
        grids: [M, 2] int32, patches per side; (0, 0) for padding.
        action_slots: [B, N] int32, slots of tokens that the policy wrote; 0 for
            padding.
        loss_mask: [B, N] float32, 1 where `action_slots` holds such a token.
    """

    ids: Any
    positions: Any
    order: Any
    vision_index: Any
    patches: Any
    grids: Any
    action_slots: Any
    loss_mask: Any


def token_logprobs(
    model: Qwen3VL,
    params: Params,
    tokens: Tokens,
    distribution: TokenDistribution,
    *,
    chunk: int = 4096,
) -> tuple[jax.Array, jax.Array]:
    """Scores the policy's own tokens; logits exist for those slots only.

    The vocabulary is applied `chunk` slots at a time under remat, so that [B, T, V]
    never exists.

    Args:
        model: the shared core.
        params: its parameters.
        tokens: the conversations.
        distribution: the one that was sampled.
        chunk: slots per block of logits.

    Returns:
        Log-probabilities and entropies, each [B, N] float32, nats; 0 where masked.
    """
    apply: Callable[..., Any] = model.apply
    variables = {"params": params}
    vision = apply(
        variables, tokens.patches, tokens.grids, method=Qwen3VL.encode_images
    )
    hidden, _ = apply(
        variables,
        tokens.ids,
        tokens.positions,
        tokens.order,
        vision,
        tokens.vision_index,
        None,
        0,
    )
    # The token in slot j is predicted by the hidden state in slot j - 1.
    before = jnp.maximum(tokens.action_slots - 1, 0)
    hidden = jnp.take_along_axis(hidden, before[..., None], axis=1)
    targets = jnp.take_along_axis(tokens.ids, tokens.action_slots, axis=1)

    def score(args):
        hidden, target = args
        logits = apply(variables, hidden, method=Qwen3VL.logits)
        logprobs = distribution.log_softmax(logits)
        chosen = jnp.take_along_axis(logprobs, target[:, None], axis=-1)[:, 0]
        return chosen, -jnp.sum(jnp.exp(logprobs) * logprobs, axis=-1)

    rows, actions = targets.shape
    flat = hidden.reshape(rows * actions, -1), targets.reshape(-1)
    if rows * actions > chunk:
        pad = -(rows * actions) % chunk
        flat = (jnp.pad(flat[0], ((0, pad), (0, 0))), jnp.pad(flat[1], (0, pad)))
        blocks = (
            flat[0].reshape(-1, chunk, flat[0].shape[-1]),
            flat[1].reshape(-1, chunk),
        )
        chosen, entropy = jax.lax.map(jax.checkpoint(score), blocks)
    else:
        chosen, entropy = score(flat)
    shape, size = (rows, actions), rows * actions
    chosen, entropy = (x.reshape(-1)[:size].reshape(shape) for x in (chosen, entropy))
    return chosen * tokens.loss_mask, entropy * tokens.loss_mask
