"""One turn of many conversations in one program: prefill, decode, keep the cache.

Conversations live in a pool of cache rows, [L, R, K, T, d]. A call picks any `b` of
them, so the caller can group conversations by the length of their next message and no
finished one holds a batch. New keys are written beside the rows at slots that are equal
for the whole batch (a scalar `dynamic_update_slice`, never a scatter per token) and
moved behind each row's own tokens once, at the end of the turn: rows have no holes.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aes_hdc.models.qwen3_vl.model import Cache, Qwen3VL
from aes_hdc.policy.distribution import TokenDistribution

Params = Any


class Pool(NamedTuple):
    """Keys and values of every open conversation.

    Attributes:
        k: [L, R + 1, K, T, d]; the last row is a scratch row for padding.
        v: like `k`.
    """

    k: jax.Array
    v: jax.Array


class Chunk(NamedTuple):
    """The next message of `b` conversations, right-padded to O tokens.

    Attributes:
        ids: [b, O] int32.
        positions: [3, b, O] int32, M-RoPE.
        vision_index: [b, O] int32, row of the flattened vision tokens, -1 for text.
        patches: [b, P, 3 * patch**2] uint8, at most one picture a message.
        grids: [b, 2] int32, patches per side; (0, 0) without a picture.
        rows: [b] int32, row in the pool; R for padding.
        cached: [b] int32, tokens of the conversation already in the pool.
        length: [b] int32, tokens of this message; 0 for padding.
        next_position: [b] int32, M-RoPE position of the first sampled token.
        keys: [b, 2] uint32, key data of the turn, a function of the conversation alone.
    """

    ids: Any
    positions: Any
    vision_index: Any
    patches: Any
    grids: Any
    rows: Any
    cached: Any
    length: Any
    next_position: Any
    keys: Any


class Sampled(NamedTuple):
    """Replies of one turn.

    Attributes:
        ids: [b, A] int32.
        logprobs: [b, A] float32, nats, under the distribution that was sampled.
        length: [b] int32, sampled tokens, the end token included.
        is_cut: [b] bool, whether A tokens passed without an end token.
    """

    ids: jax.Array
    logprobs: jax.Array
    length: jax.Array
    is_cut: jax.Array


def init_pool(model: Qwen3VL, rows: int, slots: int) -> Pool:
    """Returns an empty pool for `rows` conversations of at most `slots` tokens."""
    text = model.config.text
    shape = (
        text.num_hidden_layers,
        rows + 1,
        text.num_key_value_heads,
        slots,
        text.head_dim,
    )
    return Pool(*(jax.device_put(np.zeros(shape, model.dtype)) for _ in range(2)))


@functools.cache
def make_turn(
    model: Qwen3VL,
    distribution: TokenDistribution,
    *,
    max_new_tokens: int,
    end_ids: tuple[int, ...],
    greedy: bool = False,
) -> Callable[[Params, Pool, Chunk], tuple[Pool, Sampled]]:
    """Returns jitted turn(params, pool, chunk); it donates the pool.

    Equal arguments give the same function, so stages share what was compiled.

    Args:
        model: the shared core.
        distribution: what is sampled from.
        max_new_tokens: A, tokens of the longest reply.
        end_ids: tokens that end a reply; they are kept and trained.
        greedy: takes the most probable token instead of sampling.
    """
    apply: Callable[..., Any] = model.apply

    def pick(
        variables: Params, hidden: jax.Array, keys: jax.Array, index: jax.Array | int
    ) -> tuple[jax.Array, jax.Array]:
        logits = apply(variables, hidden, method=Qwen3VL.logits)
        logprobs = distribution.log_softmax(logits)
        if greedy:
            token = jnp.argmax(logprobs, axis=-1)
        else:
            folded = jax.vmap(lambda key: jax.random.fold_in(key, index))(keys)
            token = jax.vmap(jax.random.categorical)(folded, logprobs)
        chosen = jnp.take_along_axis(logprobs, token[:, None], axis=-1)[:, 0]
        return token.astype(jnp.int32), chosen

    def turn(params: Params, pool: Pool, chunk: Chunk) -> tuple[Pool, Sampled]:
        variables = {"params": params}
        batch, width = chunk.ids.shape
        slots = pool.k.shape[3]
        cache = _open(pool, chunk, extra=width + max_new_tokens)
        vision = apply(
            variables, chunk.patches, chunk.grids, method=Qwen3VL.encode_images
        )
        steps = jnp.arange(width)[None]
        order = jnp.where(
            steps < chunk.length[:, None], chunk.cached[:, None] + steps, -1
        )
        hidden, cache = apply(
            variables,
            chunk.ids,
            chunk.positions,
            order,
            vision,
            chunk.vision_index,
            cache,
            slots,
        )
        last = jnp.maximum(chunk.length - 1, 0)[:, None, None]
        hidden = jnp.take_along_axis(hidden, last, axis=1)[:, 0]
        keys = jax.random.wrap_key_data(chunk.keys)
        token, logprob = pick(variables, hidden, keys, 0)
        ends = jnp.asarray(end_ids, jnp.int32)
        live = chunk.length > 0
        out = Sampled(
            jnp.zeros((batch, max_new_tokens), jnp.int32).at[:, 0].set(token),
            jnp.zeros((batch, max_new_tokens), jnp.float32).at[:, 0].set(logprob),
            live.astype(jnp.int32),
            live & ~jnp.isin(token, ends),
        )

        def unfinished(carry):
            index, _, out = carry
            return (index + 1 < max_new_tokens) & jnp.any(out.is_cut)

        def decode(carry):
            index, cache, out = carry
            token = jax.lax.dynamic_index_in_dim(out.ids, index, 1)
            position = jnp.broadcast_to(
                (chunk.next_position + index)[None, :, None], (3, batch, 1)
            )
            place = (chunk.cached + chunk.length + index)[:, None]
            order = jnp.where(out.is_cut[:, None], place, -1)
            hidden, cache = apply(
                variables,
                token,
                position,
                order,
                None,
                None,
                cache,
                slots + width + index,
            )
            index = index + 1
            token, logprob = pick(variables, hidden[:, 0], keys, index)
            token = jnp.where(out.is_cut, token, 0)
            return (
                index,
                cache,
                Sampled(
                    jax.lax.dynamic_update_index_in_dim(out.ids, token, index, 1),
                    jax.lax.dynamic_update_index_in_dim(
                        out.logprobs, jnp.where(out.is_cut, logprob, 0.0), index, 1
                    ),
                    out.length + out.is_cut,
                    out.is_cut & ~jnp.isin(token, ends),
                ),
            )

        _, cache, out = jax.lax.while_loop(unfinished, decode, (0, cache, out))
        return _close(pool, cache, chunk), out

    return jax.jit(turn, donate_argnums=1)


def _open(pool: Pool, chunk: Chunk, extra: int) -> Cache:
    """Copies the chunk's rows out of the pool, with `extra` empty slots behind them."""
    slots = pool.k.shape[3]
    places = jnp.arange(slots + extra)[None]
    order = jnp.where(places < chunk.cached[:, None], places, -1)
    widths = ((0, 0), (0, 0), (0, 0), (0, extra), (0, 0))
    k, v = (jnp.pad(leaf[:, chunk.rows], widths) for leaf in pool)
    return Cache(k, v, order)


def _close(pool: Pool, cache: Cache, chunk: Chunk) -> Pool:
    """Moves the turn's tokens behind each row's own and writes the rows back.

    The last sampled token was never fed, so it is not there yet: it opens the next
    chunk.
    """
    slots, width = pool.k.shape[3], chunk.ids.shape[1]
    place = jnp.arange(slots)[None]
    cached, length = chunk.cached[:, None], chunk.length[:, None]
    source = jnp.where(place < cached, place, slots + place - cached)
    decoded = slots + width + place - cached - length
    source = jnp.where(place < cached + length, source, decoded)
    source = jnp.clip(source, 0, cache.k.shape[3] - 1)[None, :, None, :, None]
    k, v = (
        leaf.at[:, chunk.rows].set(jnp.take_along_axis(new, source, axis=3))
        for leaf, new in zip(pool, (cache.k, cache.v), strict=True)
    )
    return Pool(k, v)
