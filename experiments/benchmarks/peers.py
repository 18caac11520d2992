"""One GRPO update, rollout to optimizer step, beside TRL and Tunix on one core.

    python -m experiments.benchmarks.peers --envs=runs/peers

Thirty-two episodes, four prompts eight times each, of exactly sixteen new tokens, with
a model of 8.4 million random weights that all read from one folder; Tunix, which has no
Qwen3-VL, takes a Qwen3 of the same decoder sizes and plays without pictures. Each peer
lives in a virtual environment of its own, made below --envs the first time. All sides
stay alive on one core and make one update after the other in turn, so that a busy
machine slows them alike; what counts is CPU seconds of whole processes. Compilation and
the first two updates are left out.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from aes_hdc import storage
from experiments.benchmarks.peer_folder import (
    FRAME_PX,
    GROUP_SIZE,
    NEW_TOKENS,
    NUM_PROMPTS,
    Case,
    make_folder,
    make_frames,
    make_prompts,
)

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGES = {
    # PyPI's torchvision does not go with the CPU's torch, and nothing here needs it.
    "trl": ("torch==2.13.0", "transformers", "trl", "accelerate", "datasets", "pillow"),
    "tunix": ("google-tunix",),
}
WARMUP = 2


@dataclasses.dataclass
class Worker:
    """A living process of one side.

    Attributes:
        side: "ours", "trl" or "tunix".
        process: answers "go" with a line of JSON.
        hello: its first answer: versions, parameters, tokens of a prompt.
        steps: later ones, warm-up left out.
    """

    side: str
    process: subprocess.Popen[str]
    hello: dict[str, Any]
    steps: list[dict[str, float]] = dataclasses.field(default_factory=list)

    def median(self, key: str) -> float:
        """Over the steps."""
        return float(np.median([step[key] for step in self.steps]))


def main(arguments: Sequence[str]) -> None:
    """Prints one table of all cases, and keeps every step in results.json."""
    values = _parser().parse_args(arguments)
    folder = Path(values.envs).resolve()
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    if hasattr(os, "sched_setaffinity"):  # Children inherit it.
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    make_folder(folder / "model")
    np.save(folder / "frames.npy", make_frames())
    pythons = {"ours": sys.executable}
    for peer in filter(None, values.peers.split(",")):
        python = make_environment(folder / peer, PACKAGES[peer])
        pythons |= {peer: python} if python else {}
    print("| prompt | side | CPU s | wall s | new tokens/s | CPU, side / ours |")
    print("|---|---|---|---|---|---|")
    kept: list[dict[str, Any]] = []
    versions: dict[str, str] = {}
    for case in _cases(values.prompts, values.kinds):
        workers = compare(case, folder, pythons, values.rounds)
        for worker in workers:
            print(_line(case, worker, workers), flush=True)
            versions |= worker.hello["versions"]
            kept.append({"case": case.name, "side": worker.side, "steps": worker.steps})
    print(", ".join(f"{name} {number}" for name, number in sorted(versions.items())))
    storage.write_json(folder / "results.json", {"versions": versions, "cases": kept})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", default="runs/peers", help="folder for everything")
    parser.add_argument("--rounds", type=int, default=7, help="updates a side and case")
    parser.add_argument("--peers", default="trl,tunix", help="besides ours")
    parser.add_argument("--prompts", default="40,144", help="tokens")
    parser.add_argument("--kinds", default="picture,text")
    return parser


def _cases(prompts: str, kinds: str) -> Iterator[Case]:
    for kind in kinds.split(","):
        for tokens in prompts.split(","):
            yield Case(int(tokens), kind == "picture")


def make_environment(folder: Path, packages: Sequence[str]) -> str:
    """Installs packages into an environment, once.

    Returns:
        Its Python, or nothing and a printed line where that cannot be.
    """
    python, done = folder / "bin" / "python", folder / "installed"
    if done.exists() and done.read_text().split() == [*packages]:
        return str(python)
    try:
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            [str(python), "-m", "pip", "install", "--quiet", *packages],
        ):
            subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        told = getattr(error, "stderr", None) or str(error)
        print(f"{folder.name}: not installed: {told.strip().splitlines()[-1]}")
        return ""
    done.write_text("\n".join(packages))
    return str(python)


def compare(
    case: Case, folder: Path, pythons: dict[str, str], rounds: int
) -> list[Worker]:
    """Makes updates on all sides in turn; one that fails leaves the comparison."""
    path = _write_case(case, folder, WARMUP + rounds)
    with ExitStack() as stack:
        workers = []
        for side, python in pythons.items():
            if side == "tunix" and case.picture:
                continue
            found = stack.enter_context(_working(side, python, path))
            workers += [found] if found else []
        for number in range(WARMUP + rounds):
            for worker in [*workers]:
                told = _ask(worker.process, "go\n")
                if told is None:
                    _report(worker.side, path)
                    workers.remove(worker)
                elif number >= WARMUP:
                    assert told["tokens"] == NUM_PROMPTS * GROUP_SIZE * NEW_TOKENS
                    assert told["reward_std"] > 0
                    worker.steps.append(told)
    for worker in workers:
        assert worker.hello["prompt_tokens"] == case.tokens, worker.side
    return workers


def _write_case(case: Case, folder: Path, steps: int) -> Path:
    """Writes what every side is told."""
    path = folder / f"{case.name}.json"
    config = storage.read_json(folder / "model" / "config.json")
    storage.write_json(
        path,
        {
            "folder": str(folder / "model"),
            "scratch": str(folder / "scratch"),
            "sizes": config["text_config"],
            "prompts": make_prompts(folder / "model", case),
            "frames": str(folder / "frames.npy") if case.picture else "",
            "frame_px": FRAME_PX if case.picture else 32,  # No row shows any.
            "prompt_tokens": case.tokens,
            "rows": NUM_PROMPTS * GROUP_SIZE,
            "group_size": GROUP_SIZE,
            "new_tokens": NEW_TOKENS,
            "learning_rate": 1e-6,
            "steps": steps,
        },
    )
    return path


@contextmanager
def _working(side: str, python: str, path: Path) -> Iterator[Worker | None]:
    """Starts a side and ends it; nothing, and a printed line, where it cannot start."""
    module = ["-m", "experiments.benchmarks.ours"]
    script = module if side == "ours" else [str(HERE / f"peer_{side}.py")]
    one = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    quiet = {"JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1"}
    with _log(side, path).open("w") as log:
        process = subprocess.Popen(
            [python, *script, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
            env=os.environ | one | quiet,
        )
        hello = _ask(process, "")
        if hello is None:
            _report(side, path)
        try:
            yield None if hello is None else Worker(side, process, hello)
        finally:
            process.kill()
            process.communicate()


def _ask(process: subprocess.Popen[str], text: str) -> dict[str, Any] | None:
    """Says something to a side; nothing where it has died."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(text)
        process.stdin.flush()
        return json.loads(process.stdout.readline())
    except (OSError, ValueError):
        return None


def _log(side: str, path: Path) -> Path:
    return path.parent / "logs" / f"{side}-{path.stem}.log"


def _report(side: str, path: Path) -> None:
    """Prints why a side has left, in one line."""
    log = _log(side, path)
    last = log.read_text().strip().splitlines() or ["it died without a word"]
    print(f"{side}, {path.stem}: left out: {last[-1]} ({log})")


def _line(case: Case, worker: Worker, workers: Sequence[Worker]) -> str:
    """One line of the table."""
    cpu, wall = worker.median("cpu"), worker.median("wall")
    ours = [other.median("cpu") for other in workers if other.side == "ours"]
    ratio = f"{cpu / ours[0]:.2f}" if ours else "-"
    prompt = f"{case.tokens}, {'picture' if case.picture else 'text'}"
    speed = worker.median("tokens") / wall
    return (
        f"| {prompt} | {worker.side} | {cpu:.2f} | {wall:.2f} | {speed:.0f} | {ratio} |"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
