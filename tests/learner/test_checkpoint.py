"""Checkpoints: what comes back is what was saved, or nothing."""

import logging
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aes_hdc.errors import UserError
from aes_hdc.learner import checkpoint

HOST = {"curriculum": {"levels": [1, 2]}, "name": "x"}


def state(step):
    """A tree of every kind of leaf that a learner has."""
    rng = np.random.default_rng(step)
    return {
        "params": {"kernel": jnp.asarray(rng.normal(size=(37, 11)), jnp.float32)},
        "moments": (jnp.asarray(rng.normal(size=50), jnp.bfloat16), jnp.int32(step)),
    }


def bits(tree):
    return [(leaf.dtype, np.asarray(leaf).tobytes()) for leaf in jax.tree.leaves(tree)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with steps 4 and 7; tests copy it."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for step in (4, 7):
        checkpoint.save(folder, step, state(step), HOST | {"step": step})
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "checkpoints")
    return tmp_path / "checkpoints"


def test_round_trip_is_bitwise(folder):
    step, found, host = checkpoint.restore(folder, state(0))
    assert step == 7
    assert host == HOST | {"step": 7}
    assert bits(found) == bits(state(7))
    assert jax.tree.structure(found) == jax.tree.structure(state(7))


def test_nothing_saved_is_nothing_restored(tmp_path):
    assert checkpoint.restore(tmp_path / "none", state(0)) is None
    (tmp_path / "3.tmp").mkdir()  # A killed writer's.
    assert checkpoint.restore(tmp_path, state(0)) is None


def test_newest_two_are_kept_and_leftovers_go(folder):
    (folder / "9.tmp").mkdir()
    checkpoint.save(folder, 12, state(12), HOST)
    assert sorted(p.name for p in folder.iterdir()) == ["12", "7"]
    checkpoint.save(folder, 100, state(100), HOST, keep=1)  # 100 > 12 as a number.
    assert [p.name for p in folder.iterdir()] == ["100"]


def test_best_stays_while_the_metric_falls(tmp_path):
    """R7."""
    scores = {step: 1.0 - abs(step - 3) / 10 for step in range(1, 9)}
    for step, score in scores.items():
        checkpoint.save(tmp_path, step, state(step), HOST, score=score)
        kept = sorted(int(p.name) for p in tmp_path.iterdir())
        assert kept == sorted({max(1, step - 1), step, min(step, 3)})
    assert checkpoint.restore(tmp_path, state(0))[0] == 8
    # Of equals the latest, and steps without a score do not push the best out.
    checkpoint.save(tmp_path, 9, state(9), HOST, score=1.0)
    for step in (10, 11, 12):
        checkpoint.save(tmp_path, step, state(step), HOST)
    assert sorted(int(p.name) for p in tmp_path.iterdir()) == [9, 11, 12]


def test_saving_a_step_again_replaces_it(folder):
    checkpoint.save(folder, 7, state(8), HOST)
    step, found, _ = checkpoint.restore(folder, state(0))
    assert step == 7
    assert bits(found) == bits(state(8))


def injure(path, kind, rng):
    """Flips a bit, cuts the end off or deletes the file."""
    data = bytearray(path.read_bytes())
    if kind == "delete" or not data:
        path.unlink()
    elif kind == "flip":
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        path.write_bytes(data)
    else:
        # One byte less may be the manifest's last line break, which says nothing.
        path.write_bytes(data[: rng.integers(max(len(data) - 1, 1))])


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.nightly)])
def test_every_injury_is_found(count, saved, tmp_path, caplog):
    """R5: any file, any place; the step before is used and nothing is deleted."""
    rng = np.random.default_rng(0)
    files = sorted(p for p in (saved / "7").rglob("*") if p.is_file())
    assert len(files) >= 5
    for number in range(count):
        folder = tmp_path / str(number)
        shutil.copytree(saved, folder)
        kind = ("flip", "truncate", "delete")[number % 3]
        victim = files[rng.integers(len(files))].relative_to(saved)
        injure(folder / victim, kind, rng)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            step, found, host = checkpoint.restore(folder, state(0))
        assert step == 4, f"{kind} of {victim} was not noticed"
        assert bits(found) == bits(state(4))
        assert host["step"] == 4
        assert (folder / "7.injured").is_dir()
        assert sum("is injured" in r.getMessage() for r in caplog.records) == 1


def test_an_extra_file_is_an_injury(folder):
    (folder / "7" / "state" / "extra").write_bytes(b"x")
    assert checkpoint.restore(folder, state(0))[0] == 4


def test_all_injured_is_the_users_to_solve(folder):
    for step in ("4", "7"):
        (folder / step / "host.json").unlink()
    with pytest.raises(UserError, match="all injured"):
        checkpoint.restore(folder, state(0))


def test_another_structure_is_refused(folder):
    with pytest.raises((ValueError, KeyError)):
        checkpoint.restore(folder, {"params": {"other": jnp.zeros(3)}})
