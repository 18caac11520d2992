"""The training loop: resuming anywhere gives what an uninterrupted run gives."""

import dataclasses
import shutil

import jax
import numpy as np
import pytest

from aes_hdc import storage
from aes_hdc.curriculum.hdc import Curriculum
from aes_hdc.curriculum.settings import Settings
from aes_hdc.episode import Harness
from aes_hdc.learner.batch import Shape
from aes_hdc.learner.losses import LossSettings
from aes_hdc.learner.optimizer import make_optimizer
from experiments import compiles
from experiments.learning import Learner
from experiments.training import Trainer, label_table, success_table

UPDATES = 6
pytestmark = pytest.mark.usefixtures("lucky")

TIMES = ("wall", "seconds", "compiles")
OPTIMIZER = make_optimizer(learning_rate=1e-3, warmup_steps=2)


@pytest.fixture(scope="module")
def make_trainer(tiny_policy, make_player):
    def make(folder, num_updates, checkpoint_every=1):
        params = jax.tree.map(
            lambda leaf: jax.device_put(np.array(leaf)), tiny_policy.params
        )
        policy = dataclasses.replace(tiny_policy, params=params)
        settings = Settings(
            num_harness_levels=2, scale_groups=2, harness_groups=2, window=1
        )
        return Trainer(
            learner=Learner(
                policy=policy,
                optimizer=OPTIMIZER,
                settings=LossSettings(),
                shapes=[Shape(8, 192, 18, 24, policy.chat.patch_shape)],
                aggregation="constant",
                row_tokens=18,
            ),
            player=make_player(policy, prefill=((4, 96, 0), (4, 96, 192))),
            curriculum=Curriculum({"count_objects": 1, "lights_out": 1}, settings),
            ladder=(Harness.OBSERVATION, Harness.NONE),
            env_ids=["count_objects", "lights_out"],
            folder=folder,
            seed=5,
            frame_px=96,
            max_turns=3,
            num_groups=3,
            group_size=3,
            num_updates=num_updates,
            checkpoint_every=checkpoint_every,
            example_every=3,
            config_hash="0" * 64,
            git="unknown",
        )

    return make


def lines(folder):
    """The metrics without what depends on the clock or the process."""
    records = storage.read_jsonl(folder / "metrics.jsonl")
    return [{k: v for k, v in line.items() if k not in TIMES} for line in records]


def bits(trainer):
    leaves = jax.tree.leaves(trainer.learner.state)
    return [np.asarray(leaf).tobytes() for leaf in leaves]


@pytest.fixture(scope="module")
def whole(make_trainer, tmp_path_factory):
    """An uninterrupted run."""
    trainer = make_trainer(tmp_path_factory.mktemp("whole"), UPDATES)
    trainer.run()
    return trainer


def test_resuming_after_every_update_changes_nothing(whole, make_trainer, tmp_path):
    """R4."""
    expected = lines(whole.folder)
    assert any("grad_norm" in line for line in expected[:3]), "nothing was learnt"
    assert any("grad_norm" in line for line in expected[3:]), "nothing was learnt"
    decisions = storage.read_jsonl(whole.folder / "curriculum.jsonl")
    for k in range(1, UPDATES + 1):
        # A new process each time: everything it knows is in the folder.
        trainer = make_trainer(tmp_path, k)
        trainer.run()
        assert lines(tmp_path) == expected[:k]
        # What a killed process has logged beyond its last checkpoint is told once.
        with storage.JsonLog(tmp_path / "metrics.jsonl") as log:
            log.append({"step": k + 1, "wall": 0, "loss": 9.0})
        told = [decision for decision in decisions if decision["step"] <= k]
        assert storage.read_jsonl(tmp_path / "curriculum.jsonl") == told
    assert bits(trainer) == bits(whole)
    assert trainer.curriculum.to_json() == whole.curriculum.to_json()


def test_injured_checkpoint_costs_one_update_and_no_bit(whole, make_trainer, tmp_path):
    make_trainer(tmp_path, 3).run()
    (tmp_path / "checkpoints" / "3" / "host.json").unlink()
    resumed = make_trainer(tmp_path, UPDATES)
    resumed.run()
    assert lines(tmp_path) == lines(whole.folder)
    assert bits(resumed) == bits(whole)


def test_resuming_compiles_no_program_twice(whole, make_trainer, tmp_path):
    compiles.listen()
    make_trainer(tmp_path, 4).run()
    before = compiles.count()  # All that training needs.
    make_trainer(tmp_path, UPDATES).run()
    assert compiles.count() == before


def test_rare_checkpoints_resume_from_the_last(whole, make_trainer, tmp_path):
    make_trainer(tmp_path, 5, checkpoint_every=2).run()
    shutil.rmtree(tmp_path / "checkpoints" / "5")  # As if killed before the last save.
    resumed = make_trainer(tmp_path, UPDATES, checkpoint_every=2)
    resumed.run()
    assert lines(tmp_path) == lines(whole.folder)
    assert bits(resumed) == bits(whole)


def test_every_line_says_when_and_of_what(whole):
    """Q1."""
    text = (whole.folder / "metrics.jsonl").read_text()
    records = [storage.from_json(line) for line in text.splitlines()]
    assert [record["step"] for record in records] == [*range(1, UPDATES + 1)]
    for record in records:
        assert {"step", "wall", "config_hash", "git"} <= record.keys()
        assert record["episodes"] == 9
        played = sum(sum(kinds.values()) for kinds in record["labels"].values())
        assert played == 9
        assert record["tokens"] > 0
        # Float32 sums in another order.
        assert record.get("logprob_gap_max", 0.0) < 1e-4


def test_finished_run_runs_no_further(whole, make_trainer):
    before = (whole.folder / "metrics.jsonl").read_bytes()
    make_trainer(whole.folder, UPDATES).run()
    assert (whole.folder / "metrics.jsonl").read_bytes() == before


def test_draw_is_a_function_of_seed_and_step(make_trainer, tmp_path):
    trainer, other = (make_trainer(tmp_path, UPDATES) for _ in range(2))
    assert [trainer.draw(4) for _ in range(2)] == [other.draw(4)] * 2
    assert trainer.draw(4) != trainer.draw(5)
    seeds = [task.seed for step in range(20) for task in trainer.draw(step)]
    assert len(set(seeds)) == len(seeds) == 60


def test_tables_count_by_condition_and_leave_out_broken_episodes(episode):
    broken = dataclasses.replace(
        episode, turns=[dataclasses.replace(episode.turns[0], label="env_error")]
    )
    failed = dataclasses.replace(
        episode, turns=[dataclasses.replace(episode.turns[0], label="wrong")]
    )
    played = [episode, failed, broken, episode]
    assert success_table(played) == {"lights_out": {"rules": {"0": [2, 3]}}}
    assert label_table(played) == {
        "lights_out": {"success": 2, "wrong": 1, "env_error": 1}
    }
