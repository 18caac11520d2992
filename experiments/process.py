"""What this process holds of the machine, and how it gives back what it can."""

import ctypes
import os
from pathlib import Path


def usage() -> dict[str, float]:
    """Returns resident memory in MB and the number of open files.

    Empty where the system does not tell, as outside Linux.
    """
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        open_files = len(os.listdir("/proc/self/fd"))
    except (OSError, ValueError, IndexError):
        return {}
    return {
        "memory_mb": round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 2),
        "open_files": float(open_files),
    }


def trim() -> None:
    """Gives freed memory back to the system, where the C library can.

    Threads that come and go in XLA and Orbax leave holes in glibc's arenas; over
    thousands of updates they add up to more than what is in use.
    """
    trim_all = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim_all is not None:
        trim_all(0)
