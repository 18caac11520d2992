"""The training loop: resuming anywhere gives what an uninterrupted run gives."""

import dataclasses
import shutil
import signal

import jax
import numpy as np
import pytest

from aes_hdc import storage
from aes_hdc.curriculum.hdc import Curriculum
from aes_hdc.curriculum.settings import Settings
from aes_hdc.episode import Event, Harness, turn_fault
from aes_hdc.errors import UserError
from aes_hdc.learner import checkpoint
from aes_hdc.learner.batch import Shape
from aes_hdc.learner.gae import Gae
from aes_hdc.learner.losses import LossSettings
from aes_hdc.learner.optimizer import make_optimizer
from experiments import compiles, preemption
from experiments.algorithms import Ppo
from experiments.learning import Learner
from experiments.training import HOST_FIELDS, Trainer, label_table, success_table

UPDATES = 6
pytestmark = pytest.mark.usefixtures("lucky")

TIMES = ("wall", "seconds", "compiles", "tokens_per_second", "process")
OPTIMIZER = make_optimizer(learning_rate=1e-3, warmup_steps=2)


@pytest.fixture(scope="module")
def make_trainer(tiny_policy, make_player):
    def make(folder, num_updates, checkpoint_every=1, **learner):
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
                shapes=[Shape(8, 192, 18, 24, policy.chat.patch_shape)],
                aggregation="constant",
                row_tokens=18,
                **({"settings": LossSettings()} | learner),
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


@pytest.mark.parametrize("field", sorted(HOST_FIELDS))
def test_checkpoint_without_a_field_is_refused(field, whole, make_trainer, tmp_path):
    """R6: what is not there is never made up."""
    shutil.copytree(whole.folder, tmp_path, dirs_exist_ok=True)
    edit_host(tmp_path, lambda host: host.pop(field))
    with pytest.raises(UserError, match=f"lacks {field}; restart"):
        make_trainer(tmp_path, UPDATES + 1).run()


def edit_host(folder, change):
    """Changes the newest checkpoint's host values, manifest and all."""
    step = folder / "checkpoints" / str(UPDATES)
    host = storage.read_json(step / "host.json")
    change(host)
    storage.write_json(step / "host.json", host)
    storage.write_json(step / "manifest.json", checkpoint._digests(step))


def test_checkpoint_of_another_selection_is_refused(whole, make_trainer, tmp_path):
    shutil.copytree(whole.folder, tmp_path, dirs_exist_ok=True)
    edit_host(tmp_path, lambda host: host.update(env_ids=["lights_out"]))
    with pytest.raises(
        UserError, match=r"another run: its env_ids is \['lights_out'\]"
    ):
        make_trainer(tmp_path, UPDATES + 1).run()


@pytest.mark.parametrize("where", ["rollout", "update"])
def test_stop_that_is_asked_for_costs_nothing(
    where, whole, make_trainer, tmp_path, monkeypatch
):
    """R3: SIGTERM in the third update, with a checkpoint due much later."""
    trainer = make_trainer(tmp_path, UPDATES, checkpoint_every=UPDATES)
    target = trainer.player if where == "rollout" else trainer.learner
    name = "act" if where == "rollout" else "update"
    action, calls = getattr(target, name), []

    def asked(*args, **kwargs):
        calls.append(where)
        if len(trainer.lines_so_far()) == 2:
            preemption._on_signal(signal.SIGTERM, None)
        return action(*args, **kwargs)

    monkeypatch.setattr(target, name, asked)
    trainer.lines_so_far = lambda: lines(tmp_path)
    preemption.listen()
    try:
        with pytest.raises(preemption.Stopped):
            trainer.run()
    finally:
        preemption.listen()
    # A rollout is thrown away; an update is finished first.
    done = 2 if where == "rollout" else 3
    assert len(lines(tmp_path)) == done
    assert (tmp_path / "checkpoints" / str(done)).is_dir()
    monkeypatch.undo()
    resumed = make_trainer(tmp_path, UPDATES)
    resumed.run()
    assert lines(tmp_path) == lines(whole.folder)
    assert bits(resumed) == bits(whole)


PPO = {
    "settings": LossSettings(value_coef=0.5, clip_high=0.2),
    "algorithm": Ppo(Gae("bilevel")),
    "num_epochs": 2,
    "num_minibatches": 2,
    "critic_warmup": 2,
}


def test_ppo_resumes_after_every_update_too(make_trainer, tmp_path):
    """R4 with a value head, shuffled minibatches and a warm-up of the critic."""
    whole = make_trainer(tmp_path / "whole", 4, **PPO)
    whole.run()
    expected = lines(tmp_path / "whole")
    for line in expected:
        assert {"value_loss", "value_mean", "approx_kl", "grad_norm"} <= line.keys()
    assert "explained_variance" in expected[-1]
    head = whole.learner.state.params["value"]["kernel"]
    assert float(np.abs(head).max()) > 0
    assert "value" not in whole.learner.params
    for k in range(1, 5):
        trainer = make_trainer(tmp_path / "cut", k, **PPO)
        trainer.run()
        assert lines(tmp_path / "cut") == expected[:k]
    assert bits(trainer) == bits(whole)


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
        counts = record["tokens_by"]
        assert record["tokens"] == counts["prefilled"] + counts["sampled"] > 0
        assert {"decode", "environment", "picture", "prefill"} == {
            *record["seconds"]["by"]
        }
        assert record["reward"].keys() == {"task", "format", "length", "step"}
        # Float32 sums in another order.
        assert record.get("logprob_gap_max", 0.0) < 1e-4
        for mean, largest in record.get("logprob_gap_by_env", {}).values():
            assert 0 <= mean <= largest <= record["logprob_gap_max"]


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


@pytest.mark.parametrize(
    ("label", "valid", "code", "fault"),
    [
        ("length", False, "", "length"),
        ("overflow", False, "", "overflow"),
        ("running", False, "UNKNOWN_ACTION", "parse"),
        ("running", False, "ILLEGAL", "illegal"),
        ("wrong", True, "", "wrong"),
        ("turn_limit", True, "", "turn_limit"),
        ("invalid_limit", False, "NO_ANSWER", "parse"),
        ("running", True, "ILLEGAL", ""),  # Some of a plan was done.
        ("success", True, "", ""),
    ],
)
def test_faults_are_told_apart(label, valid, code, fault, episode):
    turn = dataclasses.replace(
        episode.turns[0],
        label=label,
        valid=valid,
        events=(Event("rejected", code),) if code else (),
    )
    assert turn_fault(turn) == fault
