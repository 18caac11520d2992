"""The whole method on toy sizes, in this process."""

import signal

import pytest

from aes_hdc import storage
from experiments import artefacts, compiles, preemption
from experiments.learning import Learner
from experiments.main import main
from experiments.runtime import load_policy

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("lucky")]


@pytest.fixture(scope="module")
def command(tiny_folder):
    """The command line without the run folder."""
    return [
        "--config=configs/quickstart.py:smoke",
        f"--config.model.folder={tiny_folder}",
        "--config.environments.pool=('count_objects','lights_out')",
    ]


@pytest.fixture(scope="module")
def finished(command, tmp_path_factory):
    """A run folder in which every stage is done, and the programs that took."""
    workdir = tmp_path_factory.mktemp("run")
    compiles.listen()
    before = compiles.count()
    assert main([*command, f"--workdir={workdir}"]) == 0
    return workdir, compiles.count() - before


def stamps(workdir):
    paths = workdir.glob("*/stage.json")
    return {p.parent.name: p.stat().st_mtime_ns for p in paths}


def test_run_ends_with_a_report_and_a_strict_summary(finished):
    workdir, _ = finished
    assert (workdir / "report.html").read_text().startswith("<!")
    summary = storage.read_json(workdir / "summary.json")  # Refuses NaN.
    assert summary["schema"] == 1
    assert summary["selected"]
    assert set(summary["id"]) >= {"before", "after", "difference"}
    assert stamps(workdir).keys() >= {*artefacts.STAGES} - {"report"}


def test_something_was_learnt_from(finished):
    """Else the programs of the learner would not be among those that are counted."""
    workdir, _ = finished
    records = storage.read_jsonl(workdir / "train" / "metrics.jsonl")
    assert any(record.get("grad_norm", 0) > 0 for record in records)
    gradients = storage.read_json(workdir / "gradients" / "gradients.json")
    assert sum(gradients["degenerate"]) < sum(gradients["groups"])


def test_every_line_of_the_logs_is_strict_json_with_its_header(finished):
    """Q1."""
    workdir, _ = finished
    text = (workdir / "train" / "metrics.jsonl").read_text()
    records = [storage.from_json(line) for line in text.splitlines()]
    assert [record["step"] for record in records] == [1, 2, 3]
    for record in records:
        assert len(record["config_hash"]) == 64
        assert record["git"]
        assert record["wall"] > 1.7e9


def test_at_most_twelve_programs_are_compiled(finished):
    _, programs = finished
    assert programs <= 12


def test_running_again_makes_nothing_again(finished, command):
    workdir, _ = finished
    before, programs = stamps(workdir), compiles.count()
    assert main([*command, f"--workdir={workdir}"]) == 0
    after = stamps(workdir)
    before.pop("report", None)
    after.pop("report", None)
    assert after == before
    assert compiles.count() == programs


def test_evaluation_stands_on_its_own(command, tmp_path):
    assert main([*command, f"--workdir={tmp_path}", "--stages=evaluate,report"]) == 0
    assert (tmp_path / "report.html").exists()
    table = storage.read_json(tmp_path / "evaluate" / "evaluation.json")
    assert table["policies"] == {"before": "before", "after": "before"}
    assert {*table["headline"]} == {"id", "ood"}
    for row in table["rows"]:
        assert row["difference"] == 0.0


def test_base_model_is_made_from_nothing(tmp_path):
    """The folder it ends with is one that the other configs can start from."""
    arguments = [f"--workdir={tmp_path}", "--config.environments.pool=('lights_out',)"]
    assert main(["--config=configs/tiny_base.py:smoke", *arguments]) == 0
    made = load_policy(
        folder=str(tmp_path / "train" / "model"),
        dtype="float32",
        frame_px=96,
        unroll=True,
        temperature=1.0,
    )
    assert made.chat.decode(made.chat.reply("press 1 2")) == "press 1 2"
    lines = storage.read_jsonl(tmp_path / "train" / "metrics.jsonl")
    assert [*lines[1]["success"]] == ["lights_out", "odd_one_out"]
    assert all(line["loss"] > 0 and line["grad_norm"] > 0 for line in lines)


def test_base_model_in_the_making_stops_with_a_checkpoint(tmp_path, monkeypatch):
    """R3: asked in the second of three steps, where no checkpoint would be due."""
    command = [
        "--config=configs/tiny_base.py:smoke",
        "--config.environments.pool=('lights_out',)",
        "--config.imitation.measure_every=9",
        f"--workdir={tmp_path}",
    ]
    imitate, calls = Learner.imitate, []

    def asked(*args):
        calls.append(len(calls))
        if len(calls) == 2:
            preemption._on_signal(signal.SIGTERM, None)
        return imitate(*args)

    monkeypatch.setattr(Learner, "imitate", asked)
    assert main(command) == 0
    assert len(calls) == 2
    assert (tmp_path / "train" / "checkpoints" / "2").is_dir()
    assert not (tmp_path / "train" / "model").exists()
    assert main(command) == 0
    assert len(calls) == 3
    assert (tmp_path / "train" / "model").is_dir()


def test_foreign_environments_go_the_same_way(tiny_folder, tmp_path):
    command = [
        "--config=configs/minigrid.py:smoke",
        f"--config.model.folder={tiny_folder}",
        "--config.environments.pool=('minigrid_empty','minigrid_fetch')",
        f"--workdir={tmp_path}",
    ]
    assert main(command) == 0
    table = storage.read_json(tmp_path / "evaluate" / "evaluation.json")
    assert table["panels"]["id"]["env_ids"] == ["minigrid_empty", "minigrid_fetch"]
