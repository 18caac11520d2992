"""Ends a run that hangs, with the stacks of all threads for whoever looks into it."""

import faulthandler
import os
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

EXIT_CODE = 75  # EX_TEMPFAIL: the same command again carries on.


class Watchdog:
    """Watches the time between beats, one beat an update.

    A run hangs where no beat has come for ten times the usual time, and at least five
    minutes. It starts to judge at the third beat: the first updates compile.
    """

    def __init__(
        self,
        path: Path,
        *,
        factor: float = 10.0,
        least: float = 300.0,
        period: float = 5.0,
        end: Callable[[int], None] = os._exit,
    ) -> None:
        """Starts watching in a thread of its own.

        Args:
            path: where the stacks are written.
            factor: of the median time between beats.
            least: seconds.
            period: seconds between looks.
            end: called with the exit status; for tests.
        """
        self._path, self._factor, self._least = path, factor, least
        self._end = end
        self._times: deque[float] = deque(maxlen=64)
        self._last = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, args=(period,), name="watchdog", daemon=True
        )
        self._thread.start()

    def beat(self) -> None:
        """Says that the run is alive."""
        now = time.monotonic()
        self._times.append(now - self._last)
        self._last = now

    def close(self) -> None:
        """Stops watching."""
        self._done.set()
        self._thread.join()

    def __enter__(self) -> "Watchdog":
        """Returns the watchdog, to be closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stops watching."""
        self.close()

    def _watch(self, period: float) -> None:
        """Looks now and then; ends the process where it hangs."""
        while not self._done.wait(period):
            if len(self._times) < 3:
                continue
            limit = max(self._factor * statistics.median(self._times), self._least)
            waited = time.monotonic() - self._last
            if waited > limit:
                self._bark(waited)
                return

    def _bark(self, waited: float) -> None:
        """Writes all stacks and ends the process."""
        print(
            f"error: no update for {waited:.0f}s; stacks are in {self._path}; the same"
            " command carries on from the last checkpoint",
            file=sys.stderr,
            flush=True,
        )
        with open(self._path, "w") as file:
            faulthandler.dump_traceback(file, all_threads=True)
        self._end(EXIT_CODE)
