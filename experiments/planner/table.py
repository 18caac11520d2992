"""Compiles the programs of a plan and prints them, one line each as it is known."""

import re
from collections.abc import Mapping
from typing import Any

import jax
from jax.experimental import topologies

from aes_hdc.errors import UserError
from aes_hdc.models.sharding import make_mesh
from experiments.planner import compiler, programs, roofline

_GIB = 2**30


def make_rows(config: Mapping[str, Any], topology: str) -> list[dict[str, Any]]:
    """Plans a config for a topology such as v5e:4x4; prints and returns a row each.

    Args:
        config: plain nested dicts.
        topology: chip and shape.

    Raises:
        UserError: for an unknown chip, or a mesh that needs other devices than it has.
    """
    name, _, shape = topology.partition(":")
    if name not in roofline.CHIPS or not re.fullmatch(r"\d+(x\d+)*", shape):
        raise UserError(
            f"--topology={topology}: write CHIP:SHAPE, as v5e:4x4; chips are"
            f" {', '.join(roofline.CHIPS)}"
        )
    chip = roofline.CHIPS[name]
    devices, has_compiler = _devices(topology)
    mesh = make_mesh(*config["model"]["mesh"], devices=devices)
    if mesh.size != len(devices):
        raise UserError(
            f"--config.model.mesh={tuple(config['model']['mesh'])}: {mesh.size} of the"
            f" {len(devices)} chips of {topology}; use them all"
        )
    plan = programs.make_plan(config, mesh)
    sizes = {k: programs.bytes_per_chip(tree) for k, tree in plan.resident.items()}
    print(f"{topology}, mesh {dict(mesh.shape)}; always on each chip, GiB:")
    for what, size in sizes.items():
        print(f"  {what:12} {size / _GIB:6.2f}")
    rows = []
    for program, traced in programs.abstract_calls(plan):
        row = _analytic(roofline.estimate(plan, program, traced, chip))
        row = {"program": program.name} | row
        if has_compiler:
            found = compiler.compile_for_tpu(traced, mesh, program.steps)
            beside = sum(size for k, size in sizes.items() if k not in program.holds)
            row |= _measured(found, beside, chip)
        print(_line(row), flush=True)
        rows.append(row)
    return rows


def _devices(topology: str) -> tuple[Any, bool]:
    """The chips of a topology; stand-ins, and a printed line, without the compiler."""
    try:
        found = topologies.get_topology_desc(topology, "tpu").devices
        return found, True
    except (RuntimeError, ValueError, NotImplementedError) as error:
        told = str(error).splitlines()[0]
        print(
            f"no TPU compiler, so only the analytic part (pip install libtpu): {told}"
        )
    count = 1
    for side in topology.partition(":")[2].split("x"):
        count *= int(side)
    if count > jax.device_count():
        raise UserError(
            f"--topology={topology}: without libtpu set JAX_NUM_CPU_DEVICES={count}"
        )
    return jax.devices()[:count], False


def _analytic(line: roofline.Roofline) -> dict[str, Any]:
    return {
        "tflop": line.flops / 1e12,
        "hbm_gb": line.hbm / 1e9,
        "ici_gb": line.ici / 1e9,
        "ms": 1e3 * max(line.times.values()),
        "bound": line.bound,
        "ceiling": line.utilisation,
    }


def _measured(
    found: compiler.Compiled, beside: int, chip: roofline.Chip
) -> dict[str, Any]:
    row: dict[str, Any] = {"compile_s": found.seconds, "failure": found.failure}
    if found.failure:
        return row | {"fits": False}
    row["peak_gib"] = (found.peak + beside) / _GIB
    row["temporary_gib"] = found.temporary / _GIB
    row["fits"] = found.peak + beside <= chip.hbm
    row["traffic"] = {
        kind: [t.written, t.runs, t.bytes / 1e9]
        for kind, t in sorted(found.traffic.items())
    }
    return row


def _line(row: Mapping[str, Any]) -> str:
    text = (
        f"{row['program']:28} {row['tflop']:7.2f} TFLOP {row['hbm_gb']:7.2f} GB"
        f" {row['ici_gb']:6.2f} GB sent  {row['ms']:8.1f} ms ({row['bound']},"
        f" ceiling {row['ceiling']:.0%})"
    )
    if "fits" not in row:
        return text
    if row["failure"]:
        return f"{text}  does not fit: {row['failure']}"
    word = "fits" if row["fits"] else "does not fit"
    traffic = ", ".join(
        f"{kind} {written} (x{runs}, {size:.2f} GB)"
        for kind, (written, runs, size) in row["traffic"].items()
    )
    return (
        f"{text}  {word}: {row['peak_gib']:.2f} GiB, temporary"
        f" {row['temporary_gib']:.2f}; {traffic or 'nothing sent'};"
        f" {row['compile_s']:.0f}s"
    )
