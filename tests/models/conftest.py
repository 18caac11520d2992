from pathlib import Path

import pytest

from aes_hdc.models.qwen3_vl import weights


@pytest.fixture(scope="session")
def golden():
    return Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def checkpoint_a(golden):
    return weights.load_folder(golden / "ckpt_a")
