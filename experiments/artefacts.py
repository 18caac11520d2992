"""Which stages of a run folder are up to date, and what each of them was made from.

Every stage has a folder with a `stage.json`. Its key is a hash of its own config
sections, the keys of the stages it reads, and the versions of what it uses; the code is
no part of it. A stage whose key is still the same is not run again.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aes_hdc import stamps, storage
from aes_hdc.errors import UserError
from experiments.definitions import DEFINITIONS, STAGES, dependents, stage_versions

__all__ = ["STAGES", "Stage", "lock", "make_plan", "stage_versions"]

STAMP = "stage.json"
SCHEMA = 1


@dataclass
class Stage:
    """One stage of one run folder.

    Attributes:
        name: one of `STAGES`.
        folder: where its artefacts and its stamp lie.
        status: "current", "absent", "interrupted", "grown" (finished, and to be carried
            on), "stale" (made from inputs that are no longer these) or "restart".
        key: the hash of what it is made from.
        config: its own sections.
        inputs: key of every stage it reads; None where that has not been run.
        versions: versions of what it uses, such as environments.
        seconds: what it has taken so far.
    """

    name: str
    folder: Path
    status: str
    key: str
    config: Mapping[str, Any]
    inputs: Mapping[str, str | None]
    versions: Mapping[str, Any]
    seconds: float = 0.0
    _started: float = field(default=0.0, repr=False)

    @property
    def is_current(self) -> bool:
        """Whether there is nothing to do."""
        return self.status == "current"

    def begin(self) -> Path:
        """Marks the stage as being made and returns its folder.

        What an interrupted or grown stage has left stays for it to carry on; a stale or
        restarted stage is set aside as `NAME.old-1`, with all that was made from it.
        """
        if self.status in ("stale", "restart"):
            names = [self.name]
            names += dependents(self.name) if self.status == "restart" else []
            for name in names:
                _set_aside(self.folder.with_name(name))
            self.seconds = 0.0
        self.folder.mkdir(parents=True, exist_ok=True)
        self._started = time.monotonic()
        self._write({}, finished=None)
        return self.folder

    def finish(self, artefacts: Sequence[str]) -> None:
        """Marks the stage as done.

        Args:
            artefacts: files or folders of the stage, relative to its folder, that
                others read; their hashes are kept.
        """
        hashes = {name: stamps.file_hash(self.folder / name) for name in artefacts}
        self.seconds += time.monotonic() - self._started
        self._write(hashes, finished=time.time())
        self.status = "current"

    def _write(self, artefacts: Mapping[str, str], finished: float | None) -> None:
        record = {
            "schema": SCHEMA,
            "stage": self.name,
            "inputs_hash": self.key,
            "config": self.config,
            "inputs": self.inputs,
            "versions": self.versions,
            "artefacts": artefacts,
            "seconds": round(self.seconds, 3),
            "finished": finished,
        }
        storage.write_json(self.folder / STAMP, record)


def make_plan(
    config: Mapping[str, Any],
    workdir: Path,
    stages: Sequence[str],
    restart: str | None = None,
    versions: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Stage]:
    """Compares a run folder with a config and says what is to be done; writes nothing.

    Args:
        config: the whole config as plain data.
        workdir: the run folder; it need not be there.
        stages: names of the stages asked for.
        restart: stage to make again, with all that depends on it.
        versions: by stage, versions of what it uses; a change makes it stale.

    Returns:
        The stages asked for, in the order in which they run.

    Raises:
        UserError: if a name is unknown, a stage's config has changed, an input is
            missing, or an artefact was changed by another hand.
    """
    _check_names(config, stages, restart)
    again = [restart, *dependents(restart)] if restart else []
    keys: dict[str, str | None] = {}  # What later stages see of each stage.
    fresh: set[str] = set()
    plan = []
    for name in STAGES:
        stage = _describe(name, config, workdir, keys, (versions or {}).get(name, {}))
        stamp = _read_stamp(stage.folder)
        stage.status = "restart" if name in again else _status(stage, stamp)
        if stage.status == "changed":
            raise UserError(_changed_text(stage, stamp))
        if stage.is_current:
            stage.status = _check_artefacts(stage, stamp)
        if stamp:
            stage.seconds = stamp["seconds"]
        if name in stages:
            _check_needs(name, fresh, workdir)
            plan.append(stage)
        if name in stages or stage.is_current:
            keys[name] = stage.key
            fresh.add(name)
        else:
            is_there = stamp and stamp["finished"] and name not in again
            keys[name] = stamp["inputs_hash"] if stamp and is_there else None
    return plan


def _check_names(
    config: Mapping[str, Any], stages: Sequence[str], restart: str | None
) -> None:
    """Raises UserError for stages or sections that are not there."""
    for name in (*stages, *([restart] if restart else [])):
        if name not in DEFINITIONS:
            raise UserError(f"stage {name!r}: no such stage; have {', '.join(STAGES)}")
    if restart and restart not in stages:
        raise UserError(f"--restart={restart}: add {restart} to --stages")
    for name in stages:
        for section in DEFINITIONS[name].sections:
            if section not in config:
                raise UserError(f"stage {name}: the config has no section {section}")


def _check_needs(name: str, fresh: set[str], workdir: Path) -> None:
    """Raises UserError if a stage's input is neither up to date nor to be made."""
    for need in DEFINITIONS[name].needs:
        if need not in fresh:
            raise UserError(
                f"stage {name} needs {need}, which is not up to date in {workdir}; add"
                f" {need} to --stages"
            )


def _describe(
    name: str,
    config: Mapping[str, Any],
    workdir: Path,
    keys: Mapping[str, str | None],
    versions: Mapping[str, Any],
) -> Stage:
    definition = DEFINITIONS[name]
    own = {
        section: _without(config[section], f"{section}.", definition.ignores)
        for section in (*definition.sections, *definition.options)
        if section in config
    }
    inputs = {given: keys[given] for given in definition.inputs}
    parts = {"stage": name, "config": own, "inputs": inputs, "versions": versions}
    key = stamps.config_hash(parts | {"schema": SCHEMA})
    return Stage(name, workdir / name, "absent", key, own, inputs, versions)


def _without(value: Any, prefix: str, ignores: Sequence[str]) -> Any:
    """A section less the keys that are not read."""
    if not isinstance(value, Mapping):
        return value
    return {k: v for k, v in value.items() if f"{prefix}{k}" not in ignores}


def _read_stamp(folder: Path) -> dict[str, Any] | None:
    path = folder / STAMP
    if not path.exists():
        return None
    stamp = storage.read_json(path)
    if not isinstance(stamp, dict) or stamp.get("schema") != SCHEMA:
        raise UserError(f"{path}: not of schema {SCHEMA}; use a new --workdir")
    return stamp


def _status(stage: Stage, stamp: Mapping[str, Any] | None) -> str:
    """One of the statuses of `Stage`, or "changed" where its own config differs."""
    if stamp is None:
        return "absent"
    changed = _differences(stamp["config"], stage.config)
    if changed:
        grows = DEFINITIONS[stage.name].grows
        old, new = changed[0][1:]
        if len(changed) > 1 or changed[0][0] != grows or new < old:
            return "changed"
    same = stamps.config_hash(stage.inputs) == stamps.config_hash(stamp["inputs"])
    if not same or stamp["versions"] != stage.versions:
        return "stale"
    if not stamp["finished"]:
        return "interrupted"
    return "grown" if changed else "current"


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted key -> plain value."""
    if not isinstance(value, Mapping):
        return {prefix: storage.from_json(storage.to_json(value))}
    flat: dict[str, Any] = {}
    for name, inner in value.items():
        flat |= _flat(inner, f"{prefix}.{name}" if prefix else name)
    return flat


def _differences(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> list[tuple[str, Any, Any]]:
    """(dotted key, old value, new value) for every value that differs."""
    before, after = _flat(old), _flat(new)
    names = sorted(before.keys() | after.keys())
    return [
        (name, before.get(name), after.get(name))
        for name in names
        if stamps.config_hash({"": before.get(name)})
        != stamps.config_hash({"": after.get(name)})
    ]


def _changed_text(stage: Stage, stamp: Mapping[str, Any] | None) -> str:
    assert stamp is not None
    changes = _differences(stamp["config"], stage.config)
    shown = ", ".join(f"{name} {old!r} -> {new!r}" for name, old, new in changes[:3])
    more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
    return (
        f"stage {stage.name} in {stage.folder.parent} was made with another config"
        f" ({shown}{more}); use a new --workdir or --restart={stage.name}"
    )


def _check_artefacts(stage: Stage, stamp: Mapping[str, Any] | None) -> str:
    """Finds a finished stage current, or interrupted where an artefact is gone."""
    assert stamp is not None
    for name, digest in stamp["artefacts"].items():
        path = stage.folder / name
        if not path.exists():
            return "interrupted"
        if stamps.file_hash(path) != digest:
            raise UserError(
                f"{path} is not what stage {stage.name} wrote; restore it or pass"
                f" --restart={stage.name}"
            )
    return "current"


def _set_aside(folder: Path) -> None:
    """Renames a folder to the first free `NAME.old-N`: nothing is deleted."""
    number = 1
    while folder.with_name(f"{folder.name}.old-{number}").exists():
        number += 1
    if folder.exists():
        folder.rename(folder.with_name(f"{folder.name}.old-{number}"))


@contextlib.contextmanager
def lock(workdir: Path) -> Iterator[None]:
    """Holds a run folder, so that no two processes write it; made if absent.

    Raises:
        UserError: if another process holds it, or it cannot be written.
    """
    with storage.named(workdir):
        workdir.mkdir(parents=True, exist_ok=True)
        handle = os.open(workdir / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(handle, 20).decode(errors="replace").strip() or "?"
            raise UserError(
                f"{workdir} is in use by process {holder}; wait for it to end"
            ) from None
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        storage.sweep(workdir)
        yield
    finally:
        os.close(handle)
