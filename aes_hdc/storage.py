"""Files that are whole or absent: atomic writes, strict JSON, JSON lines, npz.

Everything a run leaves behind goes through here, so that a reader never meets half a
file, a NaN that JSON does not know, or data that is code.
"""

import contextlib
import fcntl
import io
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aes_hdc.errors import UserError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


def safe_name(text: str) -> str:
    """Returns `text` if it can be a file name on its own, as ids and run names must.

    Raises:
        UserError: if it could name something elsewhere or nothing at all.
    """
    if not _NAME.fullmatch(text) or text.endswith("."):
        raise UserError(
            f"name {text[:120]!r}: give 1 to 100 letters, digits, '.', '_', '+' or '-',"
            " beginning with a letter or digit and not ending in '.'"
        )
    return text


def inside(root: Path, *parts: str) -> Path:
    """Returns `root/part/...`, resolved, where each part is a safe name.

    Raises:
        UserError: if a part is no safe name or a link leads out of `root`.
    """
    root = root.resolve()
    path = root.joinpath(*map(safe_name, parts)).resolve()
    if not path.is_relative_to(root):
        raise UserError(f"{'/'.join(parts)!r} leads out of {root}; remove the link")
    return path


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Turns an OSError, which may not name the file, into a UserError that does.

    Raises:
        UserError: whenever the block raises OSError.
    """
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"{path}: {reason}") from error


def sync_folder(folder: Path) -> None:
    """Makes a rename in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a file whole: a reader sees the old content or the new, never a part.

    Folders on the way are made. A process that is killed leaves at most a file named
    `.NAME.PID.tmp`, which `sweep` removes.

    Raises:
        UserError: if the disk is full or the place cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(partial, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text whole, as `write_bytes` does."""
    write_bytes(path, text.encode("utf-8"))


def sweep(folder: Path) -> int:
    """Removes what killed writers left anywhere under `folder`; returns how many.

    Only the holder of the folder's lock may call it: a live writer's file would go too.
    """
    leftovers = list(folder.rglob(".*.tmp"))
    for path in leftovers:
        path.unlink(missing_ok=True)
    return len(leftovers)


def _plain(value: Any) -> Any:
    """What JSON makes of NumPy's numbers and arrays, and of paths."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not plain data")


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Renders plain data as strict JSON with sorted keys.

    Raises:
        ValueError: if a number is NaN or infinite.
        TypeError: if a value is neither plain data nor a NumPy number or array.
    """
    return json.dumps(
        value, sort_keys=True, allow_nan=False, indent=indent, default=_plain
    )


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def from_json(text: str | bytes) -> Any:
    """Reads strict JSON: no NaN, no infinity, no bottomless nesting.

    Raises:
        ValueError: if the text is anything else.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def write_json(path: Path, value: Any) -> None:
    """Writes plain data whole, readable for people."""
    write_text(path, to_json(value, indent=1) + "\n")


def read_json(path: Path) -> Any:
    """Reads what `write_json` wrote.

    Raises:
        UserError: if the file is absent, cannot be read or is no strict JSON.
    """
    with named(path):
        data = path.read_bytes()
    try:
        return from_json(data)
    except ValueError as error:
        raise UserError(f"{path}: no valid JSON ({error}); restore it") from error


class JsonLog:
    """A file of one strict-JSON object a line, to which processes append side by side.

    Each record is one write under a lock. A record that a killed writer or a full disk
    cut short is moved to `NAME.bad` when the log is opened or appended to, and every
    complete record stays.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path):
        self.path = path
        with named(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        with self._locked():
            pass

    def append(self, record: Mapping[str, Any]) -> None:
        """Adds one record.

        Raises:
            ValueError: if a number is NaN or infinite; nothing is written.
            UserError: if the disk is full; what was there before stays valid.
        """
        line = (to_json(record) + "\n").encode("utf-8")
        with self._locked() as size:
            try:
                if os.write(self._handle, line) != len(line):
                    raise OSError(28, "no space left on device")
            except OSError:
                os.ftruncate(self._handle, size)
                raise
            os.fsync(self._handle)

    def close(self) -> None:
        """Closes the file; closing twice is harmless."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> "JsonLog":
        """Returns the log, to be closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the file."""
        self.close()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """Holds the lock over a file that ends in a whole record; yields its size."""
        with named(self.path):
            fcntl.flock(self._handle, fcntl.LOCK_EX)
            try:
                yield self._mend()
            finally:
                fcntl.flock(self._handle, fcntl.LOCK_UN)

    def _mend(self) -> int:
        """Moves a torn tail to `NAME.bad`; returns the size that is left."""
        size = os.fstat(self._handle).st_size
        if size == 0 or os.pread(self._handle, 1, size - 1) == b"\n":
            return size
        data = self.path.read_bytes()
        start = data.rfind(b"\n") + 1
        tail = data[start:]
        try:
            whole = isinstance(from_json(tail), dict)
        except ValueError:
            whole = False
        if whole:  # Only the line break was lost.
            os.write(self._handle, b"\n")
            return size + 1
        with open(self.path.with_name(self.path.name + ".bad"), "ab") as bad:
            bad.write(tail + b"\n")
            os.fsync(bad.fileno())
        os.ftruncate(self._handle, start)
        return start


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Reads every complete record of a log; a torn last line is left out.

    Returns:
        The records, in order; none where there is no file.

    Raises:
        UserError: if a line that is not the last is no JSON object.
    """
    if not path.exists():
        return []
    with named(path):
        lines = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = from_json(line) if line else None
            if record is not None and not isinstance(record, dict):
                raise ValueError("not an object")
        except ValueError as error:
            if number == len(lines):
                break
            raise UserError(
                f"{path}:{number}: no valid record ({error}); remove the line"
            ) from error
        if record is not None:
            records.append(record)
    return records


def keep_jsonl(path: Path, keep: Callable[[dict[str, Any]], bool]) -> None:
    """Rewrites a log with the records that `keep` accepts.

    Resuming from a checkpoint drops the later records this way, so that no update is
    told twice.
    """
    if path.exists():
        kept = [to_json(record) + "\n" for record in read_jsonl(path) if keep(record)]
        write_text(path, "".join(kept))


def write_npz(path: Path, **arrays: np.ndarray) -> None:
    """Writes arrays of numbers, truths or fixed-width text whole.

    Raises:
        ValueError: if an array holds Python objects, which only code could restore.
    """
    for name, array in arrays.items():
        if np.asarray(array).dtype.hasobject:
            raise ValueError(f"array {name!r} holds Python objects; give it a dtype")
    buffer = io.BytesIO()
    # mypy takes the keywords for the function's own.
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Reads what `write_npz` wrote; never runs code from the file.

    Raises:
        UserError: if the file is absent, damaged or holds Python objects.
    """
    try:
        with named(path), np.load(path, allow_pickle=False) as data:
            return {name: data[name] for name in data.files}
    except (ValueError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: no valid array file; restore it") from error
