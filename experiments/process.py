"""What this process holds of the machine, for the log."""

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
