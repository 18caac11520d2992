"""Scores of replies, one differentiable forward over whole conversations."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from aes_hdc.models.qwen3_vl.model import Qwen3VL, encode_shown
from aes_hdc.models.qwen3_vl.text import Cache, init_cache
from aes_hdc.policy.distribution import TokenDistribution

Params = Any


class Segment(NamedTuple):
    """Pieces of conversations as the model reads them, B rows right-padded to T slots.

    Attributes:
        ids: [B, T] int32.
        positions: [3, B, T] int32, M-RoPE.
        order: [B, T] int32, the token's place in its conversation, -1 for padding.
        vision_index: [B, T] int32, row of the flattened vision tokens, -1 for text.
        patches: [M, P, 3 * patch**2] uint8, all pictures of the segment.
        grids: [M, 2] int32, patches per side; (0, 0) for padding.
    """

    ids: Any
    positions: Any
    order: Any
    vision_index: Any
    patches: Any
    grids: Any


class Tokens(NamedTuple):
    """Conversations to be scored; those that begin alike may share their beginning.

    Attributes:
        segment: the conversations, or what follows their openings.
        action_slots: [B, N] int32, slots of tokens that the policy wrote, never the
            first of a row; 0 for padding.
        loss_mask: [B, N] float32, 1 where `action_slots` holds such a token.
        openings: first messages but for their last token, so that all that predicts a
            reply lies in `segment`; None where that holds whole conversations.
        opening_row: [B] int32, the row of `openings` that a conversation continues.
    """

    segment: Segment
    action_slots: Any
    loss_mask: Any
    openings: Segment | None = None
    opening_row: Any = None


class Scores(NamedTuple):
    """What the learner computes of the policy's own tokens.

    Attributes:
        logprobs: [B, N] float32, nats; 0 where masked.
        entropy: [B, N] float32, nats; 0 where masked.
        values: [B, N] float32, of the state before each token; 0 without a value head.
        final_value: [B] float32, of the state after the whole row; 0 without the head.
    """

    logprobs: jax.Array
    entropy: jax.Array
    values: jax.Array
    final_value: jax.Array


def token_scores(
    model: Qwen3VL,
    params: Params,
    tokens: Tokens,
    distribution: TokenDistribution,
    *,
    value_flow: Any = 1.0,
    chunk: int = 4096,
) -> Scores:
    """Scores the policy's own tokens; logits exist for those slots only.

    The vocabulary is applied `chunk` slots at a time under remat, so that [B, T, V]
    never exists.

    Args:
        model: the shared core.
        params: its parameters; "value" among them is a head, see `init_value_head`.
        tokens: the conversations.
        distribution: the one that is learnt.
        value_flow: scalar, share of the value's gradient that reaches the core.
        chunk: slots per block of logits.
    """
    apply: Callable[..., Any] = model.apply
    variables = {"params": {k: v for k, v in params.items() if k != "value"}}
    states = _hidden(model, variables, tokens)
    # The token in slot j is predicted by the hidden state in slot j - 1.
    before = jnp.maximum(tokens.action_slots - 1, 0)
    hidden = jnp.take_along_axis(states, before[..., None], axis=1)
    ids, order = tokens.segment.ids, tokens.segment.order
    targets = jnp.take_along_axis(ids, tokens.action_slots, axis=1)

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
    mask = tokens.loss_mask
    values, final = jnp.zeros_like(mask), jnp.zeros_like(mask[:, 0])
    if "value" in params:
        last = jnp.argmax(order, axis=1)[:, None, None]
        final = _value(params["value"], jnp.take_along_axis(states, last, 1), 1.0)[:, 0]
        values = _value(params["value"], hidden, value_flow)
    return Scores(chosen * mask, entropy * mask, values * mask, final)


def init_value_head(hidden_size: int) -> Params:
    """Returns a value head of zeros: v = kernel . h + bias, float32.

    Args:
        hidden_size: D, width of the core's final hidden state.
    """
    return {
        "kernel": jnp.zeros((hidden_size,), jnp.float32),
        "bias": jnp.zeros((), jnp.float32),
    }


def _value(head: Params, hidden: jax.Array, flow: Any) -> jax.Array:
    """Maps hidden states [..., D] to values [...], float32."""
    hidden = hidden.astype(jnp.float32)
    still = jax.lax.stop_gradient(hidden)
    return (still + flow * (hidden - still)) @ head["kernel"] + head["bias"]


def _hidden(model: Qwen3VL, variables: Params, tokens: Tokens) -> jax.Array:
    """Final hidden states of the segment, [B, T, D].

    An opening is read once; its keys are handed to every row that continues it, and
    their gradients add up.
    """
    if tokens.openings is None:
        return _read(model, variables, tokens.segment, None, 0)[0]
    rows, slots = tokens.openings.ids.shape
    cache = init_cache(model.config, rows, slots, model.dtype)
    _, cache = _read(model, variables, tokens.openings, cache, 0)
    row, room = tokens.opening_row, tokens.segment.ids.shape[1]
    after = ((0, 0), (0, 0), (0, 0), (0, room), (0, 0))
    k, v = (jnp.pad(leaf[:, row], after) for leaf in (cache.k, cache.v))
    order = jnp.pad(cache.order[row], ((0, 0), (0, room)), constant_values=-1)
    return _read(model, variables, tokens.segment, Cache(k, v, order), slots)[0]


def _read(
    model: Qwen3VL, variables: Params, segment: Segment, cache: Cache | None, slot: int
) -> tuple[jax.Array, Any]:
    """One forward over a segment, behind what the cache holds."""
    apply: Callable[..., Any] = model.apply
    vision = index = None
    if segment.patches.shape[0]:
        index = segment.vision_index
        vision = encode_shown(model, variables, segment.patches, segment.grids)
    return apply(
        variables,
        segment.ids,
        segment.positions,
        segment.order,
        vision,
        index,
        cache,
        slot,
    )
