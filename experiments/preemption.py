"""SIGTERM and preemption notices: a run ends between updates, with a checkpoint.

The first SIGTERM asks the run to stop. Where the work at hand can be thrown away, it
stops at once by an exception; elsewhere, as inside an update, at the next `check`. A
second SIGTERM ends the process as it would without us.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType


class Stopped(Exception):
    """Raised where a stop was asked for and nothing is half done."""


class _State:
    """What was asked for, and whether the main thread may be interrupted."""

    requested = False
    depth = 0


def listen() -> None:
    """Takes SIGTERM over, in the main thread; elsewhere it does nothing."""
    _State.requested, _State.depth = False, 0
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _on_signal)


def is_requested() -> bool:
    """Whether a stop was asked for, where something is to be saved before `check`."""
    return _State.requested


def check(step: int | None = None) -> None:
    """Raises `Stopped` if a stop was asked for.

    Args:
        step: number of the update. With it, processes of one job agree on where to
            stop when the cluster announces a preemption to any of them.
    """
    if step is not None and _is_announced(step):
        _State.requested = True
    if _State.requested:
        raise Stopped


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Marks work that may be thrown away at any moment."""
    check()
    _State.depth += 1
    try:
        yield
    finally:
        _State.depth -= 1


def _on_signal(number: int, frame: FrameType | None) -> None:
    """Asks for a stop; the second time, ends the process."""
    del frame
    if _State.requested:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    _State.requested = True
    print("stopping: the work at hand is put in order", file=sys.stderr, flush=True)
    if _State.depth:
        raise Stopped


def _is_announced(step: int) -> bool:
    """Whether the cluster is about to take a machine of this job."""
    if "jax" not in sys.modules:
        return False
    import jax

    if not jax.distributed.is_initialized():
        return False
    from jax.experimental import multihost_utils

    return bool(multihost_utils.reached_preemption_sync_point(step))
