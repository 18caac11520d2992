"""Where the seconds go: a stopwatch that may run in several threads at once."""

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterator


class Stopwatch:
    """Adds up seconds by name.

    Threads that run side by side add theirs up, so the sum may be more than the time
    that has passed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def watch(self, name: str) -> Iterator[None]:
        """Adds the time spent in the block."""
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            with self._lock:
                self._seconds[name] += spent

    def read(self) -> dict[str, float]:
        """Returns the seconds since the last reading, and begins anew."""
        with self._lock:
            seconds = {name: round(s, 4) for name, s in sorted(self._seconds.items())}
            self._seconds.clear()
        return seconds
