"""Runs each law over every registered environment and every level of its ladder.

A test that takes `env_id` runs once an environment; with `level`, once a rung.
"""

import functools

import pytest

from aes_hdc import envs
from aes_hdc.episode import SPLITS

SEEDS = (0, 1, 2, 3, 4, 5, SPLITS["validation"].start, SPLITS["test"].start)


def pytest_generate_tests(metafunc):
    names = metafunc.fixturenames
    if "env_id" in names and "level" in names:
        cases = [(s.id, k) for s in envs.all_specs() for k in range(len(s.levels))]
        metafunc.parametrize(("env_id", "level"), cases)
    elif "env_id" in names:
        metafunc.parametrize("env_id", [spec.id for spec in envs.all_specs()])


@functools.cache
def _starts(env_id, level):
    env = envs.make(env_id)
    return [env.reset(seed, level) for seed in SEEDS]


@pytest.fixture
def env(env_id):
    return envs.make(env_id)


@pytest.fixture
def starts(env_id, level):
    """Eight instances of the level, six of them training ones; free to change."""
    env = envs.make(env_id)
    return [env.clone(state) for state in _starts(env_id, level)]


@pytest.fixture
def start(starts):
    """One instance of the level."""
    return starts[0]
