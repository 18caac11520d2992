"""The text decoder: grouped attention, interleaved M-RoPE, a key-value cache."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from aes_hdc.models.qwen3_vl.attention import Keys, attention
from aes_hdc.models.qwen3_vl.config import Config, TextConfig
from aes_hdc.models.qwen3_vl.layers import (
    Dtype,
    Linear,
    RMSNorm,
    inverse_frequencies,
    rotate,
    stack,
)
from aes_hdc.models.sharding import constrain


class Cache(NamedTuple):
    """Keys and values of earlier chunks.

    Attributes:
        k: [L, B, K, S, d], keys after rotation.
        v: [L, B, K, S, d], values.
        order: [B, S] int32, index of the token in each slot among its row's tokens; -1
            where the slot is empty.
    """

    k: jax.Array
    v: jax.Array
    order: jax.Array


class _Shared(NamedTuple):
    """What every layer needs besides its input."""

    cos: jax.Array  # [B, T, 1, d/2]
    sin: jax.Array  # [B, T, 1, d/2]
    order: jax.Array  # [B, T] int32
    past_order: jax.Array  # [B, S] int32; [B, 0] without a cache
    vision_index: jax.Array  # [B, T] int32


def init_cache(config: Config, batch: int, slots: int, dtype: Dtype) -> Cache:
    """Returns an empty cache.

    Args:
        config: the model's sizes.
        batch: rows B.
        slots: S, the longest context in tokens, holes included.
        dtype: type of keys and values.
    """
    text = config.text
    shape = (
        text.num_hidden_layers,
        batch,
        text.num_key_value_heads,
        slots,
        text.head_dim,
    )
    empty = jnp.full((batch, slots), -1, jnp.int32)
    return Cache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype), empty)


def rope_angles(config: TextConfig, positions: jax.Array) -> jax.Array:
    """Computes the angles of interleaved M-RoPE.

    Frequency j turns by height if j mod 3 is 1, by width if it is 2, as far as the
    section of that axis reaches, else by time.

    Args:
        config: the decoder's sizes.
        positions: [3, B, T] int32, (time, height, width).

    Returns:
        [B, T, head_dim/2] float32, radians.
    """
    frequency = np.arange(config.head_dim // 2)
    axis = np.zeros_like(frequency)
    for which in (1, 2):
        reach = 3 * config.mrope_section[which]
        axis[(frequency % 3 == which) & (frequency < reach)] = which
    inverse = inverse_frequencies(config.head_dim, config.rope_theta)
    chosen = jnp.moveaxis(positions.astype(jnp.float32)[axis], 0, -1)
    return chosen * inverse


def add_rows(x: jax.Array, features: jax.Array, index: jax.Array) -> jax.Array:
    """Adds rows of features [N, D], named by index [B, T], to x [B, T, D]; -1: none."""
    features = constrain(features, None, None)
    rows = jnp.take(features, jnp.maximum(index, 0), axis=0, mode="clip")
    return x + jnp.where(index[..., None] >= 0, rows, 0).astype(x.dtype)


class DecoderLayer(nn.Module):
    """One pre-norm layer; with features, they are added to its output."""

    config: TextConfig
    dtype: Dtype
    param_dtype: Dtype

    @nn.compact
    def __call__(
        self, x: jax.Array, inputs: dict[str, jax.Array], shared: _Shared
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array] | None]:
        """Maps x [B, T, D].

        Args:
            x: the residual stream.
            inputs: optional "features", [N, D], and "k", "v", [B, K, S, d], of the
                cache.
            shared: positions and masks.

        Returns:
            The new x and, with a cache, this chunk's keys and values, [B, K, T, d]
            each.
        """
        self.sow("intermediates", "input", x)
        norm = self._norm
        y, new = self._attend(norm("norm1")(x), inputs, shared)
        x = x + self._linear("o", self.config.hidden_size, "embed")(y)
        y = norm("norm2")(x)
        gate = self._linear("gate", self.config.intermediate_size, "mlp")(y)
        up = self._linear("up", self.config.intermediate_size, "mlp")(y)
        y = self._linear("down", self.config.hidden_size, "embed")(
            jax.nn.silu(gate) * up
        )
        x = constrain(x + y, "batch", "length", "embed")
        if "features" in inputs:
            x = add_rows(x, inputs["features"], shared.vision_index)
        return x, new if "k" in inputs else None

    def _attend(
        self, x: jax.Array, inputs: dict[str, jax.Array], shared: _Shared
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Attends from x to itself and the cache, to [B, T, H*d] and the new keys."""
        config = self.config
        heads = {"q": config.num_attention_heads}
        heads |= {"k": config.num_key_value_heads, "v": config.num_key_value_heads}
        q, k, v = (
            self._linear(
                name, num * config.head_dim, "heads" if name == "q" else "kv_heads"
            )(x).reshape(*x.shape[:2], num, config.head_dim)
            for name, num in heads.items()
        )
        q = rotate(self._norm("q_norm")(q), shared.cos, shared.sin)
        k = rotate(self._norm("k_norm")(k), shared.cos, shared.sin)
        k, v = (
            constrain(
                y.transpose(0, 2, 1, 3), "batch", "kv_heads", "length", "head_dim"
            )
            for y in (k, v)
        )
        past = None
        if "k" in inputs:
            past = Keys(inputs["k"], inputs["v"], shared.past_order)
        out = attention(q, k, v, shared.order, shared.order, past=past)
        return out.reshape(*x.shape[:2], -1), (k, v)

    def _linear(self, name: str, features: int, axis: str) -> Linear:
        return Linear(
            features, axis, dtype=self.dtype, param_dtype=self.param_dtype, name=name
        )

    def _norm(self, name: str) -> RMSNorm:
        return RMSNorm(
            self.config.rms_norm_eps, param_dtype=self.param_dtype, name=name
        )


class TextDecoder(nn.Module):
    """The decoder layers and the final norm.

    The first K layers, which receive DeepStack features, are one scan ("ds_layers"),
    the others a second one ("layers").
    """

    config: Config
    dtype: Dtype
    param_dtype: Dtype
    remat: str | None
    unroll: int | bool

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        positions: jax.Array,
        order: jax.Array,
        deepstack: jax.Array | None,
        vision_index: jax.Array,
        cache: Cache | None,
        slot: jax.Array | int,
    ) -> tuple[jax.Array, Cache | None]:
        """Maps embeddings to final hidden states; arguments as in `Qwen3VL.__call__`.

        Args:
            x: [B, T, D], embeddings with image tokens in place.
            positions: [3, B, T] int32.
            order: [B, T] int32.
            deepstack: [K, N, D], or None for text alone.
            vision_index: [B, T] int32.
            cache: earlier keys, or None.
            slot: where the chunk is written.
        """
        text = self.config.text
        angles = rope_angles(text, positions)[:, :, None]
        past_order = order[:, :0]
        seen = 0  # Slots that may hold something to see.
        if cache is not None and isinstance(slot, int):
            seen = slot
            past_order = cache.order[:, :seen]
        elif cache is not None:  # Slots about to be overwritten hold nothing to see.
            seen = cache.order.shape[1]
            past_order = jax.lax.dynamic_update_slice(
                cache.order, jnp.full_like(order, -1), (0, slot)
            )
        shared = _Shared(
            jnp.cos(angles).astype(self.dtype),
            jnp.sin(angles).astype(self.dtype),
            order,
            past_order,
            vision_index,
        )
        chunks = []
        first = self.config.num_deepstack
        for name, start, stop in (
            ("ds_layers", 0, first),
            ("layers", first, text.num_hidden_layers),
        ):
            if start == stop:
                continue
            inputs: dict[str, Any] = {}
            if cache is not None:
                k, v = (x[start:stop, :, :, :seen] for x in (cache.k, cache.v))
                inputs = {"k": k, "v": v}
            if name == "ds_layers" and deepstack is not None:
                inputs["features"] = deepstack
            layers = stack(
                DecoderLayer, stop - start, remat=self.remat, unroll=self.unroll
            )
            x, chunk = layers(text, self.dtype, self.param_dtype, name=name)(
                x, inputs, shared
            )
            chunks.append(chunk)
        norm = RMSNorm(text.rms_norm_eps, param_dtype=self.param_dtype, name="norm")
        if cache is not None:
            cache = _write(cache, chunks, order, slot)
        return norm(x), cache


def _write(
    cache: Cache,
    chunks: list[tuple[jax.Array, jax.Array]],
    order: jax.Array,
    slot: jax.Array | int,
) -> Cache:
    """Writes a chunk of every layer into the cache, in one update per array.

    The layers only read the cache, so a decoding step moves T new keys and not S old
    ones.
    """
    k, v = (
        jnp.concatenate(parts).astype(cache.k.dtype)
        for parts in zip(*chunks, strict=True)
    )
    return Cache(
        jax.lax.dynamic_update_slice(cache.k, k, (0, 0, 0, slot, 0)),
        jax.lax.dynamic_update_slice(cache.v, v, (0, 0, 0, slot, 0)),
        jax.lax.dynamic_update_slice(cache.order, order, (0, slot)),
    )
