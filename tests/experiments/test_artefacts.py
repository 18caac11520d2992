"""What is up to date, what carries on, what is refused."""

import io
import os

import pytest

from aes_hdc import storage
from aes_hdc.errors import UserError
from experiments import artefacts
from experiments.progress import Progress, duration

CONFIG = {
    "seed": 0,
    "environments": {"pool": ("a", "b")},
    "model": {"variant": "tiny"},
    "collect": {"trajectories": 2},
    "profile": {"min_count": 1},
    "gradients": {"num_groups": 2},
    "selection": {"budget": 3},
    "curriculum": {"alpha": 0.5},
    "rollout": {"num_groups": 2},
    "learner": {"num_updates": 4, "learning_rate": 1e-3, "checkpoint_every": 2},
    "evaluation": {"levels": (0, 1)},
}


def changed(section, **values):
    return CONFIG | {section: CONFIG[section] | values}


def run(workdir, config=CONFIG, stages=artefacts.STAGES, **options):
    """Makes what is to be made; returns {stage: status it had}."""
    statuses = {}
    for stage in artefacts.make_plan(config, workdir, stages, **options):
        statuses[stage.name] = stage.status
        if not stage.is_current:
            folder = stage.begin()
            storage.write_json(folder / "out.json", stage.name)
            stage.finish(["out.json"])
    return statuses


def status(workdir, config=CONFIG, **options):
    plan = artefacts.make_plan(config, workdir, artefacts.STAGES, **options)
    return {stage.name: stage.status for stage in plan}


def test_a_second_run_has_nothing_to_do(tmp_path):
    assert set(run(tmp_path).values()) == {"absent"}
    assert set(run(tmp_path).values()) == {"current"}
    stamp = storage.read_json(tmp_path / "select" / "stage.json")
    assert stamp["stage"] == "select"
    assert set(stamp["inputs"]) == {"profile", "gradients"}
    assert set(stamp["artefacts"]) == {"out.json"}
    assert stamp["seconds"] >= 0
    assert stamp["finished"]


def test_a_section_that_few_configs_have_counts_where_it_is(tmp_path):
    config = CONFIG | {"imitation": {"batch_episodes": 4}}
    run(tmp_path, config)
    with pytest.raises(UserError, match=r"batch_episodes 4 -> 8"):
        status(tmp_path, config | {"imitation": {"batch_episodes": 8}})


def test_an_interrupted_stage_carries_on_in_its_folder(tmp_path):
    run(tmp_path, stages=artefacts.STAGES[:4])
    *_, train, _, _ = artefacts.make_plan(CONFIG, tmp_path, artefacts.STAGES)
    (train.begin() / "checkpoint").write_text("1")
    assert status(tmp_path)["train"] == "interrupted"
    *_, train, _, _ = artefacts.make_plan(CONFIG, tmp_path, artefacts.STAGES)
    assert (train.begin() / "checkpoint").exists()
    # And it is still refused if its config is another one by then.
    with pytest.raises(UserError, match=r"train in .*checkpoint_every 2 -> 1\)"):
        status(tmp_path, changed("learner", checkpoint_every=1))


def test_only_a_larger_number_of_updates_carries_on_a_finished_train(tmp_path):
    run(tmp_path)
    (tmp_path / "train" / "checkpoint").write_text("4")
    more = changed("learner", num_updates=8)
    found = run(tmp_path, more)
    assert found["train"] == "grown"
    assert found["evaluate"] == found["report"] == "stale"
    assert {found[s] for s in artefacts.STAGES[:4]} == {"current"}
    assert (tmp_path / "train" / "checkpoint").exists()
    assert set(run(tmp_path, more).values()) == {"current"}
    with pytest.raises(UserError, match=r"learner\.num_updates 8 -> 4.*--restart=trai"):
        status(tmp_path)
    both = changed("learner", num_updates=9, checkpoint_every=3)
    with pytest.raises(UserError, match=r"train.*checkpoint_every 2 -> 3"):
        status(tmp_path, both)


def test_restart_sets_a_stage_and_its_dependents_aside(tmp_path):
    run(tmp_path)
    found = run(tmp_path, changed("profile", min_count=2), restart="profile")
    assert [name for name, was in found.items() if was == "restart"] == [
        "profile",
        "select",
        "train",
        "evaluate",
        "report",
    ]
    assert (tmp_path / "train.old-1" / "out.json").exists()
    assert set(status(tmp_path, changed("profile", min_count=2)).values()) == {
        "current"
    }


def test_a_restart_of_one_stage_leaves_no_later_one_to_be_trusted(tmp_path):
    run(tmp_path)
    run(tmp_path, stages=["profile"], restart="profile")
    found = status(tmp_path)
    assert found["select"] == found["train"] == "absent"


def test_a_missing_artefact_is_made_again_and_an_altered_one_refused(tmp_path):
    run(tmp_path)
    (tmp_path / "select" / "out.json").unlink()
    assert status(tmp_path)["select"] == "interrupted"
    (tmp_path / "select" / "out.json").write_text("[]")
    with pytest.raises(UserError, match=r"out\.json is not what stage select wrote"):
        status(tmp_path)


def test_versions_of_what_a_stage_uses_make_it_stale(tmp_path):
    run(tmp_path, versions={"collect": {"a": 1}})
    found = status(tmp_path, versions={"collect": {"a": 2}})
    assert found["collect"] == "stale"
    assert found["gradients"] == "current"
    assert found["select"] == "stale"


def test_evaluation_needs_no_training_but_notices_it(tmp_path):
    assert run(tmp_path, stages=["evaluate"]) == {"evaluate": "absent"}
    assert run(tmp_path, stages=["evaluate"]) == {"evaluate": "current"}
    assert run(tmp_path)["evaluate"] == "stale"


def test_stale_inputs_are_not_used_in_silence(tmp_path):
    run(tmp_path)
    old = {"collect": {"a": 1}}
    with pytest.raises(UserError, match=r"profile needs collect.*add collect"):
        run(tmp_path, stages=["profile"], versions=old)


def test_two_processes_do_not_hold_one_folder(tmp_path):
    with (
        artefacts.lock(tmp_path / "run"),
        pytest.raises(UserError, match=f"in use by process {os.getpid()}"),
        artefacts.lock(tmp_path / "run"),
    ):
        pass
    with artefacts.lock(tmp_path / "run"):
        pass


def test_progress_judges_the_time_left_without_the_first_step():
    times = iter([0.0, 60.0, 62.0, 64.0])
    out = io.StringIO()
    progress = Progress("train", 12, done=2, stream=out, clock=lambda: next(times))
    progress.step(3, loss=0.5)
    progress.step(4, note="x")
    progress.step(5)
    # One step took 60 s and nine are left; then 2 s a step without the first.
    assert out.getvalue().splitlines() == [
        "train  3/12  loss 0.500  1m00s, 9m00s left",
        "train  4/12  note x  1m02s, 16s left",
        "train  5/12  1m04s, 14s left",
    ]
    assert [duration(s) for s in (7.6, 3600 * 2 + 61)] == ["8s", "2h01m"]
