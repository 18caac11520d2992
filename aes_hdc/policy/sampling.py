"""One turn of many conversations in two programs: prefill a message, decode a reply.

Conversations live in a pool of cache rows, [L, R, K, T, d]. A call picks any `b` of
them, so no finished one holds a batch. New keys are written beside a copy of the rows,
at slots that are equal for the whole batch, and put behind each row's own tokens at the
end of the call, one slice a row: rows have no holes, and nothing is scattered token by
token. A message that opens several conversations is prefilled once, for all their rows.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from aes_hdc.models.qwen3_vl.model import Cache, Qwen3VL, encode_shown
from aes_hdc.models.sharding import array_sharding, constrain
from aes_hdc.policy.distribution import TokenDistribution

Params = Any


class Pool(NamedTuple):
    """What is kept of every open conversation.

    Attributes:
        k: [L, R + 1, K, T, d], keys; the last row is a scratch row for padding. What
            stands behind a conversation's own tokens is arbitrary.
        v: like `k`, values.
        hidden: [R + 1, D], final hidden state of the last message.
    """

    k: jax.Array
    v: jax.Array
    hidden: jax.Array


class PrefillShape(NamedTuple):
    """Static sizes of a prefill.

    Attributes:
        rows: messages a call.
        width: tokens of the longest message.
        span: tokens of the longest conversation before it; 0 for first messages.
        copies: conversations that one message may open.
    """

    rows: int
    width: int
    span: int
    copies: int = 1


class DecodeShape(NamedTuple):
    """Static sizes of a decode.

    Attributes:
        rows: replies a call.
        span: tokens of the longest conversation before the reply.
    """

    rows: int
    span: int


class Chunk(NamedTuple):
    """The next message of `b` conversations, right-padded to O tokens.

    Attributes:
        ids: [b, O] int32.
        positions: [3, b, O] int32, M-RoPE.
        vision_index: [b, O] int32, row of the flattened vision tokens, -1 for text.
        patches: [b, P, 3 * patch**2] uint8, at most one picture a message.
        grids: [b, 2] int32, patches per side; (0, 0) without a picture.
        rows: [b, copies] int32, rows in the pool, the first for what is read; R for
            padding.
        cached: [b] int32, tokens of the conversation already in the pool.
        length: [b] int32, tokens of this message; 0 for padding.
    """

    ids: Any
    positions: Any
    vision_index: Any
    patches: Any
    grids: Any
    rows: Any
    cached: Any
    length: Any


class Prompts(NamedTuple):
    """Where `b` replies begin.

    Attributes:
        rows: [b] int32, row in the pool; R for padding.
        length: [b] int32, tokens so far; 0 for padding.
        next_position: [b] int32, M-RoPE position of the first sampled token.
        keys: [b, 2] uint32, key data of the turn, a function of the conversation alone.
    """

    rows: Any
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


# Logical axes of keys and values in a pool and in a cache.
_KEYS = ("layers", "batch", "kv_heads", "length", "head_dim")


def init_pool(model: Qwen3VL, rows: int, slots: int, mesh: Mesh | None = None) -> Pool:
    """Returns an empty pool for `rows` conversations, or a few more.

    Args:
        model: the shared core.
        rows: R, conversations; on a mesh rounded up, so that it divides R + 1.
        slots: T, tokens of the longest one and of the widest write behind it.
        mesh: what it is spread over.
    """

    def fill(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        def part(index: Any) -> np.ndarray:
            sizes = [
                len(range(*i.indices(n)))
                for i, n in zip(index, leaf.shape, strict=True)
            ]
            return np.zeros(sizes, leaf.dtype)

        if leaf.sharding is None:
            return jax.device_put(np.zeros(leaf.shape, leaf.dtype))
        return jax.make_array_from_callback(leaf.shape, leaf.sharding, part)

    return jax.tree.map(fill, pool_shapes(model, rows, slots, mesh))


def pool_shapes(
    model: Qwen3VL, rows: int, slots: int, mesh: Mesh | None = None
) -> Pool:
    """Returns what `init_pool` makes as `jax.ShapeDtypeStruct`; nothing is computed."""
    text = model.config.text
    parts = 1 if mesh is None else mesh.shape["data"] * mesh.shape["fsdp"]
    rows = -(-(rows + 1) // parts) * parts
    kept = (
        text.num_hidden_layers,
        rows,
        text.num_key_value_heads,
        slots,
        text.head_dim,
    )

    def leaf(shape: tuple[int, ...], *axes: str) -> jax.ShapeDtypeStruct:
        place = None if mesh is None else array_sharding(mesh, shape, axes)
        return jax.ShapeDtypeStruct(shape, model.dtype, sharding=place)

    keys: Any = leaf(kept, *_KEYS)
    hidden: Any = leaf((rows, text.hidden_size), "batch", "embed")
    return Pool(keys, keys, hidden)


@functools.cache
def make_prefill(model: Qwen3VL) -> Callable[..., Pool]:
    """Returns jitted prefill(params, pool, chunk, span=...); it donates the pool.

    Equal arguments give the same function, so stages share what was compiled. `span`
    is static: how many slots of the rows may hold tokens already.
    """
    apply: Callable[..., Any] = model.apply

    def prefill(params: Params, pool: Pool, chunk: Chunk, *, span: int) -> Pool:
        variables = {"params": params}
        width = chunk.ids.shape[1]
        vision = encode_shown(model, variables, chunk.patches, chunk.grids)
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
            _open(pool, chunk.rows[:, 0], chunk.cached, span, width),
            span,
        )
        last = jnp.maximum(chunk.length - 1, 0)[:, None, None]
        hidden = jnp.take_along_axis(hidden, last, axis=1)[:, 0]
        pool = _close(pool, cache, chunk.rows, chunk.cached, span)
        kept = pool.hidden.at[chunk.rows].set(hidden[:, None])
        return pool._replace(hidden=constrain(kept, "batch", "embed"))

    return jax.jit(prefill, donate_argnums=1, static_argnames="span")


@functools.cache
def make_decode(
    model: Qwen3VL,
    distribution: TokenDistribution,
    *,
    max_new_tokens: int,
    end_ids: tuple[int, ...],
    greedy: bool = False,
) -> Callable[[Params, Pool, Prompts], tuple[Pool, Sampled]]:
    """Returns jitted decode(params, pool, prompts, span=...); it donates the pool.

    It ends when every row has. `span` is static: how many slots of the rows may hold
    tokens. Equal arguments give the same function.

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

    def decode(
        params: Params, pool: Pool, prompts: Prompts, *, span: int
    ) -> tuple[Pool, Sampled]:
        variables = {"params": params}
        batch = len(prompts.rows)
        keys = jax.random.wrap_key_data(prompts.keys)
        ends = jnp.asarray(end_ids, jnp.int32)

        def unfinished(carry):
            index, _, out = carry
            return (index + 1 < max_new_tokens) & jnp.any(out.is_cut)

        def step(carry):
            index, cache, out = carry
            token = jax.lax.dynamic_index_in_dim(out.ids, index, 1)
            place = (prompts.next_position + index)[None, :, None]
            order = (prompts.length + index)[:, None]
            hidden, cache = apply(
                variables,
                token,
                jnp.broadcast_to(place, (3, batch, 1)),
                jnp.where(out.is_cut[:, None], order, -1),
                None,
                None,
                cache,
                span + index,
            )
            index = index + 1
            token, logprob = pick(variables, hidden[:, 0], keys, index)
            return index, cache, _append(out, index, token, logprob, ends)

        nothing = Sampled(
            jnp.zeros((batch, max_new_tokens), jnp.int32),
            jnp.zeros((batch, max_new_tokens), jnp.float32),
            jnp.zeros(batch, jnp.int32),
            prompts.length > 0,
        )
        token, logprob = pick(variables, pool.hidden[prompts.rows], keys, 0)
        first = _append(nothing, 0, token, logprob, ends)
        cache = _open(pool, prompts.rows, prompts.length, span, max_new_tokens)
        _, cache, out = jax.lax.while_loop(unfinished, step, (0, cache, first))
        return _close(pool, cache, prompts.rows[:, None], prompts.length, span), out

    return jax.jit(decode, donate_argnums=1, static_argnames="span")


def _append(
    out: Sampled,
    index: jax.Array | int,
    token: jax.Array,
    logprob: jax.Array,
    ends: Any,
) -> Sampled:
    """Writes the token of step `index` [b] where a reply has not ended."""
    token = jnp.where(out.is_cut, token, 0)
    logprob = jnp.where(out.is_cut, logprob, 0.0)
    return Sampled(
        jax.lax.dynamic_update_index_in_dim(out.ids, token, index, 1),
        jax.lax.dynamic_update_index_in_dim(out.logprobs, logprob, index, 1),
        out.length + out.is_cut,
        out.is_cut & ~jnp.isin(token, ends),
    )


def _open(
    pool: Pool, rows: jax.Array, cached: jax.Array, span: int, extra: int
) -> Cache:
    """Copies `span` slots of rows out of the pool, and `extra` behind them to fill."""
    places = jnp.arange(span + extra)[None]
    order = jnp.where((places < span) & (places < cached[:, None]), places, -1)
    k, v = (
        constrain(leaf[:, rows, :, : span + extra], *_KEYS) for leaf in (pool.k, pool.v)
    )
    return Cache(k, v, order)


def _close(
    pool: Pool, cache: Cache, rows: jax.Array, cached: jax.Array, span: int
) -> Pool:
    """Puts what was written at `span` behind each row's own tokens, in all its copies.

    The last sampled token was never fed, so it is not there yet: it opens the next
    message.
    """
    batch, copies = rows.shape
    new = cache.k[:, :, :, span:], cache.v[:, :, :, span:]

    def put(index: jax.Array, leaves: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        at, copy = index // copies, index % copies
        start = (0, rows[at, copy], 0, cached[at], 0)
        return tuple(
            jax.lax.dynamic_update_slice(
                leaf, jax.lax.dynamic_slice_in_dim(part, at, 1, axis=1), start
            )
            for leaf, part in zip(leaves, new, strict=True)
        )

    k, v = jax.lax.fori_loop(0, batch * copies, put, (pool.k, pool.v))
    return pool._replace(k=constrain(k, *_KEYS), v=constrain(v, *_KEYS))
