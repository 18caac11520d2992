"""P1: two thousand updates at toy size hold no more than the first ones did."""

import numpy as np
import pytest

from aes_hdc import storage
from experiments import compiles
from experiments.main import main

UPDATES = 2000


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("lucky")
def test_nothing_grows(tiny_folder, tmp_path):
    compiles.listen()
    command = [
        "--config=configs/quickstart.py:smoke",
        f"--config.model.folder={tiny_folder}",
        "--config.environments.pool=('count_objects','lights_out')",
        f"--config.learner.num_updates={UPDATES}",
        "--config.learner.num_groups=4",
        "--config.learner.checkpoint_every=100",
        "--config.learner.example_every=100",
        f"--workdir={tmp_path}",
        "--stages=train",
    ]
    assert main(command) == 0
    lines = storage.read_jsonl(tmp_path / "train" / "metrics.jsonl")
    assert len(lines) == UPDATES
    assert {line["episodes"] for line in lines} == {16}
    late = lines[500:]  # Allocators settle first.
    steps = np.array([line["step"] for line in late])
    memory = np.array([line["process"]["memory_mb"] for line in late])
    slope = np.polyfit(steps, memory, 1)[0] * 100
    print(f"{slope:.3f} MB per 100 updates")
    assert slope < 1.0
    assert len({line["process"]["open_files"] for line in late}) == 1
    # A shape compiles when the first row needs it, which may be late; there is one
    # program for each of the shapes, and those that add up and apply.
    assert lines[-1]["compiles"] <= 12
    assert len({line["compiles"] for line in lines[-1000:]}) == 1
