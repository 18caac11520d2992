"""Logical axes of arrays, and the mesh axes that shard them."""

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from aes_hdc.errors import UserError

_T = TypeVar("_T")

MESH_AXES = ("data", "fsdp", "tp")

# Where a dimension of each kind goes. A mesh axis shards one dimension of an array at
# most: the first that asks for it. So "embed" is sharded in parameters, and whole in
# activations, whose "batch" has taken fsdp.
AXIS_RULES: Mapping[str, tuple[str, ...]] = {
    "batch": ("data", "fsdp"),
    "length": (),
    "embed": ("fsdp",),
    "heads": ("tp",),
    "kv_heads": ("tp",),
    "head_dim": (),
    "mlp": ("tp",),
    "vocab": ("tp",),
    "patch": (),
    "layers": (),
}

# An ordered list of (pattern searched in a parameter's path, logical axes). The axes
# belong to the last dimensions; those before them, such as stacked layers, stay whole.
ParameterRules = Sequence[tuple[str, tuple[str, ...]]]


def make_mesh(
    data: int = 1,
    fsdp: int = 1,
    tp: int = 1,
    *,
    devices: Sequence[Any] | None = None,
) -> Mesh:
    """Builds the mesh (data, fsdp, tp) over the first devices.

    Args:
        data: parts of the batch; parameters are whole in each.
        fsdp: parts of batch and parameters alike.
        tp: parts of heads, MLP and vocabulary.
            One of the three may be -1, which takes the devices that are left.
        devices: those of a topology that is not there; None for this process group's.

    Raises:
        UserError: if the sizes do not fit the devices.
    """
    devices = jax.devices() if devices is None else devices
    sizes, num_devices = [data, fsdp, tp], len(devices)
    text = ", ".join(f"{k}={v}" for k, v in zip(MESH_AXES, sizes, strict=True))
    if sizes.count(-1) > 1 or any(size < 1 and size != -1 for size in sizes):
        raise UserError(f"mesh {text}: sizes are at least 1, and one of them may be -1")
    if -1 in sizes:
        fixed = -math.prod(sizes)
        sizes[sizes.index(-1)] = max(num_devices // fixed, 1)
    if math.prod(sizes) > num_devices:
        raise UserError(
            f"mesh {text}: needs {math.prod(sizes)} devices, there are {num_devices}; "
            "lower a size"
        )
    return jax.make_mesh(
        tuple(sizes),
        MESH_AXES,
        (AxisType.Auto,) * len(MESH_AXES),
        devices=devices[: math.prod(sizes)],
    )


def partition_spec(axes: Sequence[str | None]) -> PartitionSpec:
    """Translates logical axes to mesh axes, each mesh axis used at most once.

    Raises:
        ValueError: if an axis is not one of `AXIS_RULES`.
    """
    taken: set[str] = set()
    spec: list[tuple[str, ...] | str | None] = []
    for axis in axes:
        if axis is not None and axis not in AXIS_RULES:
            raise ValueError(f"logical axis {axis!r} is not one of {[*AXIS_RULES]}")
        free = tuple(m for m in AXIS_RULES.get(axis or "", ()) if m not in taken)
        taken.update(free)
        spec.append(free[0] if len(free) == 1 else free or None)
    return PartitionSpec(*spec)


def constrain(x: jax.Array, *axes: str | None) -> jax.Array:
    """Asks the compiler to shard an activation by its logical axes.

    Outside `jax.set_mesh`, or on a mesh of one device, this is the identity. A
    dimension that its mesh axes do not divide stays whole, which costs memory but
    changes no number.

    Args:
        x: any array.
        axes: one logical name, or None, per dimension.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1:
        return x
    if len(axes) != x.ndim:
        raise ValueError(f"{len(axes)} logical axes {axes} for the shape {x.shape}")
    spec = _fitting_spec(x.shape, axes, mesh.shape)
    return jax.lax.with_sharding_constraint(x, spec)


def array_sharding(
    mesh: Mesh, shape: Sequence[int], axes: Sequence[str | None]
) -> NamedSharding:
    """Where `constrain` puts an array of this shape; for arrays made by the host."""
    return NamedSharding(mesh, _fitting_spec(shape, axes, mesh.shape))


def row_shardings(tree: _T, mesh: Mesh) -> _T:
    """Where the arrays of a batch lie: their rows are spread over the mesh.

    Args:
        tree: NamedTuples of arrays; the first axis counts rows, that of `positions` is
            its second.
        mesh: from `make_mesh`.
    """

    def place(path: Any, leaf: Any) -> NamedSharding:
        rows = 1 if getattr(path[-1], "name", "") == "positions" else 0
        shape = np.shape(leaf)
        axes = ["batch" if axis == rows else None for axis in range(len(shape))]
        return array_sharding(mesh, shape, axes)

    return jax.tree_util.tree_map_with_path(place, tree)


def on_mesh(mesh: Mesh | None, program: Callable[..., _T]) -> Callable[..., _T]:
    """Returns the program with `mesh` set whenever it is called, in any thread."""
    if mesh is None:
        return program

    @functools.wraps(program)
    def call(*args: Any, **kwargs: Any) -> _T:
        with jax.set_mesh(mesh):
            return program(*args, **kwargs)

    return call


def parameter_shardings(params: Any, mesh: Mesh, rules: ParameterRules) -> Any:
    """Assigns a sharding to every parameter: that of the first rule its path matches.

    Args:
        params: nested dicts of arrays or `jax.ShapeDtypeStruct`.
        mesh: from `make_mesh`.
        rules: patterns over paths such as "text/layers/q/kernel", with logical axes.

    Returns:
        A tree like `params` of `NamedSharding`.

    Raises:
        ValueError: if a parameter matches no rule, or a rule no parameter.
        UserError: if a mesh size does not divide a dimension it shards.
    """
    unused = {pattern for pattern, _ in rules}

    def assign(keys: Any, leaf: Any) -> NamedSharding:
        path = "/".join(str(key.key) for key in keys)
        for pattern, axes in rules:
            if re.search(pattern, path):
                unused.discard(pattern)
                spec = _leaf_spec(path, pattern, axes, leaf.shape, mesh)
                return NamedSharding(mesh, spec)
        raise ValueError(f"parameter {path} matches no sharding rule; add one")

    shardings = jax.tree_util.tree_map_with_path(assign, params)
    if unused:
        raise ValueError(
            f"sharding rules {sorted(unused)} match no parameter; remove them"
        )
    return shardings


def _leaf_spec(
    path: str, pattern: str, axes: Sequence[str], shape: Sequence[int], mesh: Mesh
) -> PartitionSpec:
    """Aligns `axes` to the last dimensions of one parameter and checks the sizes."""
    if len(axes) > len(shape):
        raise ValueError(
            f"rule {pattern!r} names {len(axes)} axes, {path} has shape {shape}"
        )
    spec = partition_spec((None,) * (len(shape) - len(axes)) + tuple(axes))
    for size, part in zip(shape, spec, strict=True):
        if size % _num_parts(part, mesh.shape):
            raise UserError(
                f"parameter {path} {tuple(shape)}: mesh axes {part!r} of rule "
                f"{pattern!r} do not divide {size}; choose another mesh than "
                f"{dict(mesh.shape)}"
            )
    return spec


def _fitting_spec(
    shape: Sequence[int], axes: Sequence[str | None], sizes: Mapping[str, int]
) -> PartitionSpec:
    """The spec of an activation: what its mesh axes do not divide stays whole."""
    spec = [
        part if size % _num_parts(part, sizes) == 0 else None
        for part, size in zip(partition_spec(axes), shape, strict=True)
    ]
    return PartitionSpec(*spec)


def _num_parts(part: Any, sizes: Mapping[str, int]) -> int:
    """Returns into how many pieces one entry of a PartitionSpec cuts a dimension."""
    return math.prod(sizes[name] for name in _names(part))


def _names(part: Any) -> Iterator[str]:
    """Lists the mesh axes in one entry of a PartitionSpec."""
    if isinstance(part, str):
        yield part
    elif part is not None:
        yield from part
