"""What all tests share: eight virtual CPU devices, and a base that nothing escapes."""

import os

# Before anything imports JAX, so that tests of meshes run and do not skip.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

import numpy as np
import pytest

from aes_hdc.episode import Episode, Harness, Observation, Task, Turn


@pytest.fixture
def workdir(tmp_path):
    """An empty run folder."""
    return tmp_path


@pytest.fixture
def episode():
    """A solved episode of two turns."""
    frame = np.zeros((96, 96, 3), np.uint8)
    observations = [Observation("goal: all off", frame), Observation("ok", frame)]
    turns = [
        Turn(observations[0], "press 1 1", "press 1 1", "ok", 0.0, True, "running"),
        Turn(observations[1], "press 1 2", "press 1 2", "off", 1.0, True, "success"),
    ]
    task = Task("lights_out", seed=7, level=0, harness=Harness.RULES)
    return Episode(task, turns, policy="model")
