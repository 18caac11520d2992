"""Checkpoint folders in the Hugging Face format, read and written strictly."""

import functools
import itertools
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jax.sharding import Mesh

from aes_hdc.errors import UserError
from aes_hdc.models.qwen3_vl import names
from aes_hdc.models.qwen3_vl.config import Config, read_config
from aes_hdc.models.qwen3_vl.layers import Dtype
from aes_hdc.models.qwen3_vl.model import SHARDING_RULES, Qwen3VL, init_params
from aes_hdc.models.sharding import parameter_shardings

Params = dict[str, Any]

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
# Files that belong to the tokenizer and are copied as they are.
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "chat_template.json",
    "chat_template.jinja",
)


def param_shapes(config: Config, dtype: Dtype = jnp.float32) -> Params:
    """Returns the parameter tree as `jax.ShapeDtypeStruct`; nothing is computed."""
    model = Qwen3VL(config, param_dtype=dtype)
    return jax.eval_shape(lambda: init_params(model, jax.random.key(0)))


def load_folder(
    folder: str | Path, *, dtype: Dtype = jnp.float32, mesh: Mesh | None = None
) -> tuple[Config, Params]:
    """Loads a checkpoint folder: config.json and one or several safetensors files.

    Parameters are built one after the other, and of each a process reads only what its
    own devices hold, so the host never holds more than one device's part of one.

    Args:
        folder: the folder.
        dtype: type of the parameters, whatever the files hold.
        mesh: where to place them, by the model's sharding rules; None for the default
            device.

    Raises:
        UserError: if a file cannot be read, or its tensors are not exactly those of the
            configuration: missing, unexpected and mis-shaped ones are listed.
    """
    folder = Path(folder)
    config = read_config(folder)
    files = _open(folder)
    tensors = [*names.tensors(config)]
    found = {names.canonical(name): (name, file) for name, file in files.items()}
    if config.tie_word_embeddings:  # Some files repeat the table.
        found.pop("lm_head.weight", None)
    shapes = flax.traverse_util.flatten_dict(param_shapes(config, dtype), sep="/")
    _check(folder, tensors, found, shapes, config)
    stored = {name: file.get_slice(old) for name, (old, file) in found.items()}
    sources = {
        path: [(tensor, stored[tensor.name]) for tensor in parts]
        for path, parts in _by_path(config).items()
    }
    shardings: Mapping[str, Any] = {}
    if mesh is not None:
        tree = flax.traverse_util.unflatten_dict(shapes, sep="/")
        placed = parameter_shardings(tree, mesh, SHARDING_RULES)
        shardings = flax.traverse_util.flatten_dict(placed, sep="/")
    flat = {}
    for path, leaf in shapes.items():
        read = functools.partial(_read, leaf, sources[path])
        if path in shardings:
            array = jax.make_array_from_callback(leaf.shape, shardings[path], read)
        else:  # Left free to go where a program wants it.
            array = jax.device_put(read((slice(None),) * len(leaf.shape)))
        # Transfers run ahead otherwise, and the host holds many parameters at once.
        flat[path] = jax.block_until_ready(array)
    return config, flax.traverse_util.unflatten_dict(flat, sep="/")


def _read(
    leaf: jax.ShapeDtypeStruct,
    sources: Sequence[tuple[names.Tensor, Any]],
    index: tuple[slice, ...],
) -> np.ndarray:
    """Reads one device's part of a parameter, layer by layer, and nothing beside it."""
    starts = [part.indices(n) for part, n in zip(index, leaf.shape, strict=True)]
    out = np.empty([stop - start for start, stop, _ in starts], leaf.dtype)
    for tensor, stored in sources:
        if tensor.layer is None:
            out[...] = names.read_part(tensor, stored, index)
        elif starts[0][0] <= tensor.layer < starts[0][1]:
            part = names.read_part(tensor, stored, index[1:])
            out[tensor.layer - starts[0][0]] = part
    return out


def to_tensors(config: Config, params: Params) -> dict[str, np.ndarray]:
    """Returns a parameter tree, or a tree of gradients, under the published names.

    Args:
        config: the sizes.
        params: a tree like that of `load_folder`.

    Returns:
        Arrays in the layout of the files, linear weights as [outputs, inputs].
    """
    return dict(_each_tensor(config, params))


def _each_tensor(config: Config, params: Params) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the tensors of a file by name; one parameter at a time is on the host."""
    leaves = flax.traverse_util.flatten_dict(params, sep="/")
    for path, tensors in _by_path(config).items():
        whole = np.asarray(leaves[path])
        for tensor in tensors:
            value = whole if tensor.layer is None else whole[tensor.layer]
            yield tensor.name, names.to_file_layout(tensor, value, config)


def _by_path(config: Config) -> dict[str, list[names.Tensor]]:
    """The tensors that make each parameter."""
    found = defaultdict(list)
    for tensor in names.tensors(config):
        found[tensor.path].append(tensor)
    return found


def save_folder(
    folder: str | Path,
    config: Config,
    params: Params,
    *,
    tokenizer_folder: str | Path | None = None,
    preprocessor: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    dtype: Dtype = jnp.bfloat16,
    max_file_bytes: int = 5_000_000_000,
) -> None:
    """Writes a folder for `load_folder` and transformers; a tied head is left out.

    The weights come last and under their final name only once complete, so a folder
    with weights is a whole one.

    Args:
        folder: made if absent; files of the same names are replaced.
        config: the sizes.
        params: the parameter tree.
        tokenizer_folder: where tokenizer files are copied from.
        preprocessor: content of preprocessor_config.json, see
            `processor.ImageProcessor.to_json`.
        generation: content of generation_config.json.
        dtype: type of the stored weights.
        max_file_bytes: more than this is spread over several files.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    name = jnp.dtype(dtype).name
    _write_json(folder / "config.json", config.to_json(name))
    if generation is not None:
        _write_json(folder / "generation_config.json", generation)
    if preprocessor is not None:
        _write_json(folder / "preprocessor_config.json", preprocessor)
    if tokenizer_folder is not None and Path(tokenizer_folder) != folder:
        for file in _TOKENIZER_FILES:
            if (source := Path(tokenizer_folder) / file).exists():
                shutil.copyfile(source, folder / file)
    _write_weights(folder, config, params, jnp.dtype(dtype), max_file_bytes)


def _write_weights(
    folder: Path, config: Config, params: Params, dtype: np.dtype, limit: int
) -> None:
    """Writes one file, or numbered ones with an index, in place of older ones.

    The host holds the tensors of one file, and one parameter.
    """
    groups, total = _plan_files(config, params, dtype, limit)
    for old in (folder / _SINGLE, folder / _INDEX):
        old.unlink(missing_ok=True)
    tensors = _each_tensor(config, params)
    where: dict[str, str] = {}
    for number, group in enumerate(groups, 1):
        file = f"model-{number:05d}-of-{len(groups):05d}.safetensors"
        file = _SINGLE if len(groups) == 1 else file
        values = dict(itertools.islice(tensors, len(group)))
        values = {k: np.ascontiguousarray(v, dtype) for k, v in values.items()}
        partial = folder / f"{file}.partial"
        safetensors.numpy.save_file(values, partial, metadata={"format": "pt"})
        os.replace(partial, folder / file)
        where |= dict.fromkeys(group, file)
    if len(groups) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": where}
        _write_json(folder / _INDEX, index)


def _plan_files(
    config: Config, params: Params, dtype: np.dtype, limit: int
) -> tuple[list[list[str]], int]:
    """Names of the tensors of each file, in the order of `_each_tensor`; all bytes."""
    leaves = flax.traverse_util.flatten_dict(params, sep="/")
    groups: list[list[str]] = [[]]
    used = total = 0
    for path, tensors in _by_path(config).items():
        size = leaves[path].size * dtype.itemsize // len(tensors)
        for tensor in tensors:
            if used and used + size > limit:
                groups.append([])
                used = 0
            groups[-1].append(tensor.name)
            used, total = used + size, total + size
    return groups, total


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=2, sort_keys=True, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _open(folder: Path) -> dict[str, Any]:
    """Opens the files of a folder and returns the open file of every tensor name."""
    index = folder / _INDEX
    listed: Mapping[str, str] | None = None
    files = [_SINGLE]
    if not (folder / _SINGLE).exists() and index.exists():
        try:
            listed = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            files = sorted(set(listed.values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise UserError(f"{index}: not a weight index ({error!r})") from error
    where: dict[str, Any] = {}
    for file in files:
        path = folder / file
        if Path(file).name != file or not path.exists():
            raise UserError(
                f"{path}: no such file; a checkpoint folder has {_SINGLE}, or {_INDEX} "
                "and the files it names"
            )
        try:
            opened = safetensors.safe_open(path, framework="numpy")
        except safetensors.SafetensorError as error:
            raise UserError(f"{path}: not a safetensors file ({error})") from error
        where |= dict.fromkeys(opened.keys(), opened)
    if listed is not None and (gone := sorted(set(listed) - set(where))):
        raise UserError(f"{index}: lists {_some(gone)}, which its files do not hold")
    return where


def _check(
    folder: Path,
    tensors: list[names.Tensor],
    found: Mapping[str, tuple[str, Any]],
    shapes: Mapping[str, jax.ShapeDtypeStruct],
    config: Config,
) -> None:
    """Raises UserError unless the found tensors are exactly the expected ones."""
    expected = {tensor.name for tensor in tensors}
    wrong = []
    for tensor in tensors:
        if tensor.name in found:
            name, file = found[tensor.name]
            have = tuple(file.get_slice(name).get_shape())
            shape = shapes[tensor.path].shape
            shape = shape if tensor.layer is None else shape[1:]
            want = names.to_file_layout(
                tensor, np.broadcast_to(np.int8(0), shape), config
            ).shape
            if have != want:
                wrong.append(f"{name} {list(have)} instead of {list(want)}")
    problems = {
        "missing": sorted(expected - set(found)),
        "unexpected": sorted(found[name][0] for name in set(found) - expected),
        "mis-shaped": wrong,
    }
    text = "; ".join(f"{kind}: {_some(bad)}" for kind, bad in problems.items() if bad)
    if text:
        raise UserError(f"{folder}: tensors do not fit config.json; {text}")


def _some(items: list[str], limit: int = 8) -> str:
    """Joins at most `limit` items and counts the rest."""
    rest = len(items) - limit
    return ", ".join(items[:limit]) + (f" and {rest} more" if rest > 0 else "")
