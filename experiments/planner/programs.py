"""The programs of a config with abstract arguments: shapes, types and places alone."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from aes_hdc.learner.batch import empty_batch
from aes_hdc.learner.gradients import make_sketch
from aes_hdc.learner.losses import LossSettings
from aes_hdc.learner.optimizer import make_optimizer
from aes_hdc.learner.step import (
    TrainState,
    make_accumulate,
    make_apply,
    make_gradient,
    optimizer_shapes,
)
from aes_hdc.models.qwen3_vl.config import Config, known_config
from aes_hdc.models.qwen3_vl.model import SHARDING_RULES, Qwen3VL
from aes_hdc.models.qwen3_vl.processor import ImageProcessor
from aes_hdc.models.qwen3_vl.weights import param_shapes
from aes_hdc.models.sharding import parameter_shardings, row_shardings
from aes_hdc.policy.distribution import TokenDistribution
from aes_hdc.policy.logprobs import init_value_head
from aes_hdc.policy.sampling import (
    DecodeShape,
    PrefillShape,
    make_decode,
    make_prefill,
    pool_shapes,
)
from aes_hdc.rollouts import calls
from experiments.runtime import EMBEDDED, learner_shapes

# Of the public tokenizer: no token belongs to the rows behind them.
NUM_TOKENS = 151_669
END_IDS = (151_645, 151_643)


@dataclass(frozen=True)
class Program:
    """One jitted function of a run and what it is called with.

    Attributes:
        name: with its sizes.
        function: jitted.
        args: trees of `jax.ShapeDtypeStruct` with shardings.
        static: static keyword arguments.
        holds: which of the run's resident trees are among the arguments.
        tokens: that it reads or writes, padding included, on all chips.
        passes: over the weights of a layer: 1 forward, 3 with backward and remat.
        steps: of its while loop, where the program decides when to end.
    """

    name: str
    function: Any
    args: tuple[Any, ...]
    holds: tuple[str, ...]
    tokens: int
    passes: int = 1
    steps: int = 1
    static: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """All programs of a config on a mesh.

    Attributes:
        config: the model's sizes.
        mesh: of devices that need not be there.
        resident: trees that live on the chips all the time, by name.
        programs: in the order of an update.
    """

    config: Config
    mesh: Mesh
    resident: Mapping[str, Any]
    programs: tuple[Program, ...]


def make_plan(config: Mapping[str, Any], mesh: Mesh) -> Plan:
    """Returns what a config would run on a mesh.

    Args:
        config: plain nested dicts, as in a run folder.
        mesh: from `make_mesh`.

    Raises:
        UserError: if the model's folder is neither there nor one of the public names,
            or the mesh does not divide the model.
    """
    section = config["model"]
    sizes, images = _model_sizes(section["folder"])
    model = Qwen3VL(
        sizes,
        dtype=jnp.dtype(section["dtype"]),
        remat=section["remat"] or None,
        unroll=section["unroll"],
    )
    vocabulary = sizes.text.vocab_size
    forbidden = (
        sizes.image_token_id,
        sizes.vision_start_token_id,
        sizes.vision_end_token_id,
        *range(min(NUM_TOKENS, vocabulary), vocabulary),
    )
    sampled = {k: section[k] for k in ("temperature", "top_k", "top_p", "min_p")}
    distribution = TokenDistribution(forbidden, **sampled)
    side = config["environments"]["frame_px"]
    height, width = images.grid(side, side)
    patches = (height * width, sizes.vision.patch_values)
    params = _placed_params(sizes, mesh)
    learner = _learner_programs(config, model, distribution, params, patches, mesh)
    rollout = _rollout_programs(config, model, distribution, params, patches, mesh)
    programs, resident = [], {"parameters": params}
    for found, kept in (rollout, learner):
        programs += found
        resident |= kept
    return Plan(sizes, mesh, resident, tuple(programs))


def bytes_per_chip(tree: Any) -> int:
    """Adds up what the fullest device holds of a tree of placed shapes."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def _model_sizes(folder: str) -> tuple[Config, ImageProcessor]:
    """Reads a folder; for a public name without one, the sizes that are known."""
    path = Path(folder) if folder else EMBEDDED
    images = ImageProcessor()
    if (path / "preprocessor_config.json").is_file():
        images = ImageProcessor.from_folder(path)
    return known_config(path), images


def _placed(tree: Any, shardings: Any) -> Any:
    """Joins arrays or shapes with where they lie."""
    return jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(
            np.shape(leaf), leaf.dtype, sharding=place
        ),
        tree,
        shardings,
    )


def _rows(tree: Any, mesh: Mesh) -> Any:
    """A batch made by the host, spread by row."""
    return _placed(tree, row_shardings(tree, mesh))


def _placed_params(sizes: Config, mesh: Mesh) -> Any:
    shapes = param_shapes(sizes)
    return _placed(shapes, parameter_shardings(shapes, mesh, SHARDING_RULES))


def _learner_programs(
    config: Mapping[str, Any],
    model: Qwen3VL,
    distribution: TokenDistribution,
    params: Any,
    patches: tuple[int, int],
    mesh: Mesh,
) -> tuple[list[Program], dict[str, Any]]:
    """Gradient of each micro-batch, their sum, the update, the sketch."""
    section = config["learner"]
    whole = NamedSharding(mesh, PartitionSpec())
    if section["algorithm"] == "ppo":
        head = init_value_head(model.config.text.hidden_size)
        params = {**params, "value": _placed(head, jax.tree.map(lambda _: whole, head))}
    settings = dataclasses.replace(
        LossSettings(**section["loss"]), by_row=section["aggregation"] == "sequence"
    )
    gradient = make_gradient(model, distribution.full(), settings)
    passes = 3 if model.remat else 2
    programs = []
    for shape in learner_shapes(section["shapes"], patches):
        batch = _rows(empty_batch(shape), mesh)
        tokens = shape.rows * shape.slots + shape.openings * shape.opening_slots
        name = f"gradient {shape.rows}x{shape.slots}"
        programs.append(
            Program(name, gradient, (params, batch), ("parameters",), tokens, passes)
        )
    optimizer = make_optimizer(**section["optimizer"])
    places = jax.tree.map(lambda leaf: leaf.sharding, params)
    shapes, kept = optimizer_shapes(optimizer, params, places)
    kept = jax.tree.map(
        lambda place: whole if place is None else place,
        kept,
        is_leaf=lambda place: place is None,
    )
    state = TrainState(params, _placed(shapes, kept))
    places = tuple(leaf.sharding for leaf in jax.tree.leaves(state))
    divisor = _placed(np.float32(1), whole)
    sketch = make_sketch(config["gradients"]["sketch_size"])
    programs += [
        Program("accumulate", make_accumulate(), (params, params), ("gradients",), 0),
        Program(
            "update",
            make_apply(optimizer, places),
            (state, params, divisor),
            ("parameters", "optimizer", "gradients"),
            0,
        ),
        Program("sketch", sketch, (params,), ("gradients",), 0),
    ]
    return programs, {"optimizer": state.opt_state, "gradients": params}


def _rollout_programs(
    config: Mapping[str, Any],
    model: Qwen3VL,
    distribution: TokenDistribution,
    params: Any,
    patches: tuple[int, int],
    mesh: Mesh,
) -> tuple[list[Program], dict[str, Any]]:
    """Prefills and decodes of every shape, and the pool they share."""
    section = config["rollout"]
    prefills = [PrefillShape(*shape) for shape in section["prefill"]]
    decodes = [DecodeShape(*shape) for shape in section["decode"]]
    new = section["max_new_tokens"]
    slots = decodes[-1].span + max(new, *(shape.width for shape in prefills))
    pool = pool_shapes(model, section["capacity"], slots, mesh)
    scratch = pool.k.shape[1] - 1
    prefill: Callable[..., Any] = make_prefill(model)
    decode: Callable[..., Any] = make_decode(
        model, distribution, max_new_tokens=new, end_ids=END_IDS
    )
    programs = []
    for shape in prefills:
        chunk = calls.make_chunk([], shape, patch_shape=patches, scratch=scratch)
        programs.append(
            Program(
                f"prefill {shape.rows}x{shape.width} after {shape.span}",
                prefill,
                (params, pool, _rows(chunk, mesh)),
                ("parameters", "cache"),
                shape.rows * shape.width,
                static={"span": shape.span},
            )
        )
    for reply in decodes:
        prompts = calls.make_prompts([], reply, scratch=scratch, seed=0, names=())
        programs.append(
            Program(
                f"decode {reply.rows}x{new} after {reply.span}",
                decode,
                (params, pool, _rows(prompts, mesh)),
                ("parameters", "cache"),
                reply.rows * new,
                steps=new - 1,
                static={"span": reply.span},
            )
        )
    return programs, {"cache": pool}


def abstract_calls(plan: Plan) -> Iterator[tuple[Program, Any]]:
    """Traces every program on the plan's mesh; yields it with the trace."""
    for program in plan.programs:
        with jax.set_mesh(plan.mesh):
            yield program, program.function.trace(*program.args, **program.static)
