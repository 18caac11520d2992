"""report.html: one self-contained page from the files that the stages have left.

Everything in those files is data: replies of a model, texts of an environment. The
template escapes all of it, and pictures enter only as bytes of PNG files.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from aes_hdc import storage
from aes_hdc.errors import UserError
from aes_hdc.evaluation import figures, summary
from aes_hdc.evaluation.summary import write_summary

__all__ = ["render", "write_report", "write_summary"]

TEMPLATES = Path(__file__).parent / "templates"
MAX_EPISODES = 24
_PNG = b"\x89PNG\r\n\x1a\n"
_STAGES = ("collect", "profile", "gradients", "select", "train", "evaluate", "report")


def write_report(workdir: Path) -> Path:
    """Writes `report.html` into a run folder and returns its path.

    A stage that has not run is named in its section; nothing is left out in silence.

    Raises:
        UserError: if a file is damaged.
    """
    path = workdir / "report.html"
    # A reply may hold half a character, which UTF-8 has no bytes for.
    storage.write_bytes(path, render(workdir).encode("utf-8", "replace"))
    return path


def render(workdir: Path) -> str:
    """Returns the page as text."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["rate"] = _rate
    environment.filters["points"] = _points
    environment.filters["clock"] = _clock
    template = environment.get_template("report.html.j2")
    head = summary.summarise(workdir)
    seconds = {name: head["seconds"].get(name) for name in _STAGES}
    return template.render(
        name=workdir.resolve().name,
        head=head,
        stage_seconds={k: v for k, v in seconds.items() if v is not None},
        config=summary.read_if_there(workdir / "config.json"),
        profile=_profile(workdir),
        gradients=_gradients(workdir),
        selection=_selection(workdir),
        training=_training(workdir),
        evaluation=_evaluation(workdir),
        episodes=list(_episodes(workdir)),
    )


def _data_uri(svg: str) -> str:
    """An SVG as the source of an image, where no script in it can run."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _points(value: float | None) -> str:
    """A difference of rates in percentage points, with its sign."""
    return "" if value is None else f"{round(100 * value):+d}"


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return (
        f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{seconds:.1f} s"
    )


def _profile(workdir: Path) -> list[dict[str, Any]] | None:
    """One row an environment: its success by policy and its abilities, core first."""
    data = summary.read_if_there(workdir / "profile" / "profiles.json")
    if data is None:
        return None
    rows = []
    for env_id, profile in sorted(data["environments"].items()):
        abilities = sorted(
            profile["abilities"].items(),
            key=lambda item: (item[1]["status"] != "core", -item[1]["prevalence"]),
        )
        rows.append({"env_id": env_id, **profile, "abilities": abilities})
    return rows


def _gradients(workdir: Path) -> list[dict[str, Any]] | None:
    """One row an environment: how well its gradient is known."""
    data = summary.read_if_there(workdir / "gradients" / "gradients.json")
    if data is None:
        return None
    keys = ("measured", "reliability", "groups", "degenerate")
    return [
        {"env_id": env_id} | {key: data[key][i] for key in keys}
        for i, env_id in enumerate(data["env_ids"])
    ]


def _selection(workdir: Path) -> dict[str, Any] | None:
    """The picks with their terms, the coverage curve and the two heat maps."""
    data = summary.read_if_there(workdir / "select" / "selection.json")
    if data is None:
        return None
    names, chosen = data["env_ids"], [pick["env_id"] for pick in data["picks"]]
    cosine = data["conflict_cosine"]
    unmeasured = [
        name
        for i, name in enumerate(names)
        if all(cosine[i][j] is None for j in range(len(names)) if j != i)
    ]
    maps = [
        figures.heat_map(data["similarity"], names, chosen, is_cosine=False),
        figures.heat_map(cosine, names, chosen, is_cosine=True),
    ]
    curve = figures.coverage(data["coverage_curve"], len(data["core_abilities"]))
    return data | {
        "unmeasured": unmeasured,
        "curve": _data_uri(curve),
        "similarity_map": _data_uri(maps[0]),
        "cosine_map": _data_uri(maps[1]),
    }


def _training(workdir: Path) -> dict[str, Any] | None:
    """Learning curves and the curriculum's timeline."""
    lines = storage.read_jsonl(workdir / "train" / "metrics.jsonl")
    if not lines:
        return None
    found: dict[str, Any] = {"health": _data_uri(figures.health(lines))}
    with_counts = [line for line in lines if line.get("success")]
    if with_counts:
        found["curves"] = _data_uri(figures.success_curves(with_counts))
    decisions = storage.read_jsonl(workdir / "train" / "curriculum.jsonl")
    if decisions:
        last = max(line["step"] for line in lines)
        picture = figures.curriculum(decisions, last, _ladder(workdir))
        found["timeline"] = _data_uri(picture)
    found["finished"] = [d["env_id"] for d in decisions if d["move"] == "finished"]
    found["stalled"] = [d["env_id"] for d in decisions if d["move"] == "stalled"]
    return found


def _ladder(workdir: Path) -> list[str]:
    """Labels of the harness levels, where the config lists them."""
    config = summary.read_if_there(workdir / "config.json")
    section = config.get("environments") if isinstance(config, Mapping) else None
    ladder = section.get("ladder") if isinstance(section, Mapping) else None
    if isinstance(ladder, list) and all(isinstance(label, str) for label in ladder):
        return ladder
    return []


def _evaluation(workdir: Path) -> dict[str, Any] | None:
    """Per panel, a table of environments by conditions."""
    data = summary.read_if_there(workdir / "evaluate" / "evaluation.json")
    if data is None:
        return None
    panels = []
    for panel, content in data["panels"].items():
        rows = [row for row in data["rows"] if row["panel"] == panel]
        cells = {(r["env_id"], r["harness"], r["level"]): r for r in rows}
        columns = list(dict.fromkeys((r["harness"], r["level"]) for r in rows))
        columns.sort(key=lambda c: (c[0] != "none", c[0], c[1]))
        random = {(row["env_id"], row["level"]): row["random"] for row in rows}
        levels = sorted({level for _, level in random})
        table = [
            (
                env_id,
                [cells.get((env_id, *column)) for column in columns],
                [random.get((env_id, level)) for level in levels],
            )
            for env_id in content["env_ids"]
        ]
        panels.append(
            {"name": panel, "columns": columns, "levels": levels, "table": table}
        )
    return data | {"tables": panels}


def _episodes(workdir: Path) -> Iterator[dict[str, Any]]:
    """Yields example episodes, spread evenly over all that were kept."""
    folders = [workdir / stage / "episodes" for stage in ("train", "evaluate")]
    paths = [path for folder in folders for path in sorted(folder.glob("*/*.json"))]
    for path in _spread(paths, MAX_EPISODES):
        episode = storage.read_json(path)
        for turn in episode["turns"]:
            name = turn["frame"]
            turn["picture"] = None if name is None else _picture(path.parent, name)
        yield episode | {"stage": path.parts[-4], "step": path.parent.name}


def _spread(items: Sequence[Path], number: int) -> list[Path]:
    """At most `number` items at even distances, first and last included."""
    if len(items) <= number:
        return list(items)
    return [items[round(i * (len(items) - 1) / (number - 1))] for i in range(number)]


def _picture(folder: Path, name: str) -> str:
    """A PNG of the episode's folder as the source of an image."""
    path = storage.inside(folder, name)
    with storage.named(path):
        data = path.read_bytes()
    if not data.startswith(_PNG):
        raise UserError(f"{path}: no PNG file; remove the episode")
    return "data:image/png;base64," + base64.b64encode(data).decode()
