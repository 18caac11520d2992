"""The headline of a run folder as data, for scripts and for the report."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aes_hdc import storage

SCHEMA = 1


def read_if_there(path: Path) -> Any:
    """Reads a JSON file; None where there is none."""
    return storage.read_json(path) if path.exists() else None


def write_summary(workdir: Path) -> Path:
    """Writes `summary.json` from what the stages have left; returns its path.

    Raises:
        UserError: if a file is damaged.
    """
    path = workdir / "summary.json"
    storage.write_json(path, summarise(workdir))
    return path


def summarise(workdir: Path) -> dict[str, Any]:
    """Gathers pool, selection, success and costs; None where a stage has not run."""
    selection = read_if_there(workdir / "select" / "selection.json")
    evaluation = read_if_there(workdir / "evaluate" / "evaluation.json")
    lines = storage.read_jsonl(workdir / "train" / "metrics.jsonl")
    runs = storage.read_jsonl(workdir / "runs.jsonl")
    headline = evaluation["headline"] if evaluation else {}
    picks = selection["picks"] if selection else []
    last: Mapping[str, Any] = runs[-1] if runs else {}
    return {
        "schema": SCHEMA,
        "pool_size": len(selection["env_ids"]) if selection else None,
        "selected": [pick["env_id"] for pick in picks] if selection else None,
        "core_abilities": len(selection["core_abilities"]) if selection else None,
        "core_covered": picks[-1]["covered"] if picks else (0 if selection else None),
        "id": headline.get("id"),
        "ood": headline.get("ood"),
        "updates": max((line["step"] for line in lines), default=0),
        "episodes": sum(map(_episodes, lines)),
        "tokens": sum(line["tokens"] for line in lines if "tokens" in line),
        "seconds": stage_seconds(workdir),
        "versions": last.get("versions", {}),
        "config_hash": last.get("config_hash"),
        "git": last.get("git"),
    }


def _episodes(line: Mapping[str, Any]) -> int:
    """How many episodes an update played."""
    return sum(
        cell[1]
        for by_harness in line.get("success", {}).values()
        for by_level in by_harness.values()
        for cell in by_level.values()
    )


def stage_seconds(workdir: Path) -> dict[str, float]:
    """Returns what each finished stage has taken, by the stage's folder."""
    stamps = sorted(workdir.glob("*/stage.json"))
    found = [(path.parent.name, storage.read_json(path)) for path in stamps]
    return {
        name: stamp["seconds"]
        for name, stamp in found
        if stamp["finished"] and ".old-" not in name
    }
