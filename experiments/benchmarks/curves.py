"""Learning curves of several runs, side by side.

    python -m experiments.benchmarks.curves --out=FILE.svg --runs=NAME=DIR,DIR

One column for each `--runs`, one line for each of its run folders: success of the
training episodes, a trailing mean over twenty updates, and how far the curriculum has
taken the help away meanwhile: the mean rung of the environments, from 0 for all help.
"""

import argparse
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from aes_hdc import storage
from aes_hdc.errors import UserError

WINDOW = 20


def main(arguments: Sequence[str]) -> int:
    """Draws the figure; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="the figure, .svg or .png")
    parser.add_argument(
        "--runs", required=True, action="append", help="NAME=DIR,DIR of run folders"
    )
    values = parser.parse_args(arguments)
    columns = [text.split("=", 1) for text in values.runs]
    figure = Figure(figsize=(4.2 * len(columns), 5.2), layout="constrained")
    axes = figure.subplots(2, len(columns), sharex=True, sharey="row", squeeze=False)
    try:
        for column, (name, folders) in enumerate(columns):
            for number, folder in enumerate(folders.split(",")):
                _draw(axes[:, column], Path(folder), number)
            axes[0, column].set_title(name)
            axes[1, column].set_xlabel("update")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for row in axes:
        row[0].set_ylim(bottom=0)
    axes[0, 0].set_ylabel("success")
    axes[1, 0].set_ylabel("rung of help taken away")
    axes[0, -1].legend(frameon=False, loc="upper right")
    is_svg = values.out.endswith(".svg")
    figure.savefig(values.out, metadata={"Date": None} if is_svg else None)
    return 0


def _draw(axes: Any, folder: Path, number: int) -> None:
    """Adds the lines of one run."""
    lines = storage.read_jsonl(folder / "train" / "metrics.jsonl")
    if not lines:
        raise UserError(f"{folder}: no train/metrics.jsonl; give run folders")
    steps = [line["step"] for line in lines]
    env_ids = {env_id for line in lines for env_id in line["success"]}
    success = np.array([line["success_mean"] for line in lines])
    rate = [success[max(0, i - WINDOW + 1) : i + 1].mean() for i in range(len(steps))]
    color = f"C{number}"
    axes[0].plot(steps, rate, color=color, label=f"seed {number}")
    axes[1].step(steps, _frontier(folder, steps, env_ids), where="post", color=color)
    for one in axes:
        one.grid(color="#e4e8ee")


def _frontier(
    folder: Path, steps: Sequence[int], env_ids: Collection[str]
) -> list[float]:
    """The mean harness level of the trained environments at each step."""
    level = dict.fromkeys(env_ids, 0)
    moves = storage.read_jsonl(folder / "train" / "curriculum.jsonl")
    found = []
    for step in steps:
        while moves and moves[0]["step"] <= step:
            move = moves.pop(0)
            level[move["env_id"]] = max(level[move["env_id"]], move["harness_level"])
        found.append(sum(level.values()) / len(level))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
