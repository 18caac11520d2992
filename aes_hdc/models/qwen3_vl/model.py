"""Qwen3-VL: token ids and pictures to hidden states and logits."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from aes_hdc.models.qwen3_vl.config import Config
from aes_hdc.models.qwen3_vl.layers import Dtype, table_init
from aes_hdc.models.qwen3_vl.text import Cache, TextDecoder
from aes_hdc.models.qwen3_vl.vision import VisionFeatures, VisionTower
from aes_hdc.models.sharding import constrain

# Kernels are [inputs, outputs], tables [rows, width]; "ds_" marks the layers and
# mergers of DeepStack. The joined q, k, v of the vision tower would be cut in the wrong
# places by tp.
SHARDING_RULES = (
    (r"(embed|head)/table$", ("vocab", "embed")),
    (r"text/(ds_)?layers/q/kernel$", ("embed", "heads")),
    (r"text/(ds_)?layers/[kv]/kernel$", ("embed", "kv_heads")),
    (r"text/(ds_)?layers/o/kernel$", ("heads", "embed")),
    (r"(gate|up|fc1)/kernel$", ("embed", "mlp")),
    (r"(down|fc2)/kernel$", ("mlp", "embed")),
    (r"vision/blocks/(qkv|proj)/kernel$", ("embed", "length")),
    (r"vision/(patch/kernel|pos)$", ()),
    (r"(scale|bias)$", ()),
)


class _Table(nn.Module):
    """A matrix of one row per token: the input embedding, or the output head."""

    rows: int
    width: int
    param_dtype: Dtype

    @nn.compact
    def __call__(self) -> jax.Array:
        shape = (self.rows, self.width)
        table = self.param("table", table_init, shape, self.param_dtype)
        # Gathered over fsdp before it is looked up: rows cut in width would have to be
        # reassembled for every token instead.
        return constrain(table, "vocab", None)


class Qwen3VL(nn.Module):
    """The dense Qwen3-VL model.

    One forward pass serves training, prefill and decoding: without a cache the chunk is
    the whole context, with one it continues what the cache holds.

    Attributes:
        config: sizes.
        dtype: type of activations and products; norms, softmax and logits are float32.
        param_dtype: type of fresh parameters.
        remat: what the backward pass recomputes: None, "full" or "dots".
        unroll: layers per step of the layer loops; True writes all layers out, which is
            faster for small models.
    """

    config: Config
    dtype: Dtype = jnp.float32
    param_dtype: Dtype = jnp.float32
    remat: str | None = None
    unroll: int | bool = 1

    def setup(self) -> None:
        config, text = self.config, self.config.text
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        loops: dict[str, Any] = {"remat": self.remat, "unroll": self.unroll}
        size = (text.vocab_size, text.hidden_size, self.param_dtype)
        self.embed = _Table(*size)
        self.vision = VisionTower(config.vision, **types, **loops)
        self.text = TextDecoder(config, **types, **loops)
        if not config.tie_word_embeddings:
            self.head = _Table(*size)

    def encode_images(self, patches: jax.Array, grids: jax.Array) -> VisionFeatures:
        """Encodes pictures, each on its own.

        Args:
            patches: [M, P, C*p*p] uint8, pixels of each patch by channel, y, x. Patches
                come in blocks of merge x merge, blocks row by row; rows past height *
                width are ignored. P is a multiple of merge^2.
            grids: [M, 2] int32, patches along height and width, multiples of merge; 0,
                0 where there is no picture.

        Returns:
            Tokens and DeepStack features, P / merge^2 per picture.
        """
        return self.vision(patches, grids)

    def __call__(
        self,
        ids: jax.Array,
        positions: jax.Array,
        order: jax.Array,
        vision: VisionFeatures | None = None,
        vision_index: jax.Array | None = None,
        cache: Cache | None = None,
        slot: jax.Array | int = 0,
    ) -> tuple[jax.Array, Cache | None]:
        """Computes hidden states of a chunk of tokens.

        Args:
            ids: [B, T] int32, token ids; any in padding.
            positions: [3, B, T] int32, rotary positions, see
                `positions.rope_positions`.
            order: [B, T] int32, index of each token among the tokens of its row, the
                cache's included; -1 for padding, which may stand anywhere.
            vision: features of the pictures in this chunk; None if it has none.
            vision_index: [B, T] int32, row of the flattened [M*N, D] features that
                stands at this place, -1 for text; needed with `vision`.
            cache: earlier chunks, from `init_cache` or an earlier call.
            slot: the chunk is written to slots slot .. slot+T-1, what they held is
                forgotten. A Python int also says that no later slot holds anything.

        Returns:
            [B, T, D] hidden states after the final norm, arbitrary in padding, and the
            new cache, None without one.
        """
        if (vision is None) != (vision_index is None):
            raise ValueError("vision and vision_index are given together or not at all")
        x = jnp.take(self.embed(), ids, axis=0, mode="clip").astype(self.dtype)
        deepstack = None
        if vision is None or vision_index is None:
            vision_index = jnp.full_like(ids, -1)
        else:
            width = x.shape[-1]
            tokens = vision.tokens.reshape(-1, width).astype(self.dtype)
            tokens = constrain(tokens, None, None)  # A row may name any of them.
            rows = jnp.take(tokens, jnp.maximum(vision_index, 0), axis=0, mode="clip")
            x = jnp.where(vision_index[..., None] >= 0, rows, x)
            deepstack = vision.deepstack.reshape(len(vision.deepstack), -1, width)
        x = constrain(x, "batch", "length", "embed")
        return self.text(x, positions, order, deepstack, vision_index, cache, slot)

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Maps hidden states [..., D] to logits [..., V] float32."""
        table = self.embed() if self.config.tie_word_embeddings else self.head()
        flat = hidden.reshape(-1, hidden.shape[-1]).astype(self.dtype)
        flat = constrain(flat, "batch", "embed")
        out = jnp.einsum(
            "nd,vd->nv",
            flat,
            table.astype(self.dtype),
            preferred_element_type=jnp.float32,
        )
        out = constrain(out, "batch", "vocab")
        return out.reshape(*hidden.shape[:-1], len(table))

    def touch_all(self) -> jax.Array:
        """Runs every part once on the smallest input; only for making parameters."""
        vision = self.config.vision
        side = vision.spatial_merge_size
        patches = jnp.zeros((1, vision.merged, vision.patch_values), jnp.uint8)
        features = self.encode_images(patches, jnp.full((1, 2), side, jnp.int32))
        one = jnp.zeros((1, 1), jnp.int32)
        hidden, _ = self(one, jnp.zeros((3, 1, 1), jnp.int32), one, features, one)
        return self.logits(hidden)


def init_params(model: Qwen3VL, key: jax.Array) -> dict[str, Any]:
    """Returns fresh random parameters, a nested dict of arrays.

    Args:
        model: the model.
        key: a JAX key.
    """
    return model.init(key, method="touch_all")["params"]


def encode_shown(
    model: Qwen3VL, variables: Any, patches: jax.Array, grids: jax.Array
) -> VisionFeatures:
    """Encodes pictures as `Qwen3VL.encode_images`; zeros, at no cost, if none is shown.

    A batch of text alone keeps the shape of one with pictures, so one program serves
    both; which it is, the program finds out when it runs.

    Args:
        model: the model.
        variables: {"params": its parameters}.
        patches: [M, P, C*p*p] uint8.
        grids: [M, 2] int32; all 0 where no row shows a picture.
    """

    def encode(variables: Any, patches: jax.Array, grids: jax.Array) -> Any:
        return model.apply(variables, patches, grids, method=Qwen3VL.encode_images)

    shapes = jax.eval_shape(encode, variables, patches, grids)

    def skip(*_: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    return jax.lax.cond((grids > 0).any(), encode, skip, variables, patches, grids)
