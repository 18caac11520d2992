"""Playing in the terminal: scripted replies, frames on disk, complaints in one line."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aes_hdc import envs, storage
from experiments import play, runtime

ROOT = Path(__file__).parents[2]


@pytest.fixture
def terminal(monkeypatch, capsys, tmp_path):
    """Runs the command line with lines typed into it; returns status, out and err."""

    def run(*arguments, typed=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        status = play.main([f"--out={tmp_path / 'frames'}", *arguments])
        return status, *capsys.readouterr()

    return run


def solution(env_id, seed, level):
    """The oracle's replies to one instance, one a line."""
    env = envs.make(env_id)
    state, lines = env.reset(seed, level), []
    while not state.over:
        lines.append(env.oracle_reply(state))
        env.step(state, lines[-1])
    return "\n".join(lines) + "\n", len(lines)


def test_a_human_plays_to_the_end(terminal, tmp_path):
    typed, count = solution("lights_out", 5, 2)
    assert count > 1
    status, out, err = terminal(
        "--env=lights_out",
        "--level=2",
        "--seed=5",
        "--harness=rules+state",
        typed=typed,
    )
    assert (status, err) == (0, "")
    assert "lights_out level 2 seed 5 harness rules+state" in out
    assert "goal: " in out
    assert "rules: " in out
    assert out.count("state:") == count
    assert f"reward 1, success after {count} turns" in out
    name = tmp_path / "frames" / "lights_out-level2-seed5"
    shown = [f"{name}-{turn:02d}.png" for turn in range(count)]
    for path in (*shown, f"{name}-end.png", f"{name}.gif"):
        assert f"{path}" in out
        assert Image.open(path).size == (256, 256)
    assert Image.open(f"{name}.gif").n_frames == count + 1
    last = np.asarray(Image.open(shown[-1])), np.asarray(Image.open(f"{name}-end.png"))
    assert (last[0] != last[1]).any()  # The last press is to be seen.
    record = storage.read_json(Path(f"{name}.json"))
    assert (record["success"], record["policy"]) == (True, "human")
    assert [turn["frame"] for turn in record["turns"]] == [Path(p).name for p in shown]


def test_a_wrong_reply_is_answered(terminal):
    typed = "what is this\n" + solution("frozen_lake", 3, 0)[0]
    _, out, _ = terminal("--env=frozen_lake", "--seed=3", typed=typed)
    assert "unknown action" in out
    assert "success" in out


@pytest.mark.parametrize("typed", ["", "press 1 1"])
def test_the_end_of_the_input_ends_politely(terminal, tmp_path, typed):
    # Level 2 takes more than one press, so the second reply is missing.
    status, out, err = terminal(
        "--env=lights_out", "--level=2", "--seed=5", typed=typed
    )
    assert (status, err) == (0, "")
    assert "stopped before the end" in out
    frames = tmp_path / "frames"
    assert Image.open(frames / "lights_out-level2-seed5.gif").format == "GIF"
    assert not (frames / "lights_out-level2-seed5.json").exists()


@pytest.mark.parametrize("env_id", ["count_objects", "map_coloring"])
@pytest.mark.parametrize("turns", ["one", "many"])
def test_the_oracle_plays_both_forms(terminal, env_id, turns):
    status, out, _ = terminal(
        f"--env={env_id}", "--seed=1", "--player=oracle", f"--turns={turns}"
    )
    assert status == 0
    assert "reward 1, success after 1 turn" in out or turns == "many"
    assert "success after" in out


def test_random_play_follows_from_the_seed(terminal):
    arguments = ("--env=nim_heaps", "--level=3", "--seed=11", "--player=random")
    first, second = (terminal(*arguments)[1] for _ in range(2))
    assert first == second
    assert first.count("> take ") >= 1


def test_frames_are_as_large_as_the_level_needs(terminal, tmp_path):
    for spec in envs.all_specs():
        for level, rung in enumerate(spec.levels):
            values = play.make_parser().parse_args([f"--env={spec.id}", "--seed=0"])
            values.level = level
            task, side = play.check_task(spec, values)
            assert (task.level, side) == (level, max(256, rung.min_px))
            values.player = "model"
            assert play.check_task(spec, values)[1] == max(96, rung.min_px)
    terminal("--env=nim_heaps", "--seed=1", "--frame_px=320", "--player=oracle")
    assert Image.open(tmp_path / "frames/nim_heaps-level0-seed1-00.png").width == 320


def test_frames_go_to_a_new_folder_by_default(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert play.main(["--env=dice_sum", "--player=oracle"]) == 0
    (folder,) = tmp_path.iterdir()
    assert f"[{folder}/dice_sum-level0-seed" in capsys.readouterr().out


def test_a_model_folder_plays(terminal, tiny_folder):
    status, out, err = terminal(
        "--env=count_objects", "--seed=1", "--player=model", f"--folder={tiny_folder}"
    )
    # Fresh weights say anything, so the end of the episode is all that is certain.
    assert (status, err) == (0, "")
    assert " after 1 turn" in out


MISTAKES = [
    (["--env=lights_ot"], "did you mean lights_out or lights_cycle; have bar_"),
    (["--env="], "no such environment; have bar_chart_value, "),
    ([], "the following arguments are required: --env; see --help"),
    (["--env=lights_out", "--levl=2"], "unrecognized arguments: --levl=2"),
    (["--env=lights_out", "--level=7"], "--level=7: lights_out has 0 to 6"),
    (["--env=lights_out", "--level=-1"], "--level=-1: lights_out has 0 to 6"),
    (["--env=lights_out", "--level=two"], "invalid int value: 'two'"),
    (["--env=lights_out", "--seed=-1"], "--seed=-1: no instance has it; have 0 to "),
    (["--env=lights_out", "--harness=rule"], "'rule' is not one of ['rules', "),
    (
        ["--env=lights_out", "--frame_px=100"],
        "--frame_px=100: lights_out level 0 needs",
    ),
    (["--env=lights_out", "--frame_px=64"], "needs a multiple of 32 from 96 up"),
    (["--env=lights_out", "--player=robot"], "choose from"),
    (["--env=lights_out", "--player=model", "--folder=no/model"], "no/model"),
    (["--env=lights_out", "--turns=few"], "choose from"),
    (["--env=minigrid_empt"], "did you mean minigrid_empty"),
    (
        ["--env=minigrid_dynamic_obstacles", "--turns=one"],
        "--turns=one: minigrid_dynamic_obstacles has no plan: the obstacles move",
    ),
    (["--env=lights_out", "--out=/proc/frames"], "/proc/frames: "),
]


@pytest.mark.parametrize(("arguments", "said"), MISTAKES)
def test_mistakes_are_one_line(terminal, tmp_path, arguments, said):
    status, out, err = terminal(*arguments)
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err
    assert not (tmp_path / "frames").exists()


def test_the_embedded_model_is_the_default():
    assert play.make_parser().parse_args(["--env=dice_sum"]).folder == ""
    assert runtime.EMBEDDED.name == "tiny_vl"


def test_play_without_a_model_leaves_jax_alone(tmp_path):
    code = (
        "import sys; from experiments.play import main\n"
        f"main(['--env=dice_sum', '--player=oracle', '--out={tmp_path}'])\n"
        "print({'jax', 'flax', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.endswith("set()\n"), done.stderr
