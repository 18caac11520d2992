import json

import numpy as np
import pytest

from aes_hdc.curriculum import baselines
from aes_hdc.errors import UserError


def test_uniform_reaches_every_cell_and_never_moves():
    sampler = baselines.Uniform({"a": 2}, num_harness_levels=3)
    rng = np.random.default_rng(0)
    cells = {sampler.sample("a", rng) for _ in range(300)}
    assert cells == {(h, s) for h in range(3) for s in range(3)}
    sampler.record("a", 0, 0, 8, 8)
    assert sampler.end_update(0) == []


def test_fixed_stays_in_its_cell():
    sampler = baselines.Fixed({"a": 2, "b": 4}, harness_level=1)
    rng = np.random.default_rng(0)
    assert [sampler.sample(e, rng) for e in ("a", "b")] == [(1, 2), (1, 4)]


@pytest.mark.parametrize(
    "sampler",
    [baselines.Uniform({"a": 2}, num_harness_levels=3), baselines.Fixed({"a": 2}, 1)],
)
def test_baselines_survive_json(sampler):
    data = json.loads(json.dumps(sampler.to_json()))
    again = baselines.from_json(data)
    assert (type(again), again.to_json()) == (type(sampler), data)
    with pytest.raises(UserError):
        baselines.from_json(data | {"extra": 1})


@pytest.mark.parametrize("data", [[], {}, {"kind": "learning_progress"}])
def test_unknown_kinds_list_the_known_ones(data):
    with pytest.raises(UserError, match="hdc"):
        baselines.from_json(data)
