"""R8: a disk that is full is one line, and costs nothing that was there before."""

import pytest

from aes_hdc import storage
from tests.experiments.commands import run_command

STAGES = "collect,profile,gradients,select,train,evaluate,report"

# No file may grow past so many bytes, as on a disk that is full.
DRIVER = """
import resource, sys

limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
from experiments.main import main

sys.exit(main(sys.argv[2:]))
"""
LIMITS = [
    (3_000, "collect/weak.jsonl"),
    (30_000, "gradients/"),
    (100_000, "train/checkpoints/"),
]


def contents(workdir):
    """Every file of the stages that are done, and its bytes."""
    marks = [
        mark
        for mark in workdir.glob("*/stage.json")
        if storage.read_json(mark)["artefacts"]
    ]
    return {
        path: path.read_bytes()
        for mark in marks
        for path in mark.parent.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
def test_full_disk_is_one_line_and_costs_nothing(tmp_path):
    """Each time there is a little more room, until there is enough."""
    before = {}
    for limit, where in LIMITS:
        ended = run_command(DRIVER, limit, workdir=tmp_path, stages=STAGES)
        assert ended.returncode == 1, ended.stderr
        # Threads of Orbax may still say something of their own.
        told = [x for x in ended.stderr.splitlines() if x.startswith("error: ")]
        assert len(told) == 1, ended.stderr
        assert told[0].startswith(f"error: {tmp_path}/{where}")
        assert told[0].endswith("file too large")
        found = contents(tmp_path)
        assert before.items() <= found.items()
        before = found
    assert before
    ended = run_command(DRIVER, 2**30, workdir=tmp_path, stages=STAGES)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "report.html").exists()
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".tmp"]
