"""Counts the programs that XLA compiles in this process."""

from typing import Any

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"
_programs: list[float] = []
_is_listening = False


def _hear(event: str, duration_secs: float, **_: Any) -> None:
    """Keeps the duration of every compilation."""
    if event == _EVENT:
        _programs.append(duration_secs)


def listen() -> None:
    """Starts counting; a second call changes nothing."""
    global _is_listening
    if not _is_listening:
        jax.monitoring.register_event_duration_secs_listener(_hear)
        _is_listening = True


def count() -> int:
    """Returns how many programs were compiled, or taken from cache, since `listen`."""
    return len(_programs)


def seconds() -> float:
    """Returns the time spent on them."""
    return sum(_programs)
