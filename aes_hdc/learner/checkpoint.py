"""Checkpoints between updates: Orbax for arrays, JSON for the rest, our own manifest.

Orbax makes a step visible only when it is whole but does not notice a flipped bit in
array data, so every file's size and sha256 stand in a manifest that is written last and
checked before a step is used.
"""

import contextlib
import hashlib
import logging
import os
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from aes_hdc import storage
from aes_hdc.errors import UserError

MANIFEST = "manifest.json"
HOST = "host.json"
SCORE = "score.json"


def save(
    folder: Path,
    step: int,
    state: Any,
    host: dict[str, Any],
    keep: int = 2,
    score: float | None = None,
) -> Path:
    """Writes step `step`; keeps the newest `keep` steps and the best one.

    Args:
        folder: holds one folder a step.
        step: number of updates done.
        state: a pytree of arrays.
        host: JSON-able; what resuming needs beside the arrays.
        keep: newest steps kept, >= 1.
        score: how good the step is; the highest is kept beside the newest ones, of
            equals the latest.

    Returns:
        The step's folder. It is there only once it is whole.

    Raises:
        UserError: if it cannot be written; the steps before it are untouched.
    """
    folder = Path(folder).resolve()
    temporary, final = folder / f"{step}.tmp", folder / str(step)
    for stale in folder.glob("*.tmp"):
        shutil.rmtree(stale)
    folder.mkdir(parents=True, exist_ok=True)
    _save_arrays(temporary / "state", state)
    storage.write_json(temporary / HOST, host)
    if score is not None:
        storage.write_json(temporary / SCORE, score)
    storage.write_json(temporary / MANIFEST, _digests(temporary))
    if final.exists():
        shutil.rmtree(final)
    os.replace(temporary, final)
    storage.sync_folder(folder)
    best = _best(folder)
    for old in _steps(folder)[:-keep]:
        if old != best:
            shutil.rmtree(folder / str(old))
    return final


def restore(folder: Path, like: Any) -> tuple[int, Any, dict[str, Any]] | None:
    """Reads the newest intact step.

    An injured step is renamed to `<step>.injured` and reported in one line; the step
    before it is used.

    Args:
        folder: as for `save`.
        like: a pytree of arrays or `jax.ShapeDtypeStruct` with the expected structure.

    Returns:
        The step, the state and the host values, or None where no step was ever saved.

    Raises:
        UserError: if every step there is injured.
    """
    folder = Path(folder).resolve()
    steps = _steps(folder)
    for step in reversed(steps):
        path = folder / str(step)
        fault = _fault(path)
        if fault is None:
            abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
            with ocp.StandardCheckpointer() as checkpointer:
                state = checkpointer.restore(path / "state", abstract)
            state = jax.tree.map(_bound_as, state, like)
            return step, state, storage.read_json(path / HOST)
        aside = path.with_suffix(".injured")
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(path, aside)
        logging.warning(
            "checkpoint %s is injured (%s); set aside as %s", path, fault, aside
        )
    if steps:
        raise UserError(
            f"checkpoints in {str(folder)!r} are all injured; restart with"
            " --restart=train"
        )
    return None


def _save_arrays(path: Path, state: Any) -> None:
    """Writes a pytree of arrays.

    TensorStore says ValueError of a disk that is full: "...: No space left on device
    [os_error_code='28']".
    """
    try:
        with storage.named(path), ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(path, state)
    except ValueError as error:
        found = re.search(r"([\w ]+) \[os_error_code=", str(error))
        if found is None:
            raise
        raise UserError(f"{path}: {found[1].strip().lower()}") from error


def _best(folder: Path) -> int | None:
    """The step of the highest score; None where no step has one."""
    scores = {}
    for step in _steps(folder):
        with contextlib.suppress(UserError):  # Injured, or without a score.
            scores[float(storage.read_json(folder / str(step) / SCORE)), step] = step
    return scores[max(scores)] if scores else None


def _bound_as(found: Any, like: Any) -> Any:
    """Frees an array from its device where the one it replaces was free.

    Orbax binds what it restores, and programs compile once more for bound arguments.
    """
    if isinstance(like, jax.Array) and not like.committed:
        return jax.device_put(np.asarray(found))
    return found


def _steps(folder: Path) -> list[int]:
    """Lists the whole steps in ascending order."""
    return sorted(int(p.name) for p in folder.glob("*") if p.name.isdecimal())


def _digests(folder: Path) -> dict[str, dict[str, Any]]:
    """Maps every file below the folder, manifest apart, to its size and sha256."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / MANIFEST:
            data = path.read_bytes()
            name = path.relative_to(folder).as_posix()
            found[name] = {
                "size": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
    return found


def _fault(path: Path) -> str | None:
    """Names the first difference between a step and its manifest."""
    try:
        expected = storage.read_json(path / MANIFEST)
    except (OSError, ValueError, UserError) as error:
        return f"manifest unreadable: {error}"
    actual = _digests(path)
    for name in sorted({*expected, *actual}):
        if expected.get(name) != actual.get(name):
            return f"{name} differs from its manifest"
    return None
