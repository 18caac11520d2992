"""What a run was made with and of: hashes, the git commit, versions, times."""

import contextlib
import hashlib
import importlib.metadata
import platform
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aes_hdc import storage

_PACKAGES = ("aes_hdc", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def text_hash(text: str) -> str:
    """Returns the sha256 of a text, 64 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def config_hash(config: Mapping[str, Any]) -> str:
    """Returns the sha256 of a configuration's canonical JSON; tuples equal lists."""
    return text_hash(storage.to_json(config))


def file_hash(path: Path) -> str:
    """Returns the sha256 of a file, or of a folder's names and files.

    Raises:
        UserError: if it cannot be read.
    """
    digest = hashlib.sha256()
    with storage.named(path):
        if path.is_dir():
            for child in sorted(path.rglob("*")):
                if child.is_file():
                    name = child.relative_to(path).as_posix()
                    digest.update(f"{name}\0{file_hash(child)}\n".encode())
        else:
            with open(path, "rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()


def git_commit(folder: Path) -> str:
    """Returns the commit that `folder` has checked out, with `+` if files differ.

    `unknown` where there is no repository or no git.
    """
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty=+"]
    command += ["--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def versions() -> dict[str, str]:
    """Returns the versions of Python and of what decides numbers; imports nothing."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def wall() -> float:
    """Returns the time of day, seconds since 1970 to the millisecond."""
    return round(time.time(), 3)


class Timer:
    """Measures the parts of a loop one after the other."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def lap(self) -> float:
        """Returns the seconds since the last call, or since the start."""
        now = time.monotonic()
        passed, self._last = now - self._last, now
        return round(passed, 3)
