"""Loading needs memory for the parameters and for one of them more."""

import json
import os
import subprocess
import sys
from pathlib import Path

import flax.traverse_util
import numpy as np
import pytest

from aes_hdc.models.qwen3_vl import config as sizes
from aes_hdc.models.qwen3_vl import weights

ROOT = Path(__file__).parents[3]
MB = 2**20
CONFIG = sizes.Config(
    sizes.TextConfig(8192, 256, 1024, 40, 4, 2, 64, mrope_section=(12, 10, 10)),
    sizes.VisionConfig(32, 256, 512, 4, 256, 16, 256, (0, 1, 2)),
    tie_word_embeddings=True,
    image_token_id=1,
    video_token_id=2,
    vision_start_token_id=3,
    vision_end_token_id=4,
)

# Watches this process's anonymous memory while it loads a folder.
SCRIPT = """
import json, re, sys, threading
from pathlib import Path

import jax
from aes_hdc.models import sharding
from aes_hdc.models.qwen3_vl import weights

def anonymous():
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssAnon:\\s+(\\d+)", status)[1]) * 1024

cut = json.loads(sys.argv[2])
mesh = sharding.make_mesh(*cut) if cut else None
jax.block_until_ready(jax.device_put(1.0))
start = peak = anonymous()
loading = True

def watch():
    global peak
    while loading:
        peak = max(peak, anonymous())

watcher = threading.Thread(target=watch)
watcher.start()
_, params = weights.load_folder(sys.argv[1], mesh=mesh)
loading = False
watcher.join()
held = sum(
    piece.data.nbytes for leaf in jax.tree.leaves(params)
    for piece in leaf.addressable_shards
)
largest = max(leaf.nbytes for leaf in jax.tree.leaves(params))
print(json.dumps({"extra": peak - start - held, "held": held, "largest": largest}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint of four files whose weights are all different."""
    path = tmp_path_factory.mktemp("checkpoint")
    flat = flax.traverse_util.flatten_dict(weights.param_shapes(CONFIG))
    rng = np.random.default_rng(0)
    params = flax.traverse_util.unflatten_dict(
        {
            name: rng.standard_normal(leaf.shape, dtype=np.float32)
            for name, leaf in flat.items()
        }
    )
    total = sum(leaf.size * 4 for leaf in flat.values())
    limit = total // 4 + 5 * MB
    weights.save_folder(path, CONFIG, params, dtype=np.float32, max_file_bytes=limit)
    assert len([*path.glob("model-*-of-00004.safetensors")]) == 4
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("cut", [(), (1, 2, 2), (1, 4, 1)])
def test_the_host_holds_the_parameters_and_little_more(folder, cut):
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), json.dumps(cut)],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "4"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(ended.stdout.splitlines()[-1])
    bound = 2 * found["largest"] + 64 * MB
    assert found["held"] > 1.5 * bound  # All at once would be noticed.
    assert found["extra"] <= bound
