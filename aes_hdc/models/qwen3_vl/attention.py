"""Attention: one function for both towers, for training and for decoding alike."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

# Finite, so that a row which sees nothing gives an average instead of NaN.
_HIDDEN = -1e30


class Keys(NamedTuple):
    """What queries may look at.

    Attributes:
        k: [B, K, S, d], keys.
        v: [B, K, S, d], values.
        order: [B, S] int32, place of each key in its row; -1 hides it from every query.
    """

    k: jax.Array
    v: jax.Array
    order: jax.Array


class _Sums(NamedTuple):
    """Softmax sums over the keys so far, relative to exp(top), all float32."""

    top: jax.Array  # [B, K, G*T, 1]
    total: jax.Array  # [B, K, G*T, 1]
    out: jax.Array  # [B, K, G*T, d]


def attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    query_order: jax.Array,
    key_order: jax.Array,
    *,
    past: Keys | None = None,
    block: int = 1024,
) -> jax.Array:
    """Computes softmax(q k / sqrt(d)) v over keys with 0 <= key order <= query order.

    Queries are grouped by the key head they share, so a step is one product per key
    head. A context longer than `block` is taken block by block with running sums, and
    neither the forward nor the backward pass holds all scores at once.

    Args:
        q: [B, T, H, d], queries; head h uses key head h // (H / K).
        k: [B, K, S, d], keys.
        v: [B, K, S, d], values.
        query_order: [B, T] int32.
        key_order: [B, S] int32, -1 where there is nothing to see.
        past: more keys, for example those of a cache.
        block: keys per product.

    Returns:
        [B, T, H, d] in q's type. A query that sees no key gets an arbitrary finite row.
    """
    batch, length, heads, width = q.shape
    kv_heads = k.shape[1]
    groups = heads // kv_heads
    q = (q * width**-0.5).astype(q.dtype)
    q = q.reshape(batch, length, kv_heads, groups, width).transpose(0, 2, 3, 1, 4)
    q = q.reshape(batch, kv_heads, groups * length, width)
    sums = None
    for keys in (past, Keys(k, v, key_order)):
        if keys is None or keys.order.shape[1] == 0:
            continue
        if keys.order.shape[1] <= block:
            sums = _add(sums, q, query_order, keys)
        else:
            sums = _add_blocks(sums, q, query_order, keys, block)
    assert sums is not None
    out = (sums.out / sums.total).astype(q.dtype)
    out = out.reshape(batch, kv_heads, groups, length, width).transpose(0, 3, 1, 2, 4)
    return out.reshape(batch, length, heads, width)


def _add(sums: _Sums | None, q: jax.Array, query_order: jax.Array, keys: Keys) -> _Sums:
    """Adds one block of keys to the running sums."""
    order = keys.order[:, None, :]
    visible = (order >= 0) & (order <= query_order[:, :, None])  # [B, T, S]
    scores = jnp.einsum(
        "bkqd,bksd->bkqs",
        q,
        keys.k.astype(q.dtype),
        preferred_element_type=jnp.float32,
    )
    grouped = (*scores.shape[:2], -1, *visible.shape[1:])  # [B, K, G, T, S]
    scores = jnp.where(
        visible[:, None, None], scores.reshape(grouped), _HIDDEN
    ).reshape(scores.shape)
    # The result does not depend on `top`, so no gradient needs to pass through it.
    top = jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True))
    if sums is not None:
        top = jnp.maximum(top, sums.top)
    weights = jnp.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    out = jnp.einsum(
        "bkqs,bksd->bkqd",
        weights.astype(q.dtype),
        keys.v.astype(q.dtype),
        preferred_element_type=jnp.float32,
    )
    if sums is not None:
        shrink = jnp.exp(sums.top - top)
        total, out = total + shrink * sums.total, out + shrink * sums.out
    return _Sums(top, total, out)


def _add_blocks(
    sums: _Sums | None, q: jax.Array, query_order: jax.Array, keys: Keys, block: int
) -> _Sums:
    """Adds keys in blocks, the last one padded with hidden keys."""
    batch, kv_heads, length, width = keys.k.shape
    num_blocks = -(-length // block)
    pad = num_blocks * block - length

    def split(x: jax.Array) -> jax.Array:
        x = jnp.pad(x, ((0, 0), (0, 0), (0, pad), (0, 0)))
        x = x.reshape(batch, kv_heads, num_blocks, block, width)
        return x.transpose(2, 0, 1, 3, 4)

    order = jnp.pad(keys.order, ((0, 0), (0, pad)), constant_values=-1)
    order = order.reshape(batch, num_blocks, block).transpose(1, 0, 2)
    if sums is None:
        shape = q.shape[:3]
        sums = _Sums(
            jnp.full((*shape, 1), _HIDDEN, jnp.float32),
            jnp.zeros((*shape, 1), jnp.float32),
            jnp.zeros(q.shape, jnp.float32),
        )

    @jax.checkpoint
    def body(sums: _Sums, keys: Keys) -> tuple[_Sums, None]:
        return _add(sums, q, query_order, keys), None

    return jax.lax.scan(body, sums, Keys(split(keys.k), split(keys.v), order))[0]
