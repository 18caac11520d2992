"""Which tensor of a Hugging Face file is which part of the parameter tree."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from aes_hdc.models.qwen3_vl.config import Config


class Tensor(NamedTuple):
    """One tensor of a file.

    Attributes:
        name: the published name.
        path: where its values are in the parameter tree, such as "text/norm/scale".
        layer: index along the first axis there, or None where nothing is stacked.
        is_matrix: whether the file holds it as [outputs, inputs, ...], to be flattened
            to two axes and transposed.
    """

    name: str
    path: str
    layer: int | None
    is_matrix: bool


# Names inside one layer, ".weight" left out, and paths inside one layer of the tree.
_TEXT_LAYER = {
    "input_layernorm": "norm1/scale",
    "self_attn.q_proj": "q/kernel",
    "self_attn.k_proj": "k/kernel",
    "self_attn.v_proj": "v/kernel",
    "self_attn.o_proj": "o/kernel",
    "self_attn.q_norm": "q_norm/scale",
    "self_attn.k_norm": "k_norm/scale",
    "post_attention_layernorm": "norm2/scale",
    "mlp.gate_proj": "gate/kernel",
    "mlp.up_proj": "up/kernel",
    "mlp.down_proj": "down/kernel",
}
# These have a bias besides the weight, and a LayerNorm's weight is called scale.
_VISION_BLOCK = {
    "norm1": "norm1",
    "attn.qkv": "qkv",
    "attn.proj": "proj",
    "norm2": "norm2",
    "mlp.linear_fc1": "fc1",
    "mlp.linear_fc2": "fc2",
}
_MERGER = {"norm": "norm", "linear_fc1": "fc1", "linear_fc2": "fc2"}


def tensors(config: Config) -> Iterator[Tensor]:
    """Lists every tensor that a file of this configuration holds, in any order."""
    text, visual = "model.language_model.", "model.visual."
    yield Tensor(text + "embed_tokens.weight", "embed/table", None, False)
    yield Tensor(text + "norm.weight", "text/norm/scale", None, False)
    if not config.tie_word_embeddings:
        yield Tensor("lm_head.weight", "head/table", None, False)
    for index in range(config.text.num_hidden_layers):
        first = index < config.num_deepstack
        group = "text/ds_layers/" if first else "text/layers/"
        layer = index if first else index - config.num_deepstack
        for name, path in _TEXT_LAYER.items():
            full = f"{text}layers.{index}.{name}.weight"
            yield Tensor(full, group + path, layer, path.endswith("kernel"))
    yield from _with_bias(visual + "patch_embed.proj", "vision/patch", None)
    yield Tensor(visual + "pos_embed.weight", "vision/pos", None, False)
    for index in range(config.vision.depth):
        for name, path in _VISION_BLOCK.items():
            full = f"{visual}blocks.{index}.{name}"
            yield from _with_bias(full, f"vision/blocks/{path}", index)
    for name, path in _MERGER.items():
        yield from _with_bias(f"{visual}merger.{name}", f"vision/merger/{path}", None)
        for index in range(config.num_deepstack):
            full = f"{visual}deepstack_merger_list.{index}.{name}"
            yield from _with_bias(full, f"vision/ds_mergers/{path}", index)


def canonical(name: str) -> str:
    """Returns the published form of a name whose prefix a re-save changed."""
    bare = name
    while bare.startswith("model."):
        bare = bare.removeprefix("model.")
    if bare.startswith("language_model.model."):
        bare = bare.replace("language_model.model.", "language_model.", 1)
    bare = (
        bare.removeprefix("language_model.")
        if bare.endswith("lm_head.weight")
        else bare
    )
    if bare.startswith(("embed_tokens.", "layers.", "norm.")):
        bare = "language_model." + bare
    return bare if bare.startswith("lm_head.") else "model." + bare


def read_part(tensor: Tensor, stored: Any, index: tuple[slice, ...]) -> np.ndarray:
    """Reads a part of a tensor, in the layout of the parameter tree.

    Args:
        tensor: what it is.
        stored: sliced as an array of the file's layout; only what is sliced is read.
        index: one slice per axis of the tree's layout, layers apart.
    """
    if not tensor.is_matrix:
        return stored[index]
    inputs, outputs = index
    if len(stored.get_shape()) == 2:
        return stored[outputs, inputs].T
    rows = stored[outputs]
    return rows.reshape(len(rows), -1).T[inputs]


def to_file_layout(tensor: Tensor, value: np.ndarray, config: Config) -> np.ndarray:
    """Turns a part of the parameter tree into the tensor of the file."""
    if not tensor.is_matrix:
        return value
    value = np.ascontiguousarray(value.T)
    if tensor.path != "vision/patch/kernel":
        return value
    vision = config.vision
    return value.reshape(
        -1,
        vision.in_channels,
        vision.temporal_patch_size,
        vision.patch_size,
        vision.patch_size,
    )


def _with_bias(name: str, path: str, layer: int | None) -> Iterator[Tensor]:
    """Lists the weight and the bias of a linear layer or of a LayerNorm."""
    is_norm = "norm" in path.rsplit("/", 1)[-1]
    weight = "scale" if is_norm else "kernel"
    yield Tensor(f"{name}.weight", f"{path}/{weight}", layer, not is_norm)
    yield Tensor(f"{name}.bias", f"{path}/bias", layer, False)
