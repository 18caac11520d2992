import numpy as np
import pytest

from aes_hdc import envs
from aes_hdc.envs.vector import Vec
from aes_hdc.episode import Harness, Task


@pytest.fixture
def vec():
    return Vec(96)


def task(env_id="frozen_lake", seed=0, **kwargs):
    return Task(env_id, seed, 0, **kwargs)


def test_slots_are_independent_and_out_of_order(vec):
    for index in range(6):
        vec.reset(index, task(seed=index))
    for index in (4, 1, 5, 0, 3, 2):
        while True:
            reply = vec.env(index).oracle_reply(vec.state(index))
            observation, step = vec.step(index, reply)
            if observation is None:
                break
        assert step.label == "success"


def test_frames_are_fresh_arrays(vec):
    first = vec.reset(0, task(seed=1))
    kept = first.frame.copy()
    other = vec.reset(1, task(seed=2))
    assert not np.shares_memory(first.frame, other.frame)
    assert np.array_equal(first.frame, kept)
    observation, _ = vec.step(0, "zzz")
    assert np.array_equal(observation.frame, kept)
    observation.frame[:] = 0
    again, _ = vec.step(0, "zzz")
    assert np.array_equal(again.frame, kept)


def test_picture_can_be_hidden(vec):
    shown = task(harness=Harness.STATE, picture=False)
    observation = vec.reset(0, shown)
    assert observation.frame is None
    assert "state:" in observation.text


def test_copies_play_on_independently(vec):
    vec.reset(0, task(seed=3))
    vec.copy(0, 1)
    reply = vec.env(0).oracle_reply(vec.state(0))
    one, first = vec.step(0, reply)
    assert vec.state(1).turn == 0
    two, second = vec.step(1, reply)
    assert first == second
    assert (one is None) == (two is None)


def test_a_finished_slot_must_be_reset(vec):
    with pytest.raises(ValueError, match="reset"):
        vec.step(0, "move up")
    vec.reset(0, task())
    for _ in range(3):
        observation, step = vec.step(0, "zzz")
    assert (observation, step.label) == (None, "invalid_limit")
    with pytest.raises(ValueError, match="reset"):
        vec.step(0, "zzz")


def test_a_broken_environment_ends_the_episode_only(vec, monkeypatch, caplog):
    vec.reset(0, task())
    monkeypatch.setattr(vec.env(0), "grammar", lambda state: 1 / 0)
    observation, step = vec.step(0, "move up")
    assert (observation, step.label, step.done) == (None, "env_error", True)
    assert "ZeroDivisionError" in caplog.text


def test_frames_too_small_for_a_level_are_refused(vec):
    least = envs.make("frozen_lake").spec.levels[-1].min_px
    assert least > 96
    top = Task("frozen_lake", 0, len(envs.make("frozen_lake").spec.levels) - 1)
    with pytest.raises(ValueError, match=str(least)):
        vec.reset(0, top)
    with pytest.raises(ValueError, match="multiple of 32"):
        Vec(100)


def test_tagged_replies_are_required_where_the_format_asks_for_them():
    tagged = Vec(96, reply_format="answer_tag")
    tagged.reset(0, task())
    reply = tagged.env(0).oracle_reply(tagged.state(0))
    assert not tagged.step(0, reply)[1].valid
    assert tagged.step(0, f"<answer>{reply}</answer>")[1].valid
