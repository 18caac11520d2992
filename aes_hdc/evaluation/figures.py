"""The report's figures, as SVG text; no pyplot, so nothing is global."""

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

INK, MUTED, GRID = "#1f2733", "#6b7685", "#e4e8ee"
MAIN, OTHER, WARN = "#2563c9", "#9aa5b4", "#c8503c"
_SEQUENTIAL = LinearSegmentedColormap.from_list(
    "similarity", ["#f4f7fb", "#8fb4e8", "#2563c9", "#123a7d"]
)
_DIVERGING = LinearSegmentedColormap.from_list(
    "cosine", ["#a8321f", "#e5a294", "#f5f5f5", "#9fbdea", "#1d4fa5"]
)
_HELP = LinearSegmentedColormap.from_list("help", ["#c9dcf7", "#2563c9", "#0c2a5c"])
_STYLE: Any = {  # matplotlib's own type lists every key there is.
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "hatch.color": "#aab3bf",
    "hatch.linewidth": 0.7,
    "text.parse_math": False,  # Names are data.
    "svg.hashsalt": "aes_hdc",  # The same data give the same bytes.
}
_COLUMNS = 3


def _label(name: str) -> str:
    """A name that every font has the letters for."""
    return name.encode("ascii", "backslashreplace").decode()[:60].replace("\0", "")


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def coverage(curve: Mapping[str, Sequence[float]], num_core: int) -> str:
    """Draws how many core abilities the first k environments cover, AES and random.

    Args:
        curve: name -> abilities covered after 1, 2, ... choices.
        num_core: core abilities in the pool.
    """
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(5.4, 3.0), layout="constrained")
        axes = figure.subplots()
        axes.axhline(num_core, color=MUTED, linewidth=1, linestyle=(0, (2, 3)))
        axes.text(1, num_core, f"all {num_core}", va="bottom", color=MUTED, fontsize=8)
        for name, values in curve.items():
            is_main = name == "aes"
            steps = range(1, len(values) + 1)
            axes.plot(
                steps,
                values,
                color=MAIN if is_main else OTHER,
                linewidth=2,
                marker="o" if is_main else None,
                markersize=5,
                label="AES" if is_main else _label(f"{name}, mean"),
            )
        axes.set(xlabel="environments chosen", ylabel="core abilities covered")
        axes.set_ylim(0, num_core * 1.12 + 0.1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(loc="lower right")
        return _svg(figure)


def heat_map(
    matrix: Sequence[Sequence[float | None]],
    names: Sequence[str],
    chosen: Sequence[str],
    *,
    is_cosine: bool,
) -> str:
    """Draws a matrix over environments; the chosen come first and are bold.

    Args:
        matrix: [E, E], in [-1, 1] for a cosine, else in [0, 1]; None, shown hatched,
            where nothing was measured.
        names: [E] environment ids.
        chosen: ids in the order in which they were picked.
        is_cosine: whether the sign matters.
    """
    values = np.array(
        [[math.nan if x is None else x for x in row] for row in matrix], float
    )
    picked = [name for name in chosen if name in names]
    order = picked + [name for name in names if name not in picked]
    index = [list(names).index(name) for name in order]
    values = values[np.ix_(index, index)]
    size = len(order)
    side = min(9.0, 2.2 + 0.38 * size)
    with matplotlib.rc_context(_STYLE | {"axes.grid": False}):
        figure = Figure(figsize=(side + 0.6, side), layout="constrained")
        axes = figure.subplots()
        low = -1.0 if is_cosine else 0.0
        colors = _DIVERGING if is_cosine else _SEQUENTIAL
        image = axes.imshow(values, cmap=colors, vmin=low, vmax=1)
        for row, column in np.argwhere(np.isnan(values)):
            corner = (column - 0.5, row - 0.5)
            axes.add_patch(
                Rectangle(corner, 1, 1, facecolor="#eef1f5", hatch="////", linewidth=0)
            )
        if size <= 14:
            _write_cells(axes, values, low)
        labels = [_label(name) for name in order]
        axes.set_xticks(range(size), labels, rotation=90)
        axes.set_yticks(range(size), labels)
        for ticks in (axes.get_xticklabels(), axes.get_yticklabels()):
            for number, label in enumerate(ticks):
                is_chosen = number < len(picked)
                label.set_fontweight("bold" if is_chosen else "normal")
                label.set_color(INK if is_chosen else MUTED)
        axes.spines[:].set_visible(False)
        bar = figure.colorbar(image, ax=axes, shrink=0.6, pad=0.02)
        bar.outline.set_visible(False)
        if np.isnan(values).any():
            patch = Patch(facecolor="#eef1f5", hatch="////", label="not measured")
            figure.legend(handles=[patch], loc="outside lower right", fontsize=8)
        return _svg(figure)


def _write_cells(axes: Axes, values: np.ndarray, low: float) -> None:
    """Writes each value in its cell, dark on light or light on dark."""
    for (row, column), value in np.ndenumerate(values):
        if not math.isnan(value):
            is_dark = value > 0.55 or value < -0.55 or (low == 0 and value > 0.5)
            axes.text(
                column,
                row,
                f"{value:.2f}".replace("0.", ".", 1),
                ha="center",
                va="center",
                fontsize=7,
                color="white" if is_dark else INK,
            )


def curriculum(
    decisions: Sequence[Mapping[str, Any]], last_step: int, ladder: Sequence[str]
) -> str:
    """Draws harness level (colour) and window of scale levels (height) over updates.

    Args:
        decisions: lines of curriculum.jsonl.
        last_step: the last update.
        ladder: labels of the harness levels; may be empty.
    """
    names = sorted({line["env_id"] for line in decisions})
    levels = max([line["harness_level"] for line in decisions] + [len(ladder) - 1, 1])
    top = max(line["high"] for line in decisions)
    with matplotlib.rc_context(_STYLE):
        figure, grid = _small_multiples(len(names), height=1.25 + 0.12 * top)
        for axes, name in zip(grid, names, strict=False):
            mine = [line for line in decisions if line["env_id"] == name]
            states = [(0, 0, 0, 0)] + [
                (d["step"], d["harness_level"], d["low"], d["high"]) for d in mine
            ]
            ends = [state[0] for state in states[1:]] + [last_step]
            for (start, harness, low, high), end in zip(states, ends, strict=True):
                box = ((start, low - 0.4), end - start, high - low + 0.8)
                axes.add_patch(
                    Rectangle(*box, color=_HELP(harness / levels), linewidth=0)
                )
            ended = [d["move"] for d in mine if d["move"] in ("finished", "stalled")]
            axes.set_title(_label(name) + "".join(f"  ({move})" for move in ended[-1:]))
            axes.set(xlim=(0, max(last_step, 1)), ylim=(-0.6, top + 0.6))
            axes.set_yticks(range(0, top + 1, 1 + top // 4))
        figure.supxlabel("update", fontsize=9, color=MUTED)
        figure.supylabel("scale level", fontsize=9, color=MUTED)
        names_of = [f": {_label(label)}" for label in ladder] + [""] * (levels + 1)
        handles = [
            Patch(
                color=_HELP(level / levels), label=f"harness {level}{names_of[level]}"
            )
            for level in range(levels + 1)
        ]
        figure.legend(
            handles=handles, loc="outside upper left", ncols=min(3, levels + 1)
        )
        return _svg(figure)


def success_curves(lines: Sequence[Mapping[str, Any]]) -> str:
    """Draws success per environment over updates, without and with a harness.

    Each point pools the episodes of a trailing window of updates.

    Args:
        lines: of metrics.jsonl, with `success` counts.
    """
    names = sorted({name for line in lines for name in line["success"]})
    window = max(5, len(lines) // 12)
    steps = [line["step"] for line in lines]
    kinds = (("no harness", MAIN, True), ("with a harness", OTHER, False))
    with matplotlib.rc_context(_STYLE):
        figure, grid = _small_multiples(len(names), height=1.5)
        for axes, name in zip(grid, names, strict=False):
            for label, color, is_bare in kinds:
                counts = np.array(
                    [_count(line, name, is_bare) for line in lines], float
                )
                pooled = _trailing(counts, window)
                with np.errstate(invalid="ignore"):
                    rates = pooled[:, 0] / pooled[:, 1]
                axes.plot(steps, rates, color=color, linewidth=1.8, label=label)
            axes.set_title(_label(name))
            axes.set(ylim=(-0.03, 1.03), xlim=(min(steps), max(*steps, min(steps) + 1)))
            axes.set_yticks([0, 0.5, 1])
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=2)
        figure.supxlabel(f"update (mean of {window})", fontsize=9, color=MUTED)
        return _svg(figure)


def _count(line: Mapping[str, Any], name: str, is_bare: bool) -> tuple[int, int]:
    """[successes, episodes] of an environment in an update."""
    won = played = 0
    for label, cells in line["success"].get(name, {}).items():
        if (label == "none") == is_bare:
            won += sum(cell[0] for cell in cells.values())
            played += sum(cell[1] for cell in cells.values())
    return won, played


def _trailing(values: np.ndarray, window: int) -> np.ndarray:
    """Sums of the last `window` rows, [N, ...] -> [N, ...]."""
    total = np.cumsum(values, axis=0)
    total[window:] -= total[:-window].copy()
    return total


# metric -> what it is
HEALTH = {
    "loss": "loss",
    "grad_norm": "gradient norm",
    "entropy": "entropy, nats a token",
    "kl": "KL to the base, nats a token",
    "degenerate_fraction": "share of groups without signal",
    "logprob_gap_max": "largest sampler-learner gap, nats",
}


def health(lines: Sequence[Mapping[str, Any]]) -> str:
    """Draws the optimiser's metrics over updates; those that no line has are left out.

    Args:
        lines: of metrics.jsonl.
    """
    found = [name for name in HEALTH if any(name in line for line in lines)]
    with matplotlib.rc_context(_STYLE):
        figure, grid = _small_multiples(max(len(found), 1), height=1.5)
        for axes, name in zip(grid, found, strict=False):
            points = [(line["step"], line[name]) for line in lines if name in line]
            axes.plot(*zip(*points, strict=True), color=MAIN, linewidth=1.4)
            axes.set_title(HEALTH[name])
            axes.margins(x=0)
            axes.yaxis.set_major_formatter("{x:.3g}")
        figure.supxlabel("update", fontsize=9, color=MUTED)
        return _svg(figure)


def _small_multiples(number: int, *, height: float) -> tuple[Figure, list[Axes]]:
    """A figure of equal panels, three a row; those over are hidden."""
    rows = -(-number // _COLUMNS)
    figure = Figure(figsize=(9.0, height * rows + 0.7), layout="constrained")
    grid = figure.subplots(rows, _COLUMNS, sharex=True, squeeze=False).ravel().tolist()
    for axes in grid[number:]:
        axes.set_visible(False)
    for axes in grid[:number]:
        axes.tick_params(labelbottom=True)
    return figure, grid
