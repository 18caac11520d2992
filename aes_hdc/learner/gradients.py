"""Sketches of an environment's policy gradient: random projections to [S].

A sketch is linear and keeps inner products in expectation, so cosines of gradients of
any size can be read from a few thousand numbers.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Params = Any


def make_sketch(size: int, seed: int = 0) -> Callable[[Params], jax.Array]:
    """Returns jitted sketch(grads) -> [size] float32.

    Entry i of leaf l is multiplied by a sign hashed from (seed, l, i) and added to
    bucket i mod size. Unbiased: E<S g, S h> = <g, h>, with variance at most
    (|g|^2 |h|^2 + <g, h>^2) / size for entries that are spread evenly over the
    buckets, so a cosine near 0 errs by about 1 / sqrt(size).

    Args:
        size: S, a prime, so that no axis of a parameter divides it.
        seed: of the signs; sketches compare only under one seed and size.
    """

    def sketch(grads: Params) -> jax.Array:
        total = jnp.zeros((size,), jnp.float32)
        for leaf_index, leaf in enumerate(jax.tree.leaves(grads)):
            flat = leaf.reshape(-1).astype(jnp.float32)
            signed = flat * _signs(flat.size, leaf_index, seed)
            padded = jnp.pad(signed, (0, -flat.size % size))
            total = total + padded.reshape(-1, size).sum(0)
        return total

    return jax.jit(sketch)


def _signs(count: int, leaf_index: int, seed: int) -> jax.Array:
    """[count] float32 of +-1 from murmur3's finalizer over (seed, leaf, index)."""
    mixed = (seed * 0x9E3779B1 + (leaf_index + 1) * 0x85EBCA6B) & 0xFFFFFFFF
    x = jnp.arange(count, dtype=jnp.uint32) ^ jnp.uint32(mixed)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> shift)) * jnp.uint32(factor)
    x = x ^ (x >> 16)
    return 1.0 - 2.0 * (x & 1).astype(jnp.float32)
