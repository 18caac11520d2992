"""Laws of generation: determinism, splits, ladders."""

import json
import os
import random
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from aes_hdc import envs
from aes_hdc.envs import base, state
from aes_hdc.episode import SPLITS

# Prints a digest of the first instances of each level, so that processes can compare.
PROBE = """
import hashlib, json, sys
from aes_hdc import envs
found = {}
for spec in envs.all_specs():
    env, digest = envs.make(spec.id), hashlib.sha256()
    for level, rung in enumerate(spec.levels):
        start = env.reset(11, level)
        digest.update(repr((env.dump(start), start.budget, start._key)).encode())
        digest.update(env.render(start, rung.min_px).tobytes())
        digest.update(repr((env.solve(start), env.hint(start))).encode())
    found[spec.id] = digest.hexdigest()
json.dump(found, sys.stdout)
"""


@pytest.fixture(scope="module")
def digests():
    """The probe's output under two hash seeds."""
    found = []
    for hash_seed in ("0", "4242"):
        run = subprocess.run(
            [sys.executable, "-c", PROBE],
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.getcwd()},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        found.append(json.loads(run.stdout))
    return found


def test_processes_agree(env_id, digests):
    assert digests[0][env_id] == digests[1][env_id]


def test_same_seed_gives_the_same_instance(env_id, level):
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 - the law is about the global generator
    before = (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002
    one, two = envs.make(env_id), envs.make(env_id)
    first = one.reset(5, level)
    two.reset(6, level)
    second = two.reset(5, level)
    goal = one.goal(first)
    assert state.fingerprint(first, goal) == state.fingerprint(second, two.goal(second))
    assert (first.budget, first._key) == (second.budget, second._key)
    after = (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002
    assert before == after


def test_seeds_differ(env):
    middle = len(env.spec.levels) // 2
    drawn = [env.reset(seed, middle) for seed in range(64)]
    distinct = {state.fingerprint(x, env.goal(x)) for x in drawn}
    assert len(distinct) >= (10 if env.spec.levels[middle].small else 60)


def test_levels_hold_200_instances_or_say_that_they_are_small(env):
    """Half of all instances are training ones, so 300 draws show 60 or more of 100."""
    for level in (0, 1):
        drawn = [env.reset(seed, level) for seed in range(300)]
        distinct = {state.fingerprint(x, env.goal(x)) for x in drawn}
        assert (len(distinct) >= 60) or env.spec.levels[level].small


def test_splits_share_no_instance(env):
    seen = {}
    for split, span in SPLITS.items():
        for seed in range(span.start, span.start + 24):
            start = env.reset(seed, 0)
            print_ = state.fingerprint(start, env.goal(start))
            assert base.hash_split(print_) == split == base.split_of(seed)
            assert seen.setdefault(print_, split) == split


def test_size_grows_with_the_level(env):
    sizes = [
        np.mean([env.size(env.reset(seed, level)) for seed in range(8)])
        for level in range(len(env.spec.levels))
    ]
    assert all(low < high for low, high in pairwise(sizes)), sizes


def test_plans_do_not_shrink_with_the_level(env):
    lengths = [
        np.mean([len(env.solve(env.reset(seed, level))) for seed in range(24)])
        for level in range(len(env.spec.levels))
    ]
    assert all(0.8 * low <= high for low, high in pairwise(lengths)), lengths


def test_starts_are_unsolved_and_within_budget(env, level, starts):
    for start in starts:
        plan = env.solve(start)
        assert plan
        assert len(plan) <= start.budget
        assert not start.over
        if level == 0:
            assert len(plan) <= 3
        if level < 2:
            assert start.budget <= base.EASY_BUDGET


def test_ladder_has_six_to_eight_levels(env):
    assert 6 <= len(env.spec.levels) <= 8
    pixels = [rung.min_px for rung in env.spec.levels]
    assert pixels == sorted(pixels)
    assert all(px % 32 == 0 and 96 <= px <= 448 for px in pixels)


def test_reset_refuses_unknown_levels_and_seeds(env):
    with pytest.raises(ValueError, match="level"):
        env.reset(0, len(env.spec.levels))
    with pytest.raises(ValueError, match="seed"):
        env.reset(-1, 0)
