"""A lower bound on a program's time: what it computes, reads and sends, by hand.

The compiler's own cost table counts the body of a loop once, however often it runs;
here the products of a traced program are counted with the lengths of its scans.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from aes_hdc.models.qwen3_vl.config import Config
from experiments.planner.programs import Plan, Program


@dataclass(frozen=True)
class Chip:
    """Peak rates of one chip.

    Attributes:
        flops: bfloat16 products and sums a second.
        hbm: bytes of memory.
        hbm_rate: bytes a second.
        ici_rate: bytes a second between chips, all links of one chip together.
    """

    flops: float
    hbm: float
    hbm_rate: float
    ici_rate: float


# Google Cloud's pages "TPU v4", "v5e", "v5p" and "v6e"; memory in GiB.
CHIPS: Mapping[str, Chip] = {
    "v4": Chip(275e12, 32 * 2**30, 1228e9, 300e9),
    "v5e": Chip(197e12, 16 * 2**30, 819e9, 200e9),
    "v5p": Chip(459e12, 95 * 2**30, 2765e9, 600e9),
    "v6e": Chip(918e12, 32 * 2**30, 1640e9, 448e9),
}


@dataclass(frozen=True)
class Roofline:
    """Work of one program on one chip.

    Attributes:
        flops: of all matrix products.
        hbm: bytes that the products read and write; all else is taken to be fused.
        ici: bytes received: weights that are gathered, gradients and activations that
            are added up.
        useful: flops that a program without padding, recomputation and attention needs:
            2 a weight and token forward, 6 with backward.
        chip: its rates.
    """

    flops: float
    hbm: float
    ici: float
    useful: float
    chip: Chip

    @property
    def times(self) -> dict[str, float]:
        """Seconds at the peak rate of each part."""
        return {
            "compute": self.flops / self.chip.flops,
            "memory": self.hbm / self.chip.hbm_rate,
            "network": self.ici / self.chip.ici_rate,
        }

    @property
    def bound(self) -> str:
        """The part that takes longest."""
        return max(self.times, key=self.times.__getitem__)

    @property
    def utilisation(self) -> float:
        """The highest share of peak flops that can be useful, in 0..1."""
        longest = max(self.times.values())
        return self.useful / self.chip.flops / longest if longest else 0.0


def estimate(plan: Plan, program: Program, traced: Any, chip: Chip) -> Roofline:
    """Counts the work of a traced program, spread evenly over the chips.

    Args:
        plan: it belongs to.
        program: what was traced.
        traced: by `jit(f).trace`.
        chip: whose rates count.
    """
    chips, tp = plan.mesh.size, plan.mesh.shape["tp"]
    weights = _weight_shapes(plan.resident["parameters"])
    flops = hbm = gathered = 0.0
    for equation, times in _products(traced.jaxpr.jaxpr, program.steps):
        left, right = (var.aval for var in equation.invars)
        out = equation.outvars[0].aval
        flops += times * _flops(equation)
        for aval in (left, right, out):
            is_weight = _shape(aval) in weights
            # A weight is whole on every chip of a replica, but for its part by tp.
            size = times * _bytes(aval) / (tp if is_weight else chips)
            hbm += size
            if is_weight:
                gathered += size
    away = 1 - 1 / (plan.mesh.shape["data"] * plan.mesh.shape["fsdp"])
    fsdp_away = 1 - 1 / plan.mesh.shape["fsdp"]
    trained = program.passes > 1
    ici = gathered * (away if trained else fsdp_away)
    ici += _reduced(plan.config, program, plan.mesh.shape)
    if not flops:  # Element by element: everything is read and written once.
        hbm = 2.0 * sum(_bytes(leaf) for leaf in jax.tree.leaves(program.args)) / chips
    count = sum(leaf.size for leaf in jax.tree.leaves(plan.resident["parameters"]))
    useful = (6 if trained else 2) * count * program.tokens
    return Roofline(flops / chips, hbm, ici, useful / chips, chip)


def _reduced(config: Config, program: Program, mesh: Mapping[str, int]) -> float:
    """Bytes of activations that chips of one tp group add up: two a layer and pass."""
    tp = mesh["tp"]
    text = config.text
    tokens = program.tokens / (mesh["data"] * mesh["fsdp"])
    per_pass = 2 * text.num_hidden_layers * tokens * text.hidden_size * 2
    return program.passes * per_pass * 2 * (tp - 1) / tp


def _weight_shapes(params: Any) -> set[tuple[int, ...]]:
    """Shapes of matrices as one layer sees them, both ways round."""
    found = set()
    for leaf in jax.tree.leaves(params):
        if len(leaf.shape) >= 2:
            found |= {leaf.shape[-2:], leaf.shape[:-3:-1]}
    return found


def _products(jaxpr: Any, steps: int, times: int = 1) -> Iterator[tuple[Any, int]]:
    """Yields every matrix product with how often it runs.

    Of a branch the costlier side counts, of a while loop `steps` runs.
    """
    for equation in jaxpr.eqns:
        inner = times
        if equation.primitive.name == "dot_general":
            yield equation, times
            continue
        if equation.primitive.name == "scan":
            inner *= equation.params["length"]
        if equation.primitive.name == "while":
            inner *= steps
        if equation.primitive.name == "cond":
            yield from max(
                ([*_products(b.jaxpr, steps, inner)] for b in _jaxprs(equation)),
                key=lambda found: sum(n * _flops(e) for e, n in found),
            )
            continue
        for closed in _jaxprs(equation):
            yield from _products(getattr(closed, "jaxpr", closed), steps, inner)


def _jaxprs(equation: Any) -> Iterator[Any]:
    """The programs inside an equation."""
    for value in equation.params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if hasattr(part, "eqns") or hasattr(part, "jaxpr"):
                yield part


def _flops(equation: Any) -> float:
    """Two for every product of numbers."""
    (contract, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval.shape
    out = equation.outvars[0].aval.shape
    return 2.0 * math.prod(out) * math.prod(left[axis] for axis in contract)


def _bytes(aval: Any) -> float:
    return float(math.prod(aval.shape) * aval.dtype.itemsize)


def _shape(aval: Any) -> tuple[int, ...]:
    return tuple(aval.shape)
