"""Loggers are conveniences: what they get, and that they never stop a run."""

import logging
import shutil

from aes_hdc.learner.metrics import TensorBoard, Writers, scalars

METRICS = {
    "loss": 0.5,
    "episodes": 8,
    "git": "abc",
    "success": {"lights_out": {"rules": {"0": [1, 4], "1": [0, 0]}}},
    "seconds": {"rollout": 1.5, "by": {"decode": 0.5}},
    "logprob_gap_by_env": {"lights_out": [0.1, 0.2]},
}


def test_every_number_gets_a_path_and_counts_become_rates():
    assert dict(scalars(METRICS)) == {
        "loss": 0.5,
        "episodes": 8.0,
        "success/lights_out/rules/0": 0.25,
        "seconds/rollout": 1.5,
        "seconds/by/decode": 0.5,
    }


class Good:
    def __init__(self):
        self.seen = []

    def write(self, step, numbers):
        self.seen.append((step, numbers["loss"]))

    def close(self):
        self.seen.append("closed")


class Bad(Good):
    def write(self, step, numbers):
        raise OSError("the network is gone")


def refuse():
    raise ImportError("no such package")


def test_writer_that_fails_is_named_once_and_left_out(caplog):
    """P2."""
    good = Good()
    factories = {"absent": refuse, "bad": Bad, "good": lambda: good}
    with caplog.at_level(logging.WARNING), Writers(factories) as writers:
        assert writers.names == ["bad", "good"]
        for step in (1, 2, 3):
            writers.write(step, METRICS)
        assert writers.names == ["good"]
    assert good.seen == [(1, 0.5), (2, 0.5), (3, 0.5), "closed"]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "absent fails (ImportError" in told[0]
    assert "the network is gone" in told[1]


def test_tensorboard_gets_every_number(tmp_path):
    with Writers({"tensorboard": lambda: TensorBoard(tmp_path)}) as writers:
        writers.write(1, METRICS)
    (event,) = tmp_path.iterdir()
    for name, _ in scalars(METRICS):
        assert name.encode() in event.read_bytes()


def test_tensorboard_that_loses_its_folder_stops_nothing(tmp_path):
    """P2."""
    folder = tmp_path / "events"
    writers = Writers({"tensorboard": lambda: TensorBoard(folder)})
    shutil.rmtree(folder)
    for step in (1, 2):
        writers.write(step, METRICS)
    writers.close()
    (tmp_path / "blocked").write_text("")
    blocked = Writers({"tensorboard": lambda: TensorBoard(tmp_path / "blocked")})
    blocked.write(1, METRICS)
    assert blocked.names == []
