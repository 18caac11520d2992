"""The command line: every mistake is one line and exit status 1, before JAX starts."""

import json
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import pytest

from aes_hdc import stamps, storage
from experiments import artefacts
from experiments.main import main

ROOT = Path(__file__).parents[2]
CONFIG = """
import ml_collections as mlc

from configs import common

FOLDER = mlc.config_dict.placeholder(str)


def get_config(arg=""):
    options = common.parse_arg(arg, model="tiny", smoke=False)
    config = mlc.ConfigDict({"seed": 0})
    config.environments = {"pool": ("lights_out", "dice_sum"), "frame_px": 96}
    config.mesh = (("data", 1), ("fsdp", -1))
    config.model = {"variant": options.model, "folder": FOLDER}
    config.collect = {"trajectories": 20}
    config.profile = {"min_count": 4}
    config.gradients = {"num_groups": 8}
    config.selection = {"redundancy_weight": 0.3, "require_new_core": False}
    config.curriculum = {"alpha": 0.5, "harness": {"ladder": ("all", "none")}}
    config.rollout = {"num_groups": 4, "temperature": 1.0}
    config.learner = {"learning_rate": 1e-3, "num_updates": 4, "algorithm": "grpo"}
    config.evaluation = {"levels": (0, 1)}
    return config
"""


@pytest.fixture
def config_file(tmp_path):
    path = tmp_path / "toy.py"
    path.write_text(CONFIG)
    return path


@pytest.fixture(autouse=True)
def _no_environments(monkeypatch):
    """Looking environments up is tested with the suite."""
    suite = types.SimpleNamespace(versions={})
    monkeypatch.setattr("experiments.main.load_suite", lambda **_: suite)


@pytest.fixture
def ran(monkeypatch):
    """Calls of a runner that stands for the stages, which would import JAX."""
    calls = []
    fake = types.ModuleType("experiments.stages")

    def run(config, workdir, stages, restart):
        calls.append((config, workdir, tuple(stages), restart))
        plan = artefacts.make_plan(config, workdir, stages, restart)
        for stage in plan:
            if not stage.is_current:
                folder = stage.begin()
                storage.write_json(folder / "out.json", {"stage": stage.name})
                stage.finish(["out.json"])

    fake.run = run
    monkeypatch.setitem(sys.modules, "experiments.stages", fake)
    monkeypatch.setattr("experiments.stages", fake, raising=False)
    return calls


def fails(capsys, *arguments):
    """Runs the command line and returns its one line of complaint."""
    assert main(arguments) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    return printed.err


# arguments after --config and --workdir -> what the line must say
MISTAKES = [
    (["--config.learner.lr=1"], "learner.lr: no such key; did you mean learner.learni"),
    (["--config.learner.lr=1"], "has algorithm, learning_rate, num_updates"),
    (["--config.learning_rate=1"], "did you mean learner.learning_rate; the config ha"),
    (["--config.lerner.num_updates=1"], "did you mean learner.num_updates"),
    (["--config.curriculum.harness.lader=1"], "did you mean curriculum.harness.ladder"),
    (["--config.seed.x=1"], "seed.x: no such key; seed is a plain value"),
    (["--config.learner=1"], "config.learner: a section; set one of its keys: algo"),
    (["--config.learner={'num_updates': 3}"], "config.learner: a section"),
    (["--config.learner.num_updates=3.5"], "'3.5': give a value of type int, such as"),
    (["--config.learner.num_updates=many"], "'many': give a value of type int"),
    (["--config.learner.learning_rate=fast"], "'fast': give a value of type float"),
    (["--config.selection.require_new_core=maybe"], "give a value of type bool"),
    (["--config.learner.learning_rate=nan"], "learning_rate=nan: give a finite numb"),
    (["--config.learner.learning_rate=-inf"], "learning_rate=-inf: give a finite"),
    (["--config.rollout.temperature=1e999"], "temperature=inf: give a finite number"),
    (["--config.learner.num_updates"], "no value; write --config.learner.num_updates="),
    (["--config.seed=1", "--config.seed=2"], "--config.seed is given twice"),
    (
        ["--config.environments.pool=dice_sum,nim_heaps"],
        """--config.environments.pool="('dice_sum', 'nim_""",
    ),
    (
        ["--config.environments.pool=dice_sum"],
        """give a tuple in parentheses: --config.environments.pool="('di""",
    ),
    (
        ["--config.environments.pool=('dice_sum')"],
        """--config.environments.pool="('dice_sum',)\"""",
    ),
    (["--config.environments.pool=(1, 2)"], "element 1 is no str"),
    (["--config.evaluation.levels=(0, 'one')"], "element 'one' is no int"),
    (["--config.environments.pool=(__import__('os'),)"], "give a tuple in parentheses"),
    (["config.learner.num_updates=9"], "did you mean --config.learner.num_updates=9"),
    (["learner.num_updates=9"], "argument 'learner.num_updates=9' is no flag"),
    (
        ["--config.learner.num_updates", "9"],
        "argument '9' is no flag; write --name",
    ),
    (["--stage=train"], "--stage: no such flag; did you mean --stages"),
    (["--stages=trian"], "no stage 'trian'; did you mean train; have collect, profile"),
    (["--stages=train,"], "no stage ''; have collect"),
    (["--restart=select", "--stages=train"], "--restart=select: add select to --stag"),
    (["--restart=nothing"], "stage 'nothing': no such stage; have collect"),
    (["--stages=select"], "stage select needs profile, which is not up to date"),
    (["--trace=perhaps"], "trace"),
]


@pytest.mark.parametrize(("arguments", "said"), MISTAKES)
def test_mistakes_are_one_line(capsys, config_file, tmp_path, ran, arguments, said):
    workdir = tmp_path / "run"
    basic = [f"--config={config_file}", f"--workdir={workdir}"]
    assert said in fails(capsys, *basic, *arguments)
    assert ran == []
    assert not workdir.exists()


BAD_FILES = [
    ("absent.py", None, "no such file"),
    ("x.py", "def get_config(arg): return 1/0", "the file fails with ZeroDivisionErro"),
    ("x.py", "def get_config(arg): return {}", "it holds no config"),
    ("x.py", "x = 1", "the file fails with AttributeError"),
    ("x.py", "def get_config(", "the file fails with SyntaxError"),
    ("x.json", "{'seed': 0}", "no valid JSON"),
    ("x.json", "[1]", "it holds no config"),
    ("absent.json", None, "no such file or directory"),
]


@pytest.mark.parametrize(("name", "text", "said"), BAD_FILES)
def test_bad_config_files_are_one_line(capsys, tmp_path, name, text, said):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    assert said in fails(capsys, f"--config={path}", f"--workdir={tmp_path / 'run'}")


def test_missing_flags_and_config_arguments_are_one_line(capsys, config_file, tmp_path):
    assert "--config is missing" in fails(capsys, f"--workdir={tmp_path}")
    assert "--workdir is missing" in fails(capsys, f"--config={config_file}")
    said = fails(capsys, f"--config={config_file}:modle=2b", f"--workdir={tmp_path}")
    assert "did you mean model; have model, smoke" in said
    said = fails(capsys, f"--config={config_file}:smoke=2", f"--workdir={tmp_path}")
    assert "type bool" in said


def test_a_workdir_that_cannot_be_written_is_one_line(
    capsys, config_file, tmp_path, ran
):
    (tmp_path / "file").write_text("")
    # Neither root nor anyone else can make a folder in these two.
    for workdir in (tmp_path / "file" / "run", Path("/proc/run")):
        said = fails(capsys, f"--config={config_file}", f"--workdir={workdir}")
        assert f"--workdir={workdir}: " in said
        assert "give a folder that can be written" in said
    assert ran == []


@pytest.mark.parametrize("bad", ["--config.learner.lr=1", "--workdir=/proc/run"])
def test_mistakes_are_found_before_jax_is_imported(config_file, tmp_path, bad):
    text = config_file.read_text()
    config_file.write_text(text.replace("config.environments = ", "_ = "))
    code = f"""
        import sys
        from experiments.main import main
        status = main(["--config={config_file}", "--workdir={tmp_path}", "{bad}"])
        print(status, sorted({{"jax", "flax", "optax", "torch"}} & set(sys.modules)))
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "1 []\n"
    assert done.stderr.startswith("error: ")


def test_good_values_reach_the_stages(capsys, config_file, tmp_path, ran):
    arguments = [
        f"--config={config_file}:model=4b",
        f"--workdir={tmp_path / 'run'}",
        "--stages=gradients,collect",
        "--config.learner.learning_rate=1",
        "--config.selection.require_new_core=true",
        "--config.environments.pool=('dice_sum',)",
        "--config.model.folder=some/where",
        "--config.curriculum.harness.ladder=['all', 'rules', 'none']",
    ]
    assert main(arguments) == 0
    config, workdir, stages, restart = ran[0]
    assert (workdir, stages, restart) == (
        tmp_path / "run",
        ("collect", "gradients"),
        None,
    )
    assert config["model"] == {"variant": "4b", "folder": "some/where"}
    assert repr(config["learner"]["learning_rate"]) == "1.0"
    assert config["selection"]["require_new_core"] is True
    assert config["environments"]["pool"] == ("dice_sum",)
    assert config["curriculum"]["harness"]["ladder"] == ("all", "rules", "none")
    out = capsys.readouterr().out
    assert "collect    to do                    trajectories 20" in out


def test_a_run_folders_config_makes_the_same_run(config_file, tmp_path, ran, capsys):
    first, second = tmp_path / "a", tmp_path / "b"
    change = "--config.learner.learning_rate=3e-4"
    assert main([f"--config={config_file}", f"--workdir={first}", change]) == 0
    path = first / "config.json"
    assert main([f"--config={path}", f"--workdir={second}"]) == 0
    assert path.read_bytes() == (second / "config.json").read_bytes()
    assert "python/" not in path.read_text()
    hashes = [storage.read_jsonl(d / "runs.jsonl")[0] for d in (first, second)]
    assert hashes[0]["config_hash"] == hashes[1]["config_hash"]
    assert stamps.config_hash(ran[0][0]) == stamps.config_hash(ran[1][0])
    # And the values have the types that they had.
    assert ran[0][0] == ran[1][0]
    # In its own folder too: everything is up to date then.
    capsys.readouterr()
    assert main([f"--config={path}", f"--workdir={first}"]) == 0
    assert capsys.readouterr().out.count("up to date") == len(artefacts.STAGES)


def test_a_changed_section_needs_restart_or_another_folder(
    config_file, tmp_path, ran, capsys
):
    basic = [f"--config={config_file}", f"--workdir={tmp_path / 'run'}"]
    assert main(basic) == 0
    change = "--config.selection.redundancy_weight=0.5"
    capsys.readouterr()
    said = fails(capsys, *basic, change)
    assert "selection.redundancy_weight 0.3 -> 0.5" in said
    assert "--restart=select" in said
    assert main([*basic, change, "--restart=select"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if "to do again" in line] == [
        "select",
        "train",
        "evaluate",
        "report",
    ]


def test_config_files_that_name_their_stages_run_those(tmp_path, ran):
    text = CONFIG.replace(
        "return config", 'config.stages = ("train",)\n    return config'
    )
    (tmp_path / "base.py").write_text(text)
    assert main([f"--config={tmp_path / 'base.py'}", f"--workdir={tmp_path}/run"]) == 0
    assert ran[0][2] == ("train",)


def test_help_names_every_flag(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for flag in ("--config", "--workdir", "--stages", "--restart", "--trace"):
        assert flag in out


def test_the_line_keeps_to_one_line_whatever_was_given(capsys, config_file, tmp_path):
    said = fails(
        capsys, f"--config={config_file}", f"--workdir={tmp_path}", "a\nb\r\nc"
    )
    assert json.dumps("a\nb")[1:-1] in said
