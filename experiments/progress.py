"""One line a step, with the time that is left; no bars, so that logs read well."""

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from experiments.artefacts import Stage

_COUNT = re.compile(r"num_|.*_size$|max_|.*_updates$|episodes|trajectories")
_WORDS = {
    "current": "up to date",
    "absent": "to do",
    "interrupted": "to do, carries on",
    "grown": "to do, carries on",
    "stale": "to do, inputs changed",
    "restart": "to do again",
}


def duration(seconds: float) -> str:
    """Writes a time for people: 8s, 3m20s, 2h05m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


class Progress:
    """Prints how far a stage is.

    The time left is judged by the steps of this process after the first, because the
    first one compiles.
    """

    def __init__(
        self,
        label: str,
        total: int,
        *,
        done: int = 0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Starts counting.

        Args:
            label: what is printed first, such as the stage's name.
            total: how many steps there are.
            done: how many an earlier process has done.
            stream: where to print; stdout if None.
            clock: seconds, for tests.
        """
        self._label = label
        self._total = total
        self._first = done
        self._stream = stream
        self._clock = clock
        self._started = clock()
        self._after_first = 0.0

    def step(self, done: int, **values: float | str) -> None:
        """Prints one line.

        Args:
            done: steps done so far, in 1..total.
            values: what to show; floats with three decimals.
        """
        now = self._clock()
        steps = done - self._first
        if steps <= 1:
            self._after_first = now
            rate = now - self._started
        else:
            rate = (now - self._after_first) / (steps - 1)
        shown = "".join(
            f"  {name} {value:.3f}" if isinstance(value, float) else f"  {name} {value}"
            for name, value in values.items()
        )
        left = duration(rate * (self._total - done))
        width = len(str(self._total))
        print(
            f"{self._label} {done:>{width}}/{self._total}{shown}"
            f"  {duration(now - self._started)}, {left} left",
            file=self._stream or sys.stdout,
            flush=True,
        )


def plan_text(plan: Sequence[Stage], workdir: Path, config_hash: str) -> str:
    """Says what is up to date and what is to be done, with its sizes.

    Args:
        plan: the stages asked for.
        workdir: the run folder.
        config_hash: of the whole config.
    """
    lines = [f"plan for {workdir} (config {config_hash[:12]})"]
    for stage in plan:
        if stage.is_current:
            note = f"{_size(stage.folder)}, took {duration(stage.seconds)}"
        else:
            own = [*stage.config.values()][-1] if stage.config else {}
            note = ", ".join(f"{name} {value}" for name, value in _counts(own))
        lines.append(f"  {stage.name:<10} {_WORDS[stage.status]:<24} {note}".rstrip())
    return "\n".join(lines)


def _counts(config: Any) -> Iterator[tuple[str, int]]:
    """The whole numbers in a section that say how much work there is."""
    if not isinstance(config, Mapping):
        return
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _counts(value)
        elif type(value) is int and _COUNT.match(name):
            yield name, value


def _size(folder: Path) -> str:
    """The bytes below a folder, for people."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return f"{size / 1e6:.1f} MB" if size >= 50_000 else f"{size / 1e3:.1f} kB"
