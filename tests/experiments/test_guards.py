"""Stops, hangs and shaped rewards: what stands around an update."""

import os
import signal
import threading
import time

import numpy as np
import pytest

from aes_hdc.clock import Stopwatch
from experiments import preemption
from experiments.shaping import Shaping
from experiments.watchdog import EXIT_CODE, Watchdog


@pytest.fixture
def listening():
    before = signal.getsignal(signal.SIGTERM)
    preemption.listen()
    yield
    signal.signal(signal.SIGTERM, before)
    preemption._State.requested = False


def ask():
    os.kill(os.getpid(), signal.SIGTERM)


def test_stop_inside_an_update_waits_for_the_next_check(listening, capsys):
    preemption.check()
    ask()
    finished = sum(range(1000))  # The update goes on.
    assert finished
    with pytest.raises(preemption.Stopped):
        preemption.check()
    assert "stopping" in capsys.readouterr().err


def test_stop_inside_what_may_be_thrown_away_is_at_once(listening):
    started = time.monotonic()
    threading.Timer(0.2, ask).start()
    with pytest.raises(preemption.Stopped), preemption.interruptible():
        time.sleep(30)
    assert time.monotonic() - started < 10
    # And what comes after it does not even begin.
    with pytest.raises(preemption.Stopped), preemption.interruptible():
        raise AssertionError("began all the same")


def test_hang_ends_the_run_with_its_stacks(tmp_path, capsys):
    """P3."""
    ended, codes = threading.Event(), []

    def end(code):
        codes.append(code)
        ended.set()

    path = tmp_path / "hang.txt"
    with Watchdog(path, factor=2.0, least=0.2, period=0.02, end=end) as watchdog:
        for _ in range(3):
            watchdog.beat()
        assert ended.wait(20)
    assert codes == [EXIT_CODE]
    assert "test_hang_ends_the_run" in path.read_text()
    assert "no update for" in capsys.readouterr().err


def test_watchdog_does_not_judge_updates_that_compile(tmp_path):
    codes = []
    path = tmp_path / "hang.txt"
    with Watchdog(path, least=0.05, period=0.01, end=codes.append) as watchdog:
        watchdog.beat()
        watchdog.beat()
        time.sleep(0.3)
    assert codes == []
    assert not path.exists()


def test_stopwatch_adds_up_by_name_and_begins_anew():
    watch = Stopwatch()
    for _ in range(2):
        with watch.watch("a"):
            time.sleep(0.01)
    with pytest.raises(ZeroDivisionError), watch.watch("b"):
        _ = 1 / 0
    found = watch.read()
    assert found.keys() == {"a", "b"}
    assert found["a"] >= 0.02
    assert watch.read() == {}


def test_rewards_are_the_tasks_alone_by_default(episode):
    from tests.experiments.test_algorithms import talked

    terms = Shaping().terms(episode, talked(2, 3))
    np.testing.assert_array_equal(sum(terms.values()), [0.0, 1.0])


def test_each_shaping_term_by_hand(episode):
    """Higher is never worse: a legal, shorter, earlier reply gets more."""
    from tests.experiments.test_algorithms import talked

    shaping = Shaping(format_bonus=0.5, length_cost=0.01, step_cost=0.1)
    terms = shaping.terms(episode, talked(2, 3))
    assert {name: term.tolist() for name, term in terms.items()} == {
        "task": [0.0, 1.0],
        "format": [0.5, 0.5],
        "length": [-0.02, -0.03],
        "step": [-0.1, -0.1],
    }
