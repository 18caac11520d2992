"""R1: killed at any moment, a run that is started again ends with the same numbers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aes_hdc import storage

ROOT = Path(__file__).parents[2]
COMMAND = [
    "--config=configs/quickstart.py:smoke",
    "--stages=train,evaluate",
    "--config.environments.pool=('frozen_lake','lights_out')",
    "--config.learner.num_updates=6",
    "--config.learner.checkpoint_every=2",
]
TIMES = ("wall", "seconds", "compiles", "tokens_per_second", "process")

# Kills the process as the n-th call of a function begins, then runs the command line.
DRIVER = """
import importlib, os, signal, sys

module, _, name = sys.argv[1].partition(":")
owner, left = importlib.import_module(module), int(sys.argv[2])
*path, name = name.split(".")
for part in path:
    owner = getattr(owner, part)
function = getattr(owner, name)

def killed(*args, **kwargs):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*args, **kwargs)

setattr(owner, name, killed)
from experiments.main import main

sys.exit(main(sys.argv[3:]))
"""

REPLY = "aes_hdc.rollouts.collect:_answer"  # In a rollout or an evaluation.
PLAY = "experiments.trajectory_sets:play"
MANIFEST = "aes_hdc.learner.checkpoint:_digests"  # Arrays are there, the manifest not.
RENAME = "aes_hdc.learner.checkpoint:_steps"  # The step is there, old ones still too.
DECISION = "aes_hdc.curriculum.hdc:Curriculum.end_update"
LOG = "aes_hdc.storage:JsonLog.append"
STEP = "experiments.learning:Learner.step"
MODEL = "experiments.stages:save_policy"
MOMENTS = [
    *((REPLY, n) for n in (4, 21, 38, 55, 72)),
    *((MANIFEST, n) for n in (1, 2, 3)),
    *((RENAME, n) for n in (2, 4)),
    *((DECISION, n) for n in (2, 4, 6)),
    *((LOG, n) for n in (3, 8)),
    *((STEP, n) for n in (1, 3)),
    (MODEL, 1),
    *((PLAY, n) for n in (1, 2)),
]
assert len(MOMENTS) == 20
CI = {(MANIFEST, 2)}


def run(workdir, *driver):
    """Runs the command line in a process of its own; returns its exit status."""
    start = ["-c", DRIVER, *driver] if driver else ["-m", "experiments.main"]
    found = subprocess.run(
        [sys.executable, *start, *COMMAND, f"--workdir={workdir}"],
        cwd=ROOT,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return found.returncode, found.stderr


def results(workdir):
    """All that a run says, without what depends on the clock."""
    records = storage.read_jsonl(workdir / "train" / "metrics.jsonl")
    return {
        "metrics": [{k: v for k, v in r.items() if k not in TIMES} for r in records],
        "curriculum": (workdir / "train" / "curriculum.jsonl").read_bytes(),
        "model": (workdir / "train" / "model" / "model.safetensors").read_bytes(),
        "evaluation": (workdir / "evaluate" / "evaluation.json").read_bytes(),
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("whole")
    status, told = run(workdir)
    assert status == 0, told
    found = results(workdir)
    assert any(line.get("grad_norm", 0) > 0 for line in found["metrics"])
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "call"),
    [
        pytest.param(*moment, marks=() if moment in CI else pytest.mark.nightly)
        for moment in MOMENTS
    ],
)
def test_killed_and_started_again_it_ends_the_same(where, call, undisturbed, tmp_path):
    status, _ = run(tmp_path, where, str(call))
    assert status == -9, "it ended before it was killed"
    status, told = run(tmp_path)
    assert status == 0, told
    assert results(tmp_path) == undisturbed
