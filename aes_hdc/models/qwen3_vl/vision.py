"""The vision tower: patches of pictures to image tokens and DeepStack features."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from aes_hdc.models.qwen3_vl.attention import attention
from aes_hdc.models.qwen3_vl.config import VisionConfig
from aes_hdc.models.qwen3_vl.layers import (
    Dtype,
    LayerNorm,
    Linear,
    inverse_frequencies,
    kernel_init,
    rotate,
    stack,
    table_init,
)
from aes_hdc.models.sharding import constrain

_ROPE_THETA = 10_000.0


class VisionFeatures(NamedTuple):
    """What the decoder is told about pictures.

    Attributes:
        tokens: [M, N, D], one row per image token; rows past a picture's own are
            arbitrary.
        deepstack: [K, M, N, D], what is added after text layer k at the same places.
    """

    tokens: jax.Array
    deepstack: jax.Array


class _Shared(NamedTuple):
    """What every block needs besides its input."""

    cos: jax.Array  # [M, P, 1, d/2] float32
    sin: jax.Array  # [M, P, 1, d/2] float32
    query_order: (
        jax.Array
    )  # [M, P] int32, all 0: a patch sees every other of its picture
    key_order: jax.Array  # [M, P] int32, 0 or, for padding, -1


def patch_coordinates(
    grids: jax.Array, num_patches: int, merge: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Finds the place of each patch row, which come block after block of merge x merge.

    Args:
        grids: [M, 2] int32, patches along height and width; 0 where there is no
            picture.
        num_patches: P, rows per picture.
        merge: side of a block.

    Returns:
        y and x, [M, P] int32, arbitrary in padding rows, and valid, [M, P] bool.
    """
    height, width = grids[:, :1], grids[:, 1:]
    row = jnp.arange(num_patches, dtype=jnp.int32)[None]
    block, inside = row // merge**2, row % merge**2
    blocks_wide = jnp.maximum(width // merge, 1)
    y = block // blocks_wide * merge + inside // merge
    x = block % blocks_wide * merge + inside % merge
    return y, x, row < height * width


def interpolation(position: jax.Array, length: jax.Array, side: int) -> jax.Array:
    """Returns weights of the table entries along one axis, ends aligned with ends.

    Args:
        position: [M, P] int32, patch coordinate.
        length: [M, 1] int32, patches along this axis.
        side: entries of the table along this axis.

    Returns:
        [M, P, side] float32; a row holds 1-f and f at two neighbours, the rest is 0.
    """
    scale = (side - 1) / jnp.maximum(length - 1, 1).astype(jnp.float32)
    at = jnp.minimum(position.astype(jnp.float32) * scale, side - 1)
    entries = jnp.arange(side, dtype=jnp.float32)
    return jnp.maximum(0.0, 1.0 - jnp.abs(at[..., None] - entries))


class PatchEmbed(nn.Module):
    """Projects raw patches, a linear layer over (channel, time, y, x).

    A still picture is the same in all time slots, so the kernel is summed over time
    instead of the picture being repeated.
    """

    config: VisionConfig
    dtype: Dtype
    param_dtype: Dtype

    @nn.compact
    def __call__(self, patches: jax.Array) -> jax.Array:
        config = self.config
        area, times = config.patch_size**2, config.temporal_patch_size
        shape = (config.in_channels * times * area, config.hidden_size)
        kernel = self.param("kernel", kernel_init, shape, self.param_dtype)
        zeros = nn.initializers.zeros_init()
        bias = self.param("bias", zeros, shape[1:], self.param_dtype)
        kernel = kernel.reshape(config.in_channels, times, area, -1).sum(axis=1)
        kernel = kernel.reshape(config.patch_values, -1).astype(self.dtype)
        pixels = patches.astype(jnp.float32) / 127.5 - 1.0
        flat = pixels.reshape(-1, config.patch_values).astype(self.dtype)
        out = flat @ kernel + bias.astype(self.dtype)
        return out.reshape(*patches.shape[:-1], config.hidden_size)


class Block(nn.Module):
    """One pre-norm transformer block with attention inside each picture."""

    config: VisionConfig
    dtype: Dtype
    param_dtype: Dtype

    @nn.compact
    def __call__(
        self, carry: tuple[jax.Array, jax.Array], is_tap: jax.Array, shared: _Shared
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        """Maps (x [M, P, C], taps [K, M, P, C]); is_tap [K] says where to keep x."""
        config = self.config
        x, taps = carry
        head_dim = config.hidden_size // config.num_heads
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}

        def linear(name: str, features: int, axis: str) -> Linear:
            return Linear(features, axis, use_bias=True, name=name, **types)

        y = LayerNorm(param_dtype=self.param_dtype, name="norm1")(x)
        y = linear("qkv", 3 * config.hidden_size, "length")(y)
        q, k, v = jnp.moveaxis(
            y.reshape(*y.shape[:2], 3, config.num_heads, head_dim), 2, 0
        )  # [M, P, heads, d] each
        q = rotate(q.astype(jnp.float32), shared.cos, shared.sin).astype(self.dtype)
        k = rotate(k.astype(jnp.float32), shared.cos, shared.sin).astype(self.dtype)
        y = attention(
            q,
            k.transpose(0, 2, 1, 3),
            v.transpose(0, 2, 1, 3),
            shared.query_order,
            shared.key_order,
        )
        x = x + linear("proj", config.hidden_size, "embed")(y.reshape(x.shape))
        y = LayerNorm(param_dtype=self.param_dtype, name="norm2")(x)
        y = linear("fc1", config.intermediate_size, "mlp")(y)
        y = jax.nn.gelu(y, approximate=True)
        x = constrain(
            x + linear("fc2", config.hidden_size, "embed")(y), "batch", "patch", "embed"
        )
        return (x, jnp.where(is_tap[:, None, None, None], x, taps)), None


class Merger(nn.Module):
    """Joins the patches of a block to one token of the text width.

    Attributes:
        norm_merged: whether the norm spans the joined patches, or each patch alone.
    """

    config: VisionConfig
    norm_merged: bool
    dtype: Dtype
    param_dtype: Dtype

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps [M, P, C] to [M, P/merge^2, D]."""
        config = self.config
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        norm = LayerNorm(param_dtype=self.param_dtype, name="norm")
        width = config.hidden_size * config.merged
        merged = (x.shape[0], x.shape[1] // config.merged, width)
        x = norm(x.reshape(merged)) if self.norm_merged else norm(x).reshape(merged)
        x = Linear(width, "mlp", use_bias=True, name="fc1", **types)(x)
        x = jax.nn.gelu(x, approximate=False)
        return Linear(
            config.out_hidden_size, "embed", use_bias=True, name="fc2", **types
        )(x)


class VisionTower(nn.Module):
    """Maps uint8 patches to image tokens of the text width."""

    config: VisionConfig
    dtype: Dtype
    param_dtype: Dtype
    remat: str | None
    unroll: int | bool

    @nn.compact
    def __call__(self, patches: jax.Array, grids: jax.Array) -> VisionFeatures:
        """See `Qwen3VL.encode_images`."""
        config = self.config
        num_taps = len(config.deepstack_visual_indexes)
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        y, x, valid = patch_coordinates(
            grids, patches.shape[1], config.spatial_merge_size
        )
        hidden = PatchEmbed(config, name="patch", **types)(patches)
        self.sow("intermediates", "patch_embed", hidden)
        hidden = hidden + self._positions(y, x, grids).astype(self.dtype)
        hidden = constrain(hidden, "batch", "patch", "embed")
        head_dim = config.hidden_size // config.num_heads
        frequencies = inverse_frequencies(head_dim // 2, _ROPE_THETA)
        angles = jnp.concatenate(
            [y[..., None] * frequencies, x[..., None] * frequencies], axis=-1
        )[:, :, None]
        shared = _Shared(
            jnp.cos(angles),
            jnp.sin(angles),
            jnp.zeros_like(y),
            valid.astype(jnp.int32) - 1,
        )
        taps = jnp.zeros((num_taps, *hidden.shape), hidden.dtype)
        is_tap = jnp.array(
            [
                [i == t for t in config.deepstack_visual_indexes]
                for i in range(config.depth)
            ]
        ).reshape(config.depth, num_taps)
        blocks = stack(Block, config.depth, remat=self.remat, unroll=self.unroll)
        (hidden, taps), _ = blocks(config, name="blocks", **types)(
            (hidden, taps), is_tap, shared
        )
        self.sow("intermediates", "last_hidden", hidden)
        tokens = Merger(config, norm_merged=False, name="merger", **types)(hidden)
        return VisionFeatures(tokens, self._deepstack(taps, tokens))

    def _positions(self, y: jax.Array, x: jax.Array, grids: jax.Array) -> jax.Array:
        """Blends the learned positions at each patch, [M, P, C] float32.

        As a product with a mostly empty matrix: it costs less than a fifth of a block,
            and
        its gradient is a product too instead of a scatter.
        """
        side, width = self.config.position_side, self.config.hidden_size
        table = self.param("pos", table_init, (side * side, width), self.param_dtype)
        across = interpolation(x, grids[:, 1:], side)
        down = interpolation(y, grids[:, :1], side)
        weights = (down[..., :, None] * across[..., None, :]).reshape(
            *y.shape, side * side
        )
        return jnp.einsum(
            "mps,sc->mpc",
            weights,
            table.astype(jnp.float32),
            precision=jax.lax.Precision.HIGHEST,
        )

    def _deepstack(self, taps: jax.Array, tokens: jax.Array) -> jax.Array:
        """Applies merger k to the output of tapped block k, [K, M, N, D]."""
        if taps.shape[0] == 0:
            return jnp.zeros((0, *tokens.shape), tokens.dtype)
        mergers = nn.vmap(
            Merger, variable_axes={"params": 0}, split_rngs={"params": True}
        )
        return mergers(
            self.config,
            norm_merged=True,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
            name="ds_mergers",
        )(taps)
