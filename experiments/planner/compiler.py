"""What the TPU compiler says of a program: memory, and what chips send each other."""

import math
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.sharding import Mesh

COLLECTIVES = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
)
_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2}
_BYTES |= {"f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8, "u64": 8}


@dataclass
class Traffic:
    """Collectives of one kind.

    Attributes:
        written: how often it stands in the program.
        runs: how often it is run, loops counted.
        bytes: of its results on one chip, over all runs.
    """

    written: int = 0
    runs: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Compiled:
    """One compiled program.

    Attributes:
        seconds: compilation took.
        arguments: bytes a chip.
        temporary: bytes a chip, beside arguments and results.
        results: bytes a chip that are not written over an argument.
        traffic: by kind of collective.
        failure: the compiler's word where it gave up, else empty.
    """

    seconds: float
    arguments: int = 0
    temporary: int = 0
    results: int = 0
    traffic: Mapping[str, Traffic] = field(default_factory=dict)
    failure: str = ""

    @property
    def peak(self) -> int:
        """Bytes a chip while it runs."""
        return self.arguments + self.temporary + self.results


def compile_for_tpu(traced: Any, mesh: Mesh, steps: int = 1) -> Compiled:
    """Compiles a traced program for the mesh's devices.

    Args:
        traced: by `jit(f).trace`, on this mesh.
        mesh: devices of a topology.
        steps: of while loops whose length the compiler does not know.
    """
    start = time.perf_counter()
    with jax.set_mesh(mesh):
        try:
            compiled = traced.lower(lowering_platforms=("tpu",)).compile()
        except jax.errors.JaxRuntimeError as error:
            seconds = time.perf_counter() - start
            return Compiled(seconds, failure=_reason(str(error)))
    memory = compiled.memory_analysis()
    return Compiled(
        time.perf_counter() - start,
        memory.argument_size_in_bytes,
        memory.temp_size_in_bytes,
        memory.output_size_in_bytes - memory.alias_size_in_bytes,
        read_traffic(compiled.as_text(), steps),
    )


def _reason(message: str) -> str:
    """The line that says what was short, or the first one."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return next((line for line in lines if "hbm" in line.lower()), lines[0])[:200]


_HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) (?:\(.*)?\{$")
_CALL = re.compile(r"(?:calls|to_apply|body|condition)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'known_trip_count"?:\s*\{"n":"(\d+)"')
_KIND = re.compile(rf" ({'|'.join(COLLECTIVES)})(-start)?\(")
_SHAPE = re.compile(r"\b(\w+)\[([\d,]*)\]")


def read_traffic(text: str, steps: int = 1) -> dict[str, Traffic]:
    """Counts the collectives of a compiled program's text, each as often as it runs.

    Args:
        text: HLO, as `compiled.as_text()` gives it.
        steps: of while loops whose length the text does not give.
    """
    bodies: dict[str, list[str]] = {}
    lines: list[str] = []
    entry = ""
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            lines = bodies.setdefault(head.group(1), [])
            entry = head.group(1) if line.startswith("ENTRY") else entry
        elif line.startswith(" "):
            lines.append(line)
    found: dict[str, Traffic] = {}
    runs = _runs(bodies, entry, steps)
    for name, body in bodies.items():
        for line in body:
            kind = _KIND.search(line)
            if kind is None or not runs[name]:
                continue
            traffic = found.setdefault(kind.group(1), Traffic())
            traffic.written += 1
            traffic.runs += runs[name]
            traffic.bytes += runs[name] * _result_bytes(line[: kind.start()])
    return found


def _runs(bodies: Mapping[str, list[str]], entry: str, steps: int) -> Counter[str]:
    """How often each computation runs."""
    runs: Counter[str] = Counter()

    def visit(name: str, times: int) -> None:
        runs[name] += times
        for line in bodies.get(name, ()):
            for callee, factor in _callees(line, steps):
                visit(callee, times * factor)

    visit(entry, 1)
    return runs


def _callees(line: str, steps: int) -> Iterator[tuple[str, int]]:
    """The computations that a line calls, and how often."""
    factor = 1
    if " while(" in line:
        trips = _TRIPS.search(line)
        factor = int(trips.group(1)) if trips else steps
    for callee in _CALL.findall(line):
        yield callee, factor
    for branches in _BRANCHES.findall(line):
        for callee in branches.split(","):
            yield callee.strip().lstrip("%"), 1


def _result_bytes(text: str) -> int:
    """Bytes of the largest array in an instruction's result."""
    sizes = [
        math.prod(int(n) for n in dims.split(",") if n) * _BYTES[kind]
        for kind, dims in _SHAPE.findall(text)
        if kind in _BYTES
    ]
    return max(sizes, default=0)
