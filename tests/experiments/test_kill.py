"""R1, R3: killed or told to stop at any moment, a run started again ends the same."""

import signal

import pytest

from aes_hdc import storage
from tests.experiments.commands import run_command

TIMES = ("wall", "seconds", "compiles", "tokens_per_second", "process")

# As the n-th call of a function begins, sends the process a signal, at once or a while
# later, and runs the command line. What outlives the signal for 30 s ends by SIGALRM.
DRIVER = """
import importlib, os, signal, sys, threading

module, _, name = sys.argv[1].partition(":")
owner, left = importlib.import_module(module), int(sys.argv[2])
number, delay = int(sys.argv[3]), float(sys.argv[4])
*path, name = name.split(".")
for part in path:
    owner = getattr(owner, part)
function = getattr(owner, name)

def send():
    signal.alarm(30)
    os.kill(os.getpid(), number)

def watched(*args, **kwargs):
    global left
    left -= 1
    if left == 0 and delay:
        threading.Timer(delay, send).start()
    elif left == 0:
        send()
    return function(*args, **kwargs)

setattr(owner, name, watched)
from experiments.main import main

sys.exit(main(sys.argv[5:]))
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

ACT = "aes_hdc.rollouts.model_player:ModelPlayer.act"
ANNOTATE = "aes_hdc.profiles.annotator:RuleAnnotator.annotate"
PHASES = [
    (ACT, 1, 0.5),  # While the first programs compile.
    (REPLY, 38, 0),
    (STEP, 3, 0),
    (PLAY, 2, 0),
]


def run(workdir, *driver, stages="train,evaluate"):
    """Runs the command line, if asked for with a signal on the way."""
    return run_command(DRIVER, *driver, workdir=workdir, stages=stages)


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
    ended = run(workdir)
    assert ended.returncode == 0, ended.stderr
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
    ended = run(tmp_path, where, call, int(signal.SIGKILL), 0)
    assert ended.returncode == -signal.SIGKILL, "it ended before it was killed"
    ended = run(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert results(tmp_path) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "call", "delay"),
    [
        pytest.param(*phase, marks=() if phase[0] == STEP else pytest.mark.nightly)
        for phase in PHASES
    ],
)
def test_told_to_stop_it_saves_and_ends_the_same(
    where, call, delay, undisturbed, tmp_path
):
    ended = run(tmp_path, where, call, int(signal.SIGTERM), delay)
    assert ended.returncode == 0, ended.stderr
    assert "stopped; the same command carries on" in ended.stdout
    # Not an update is lost.
    done = storage.read_jsonl(tmp_path / "train" / "metrics.jsonl")
    steps = [int(path.name) for path in (tmp_path / "train/checkpoints").glob("[0-9]*")]
    assert max(steps, default=0) == len(done)
    ended = run(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert results(tmp_path) == undisturbed


@pytest.mark.slow
@pytest.mark.nightly
def test_told_to_stop_it_does_not_finish_annotating(tmp_path):
    stages = "collect,profile"
    ended = run(tmp_path / "a", ANNOTATE, 3, int(signal.SIGTERM), 0, stages=stages)
    assert ended.returncode == 0, ended.stderr
    assert "stopped; the same command carries on" in ended.stdout
    assert not (tmp_path / "a" / "profile" / "profiles.json").exists()
    for name in ("a", "b"):
        ended = run(tmp_path / name, stages=stages)
        assert ended.returncode == 0, ended.stderr
    found, whole = (
        (tmp_path / name / "profile" / "profiles.json").read_bytes() for name in "ab"
    )
    assert found == whole
