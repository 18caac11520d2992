"""Players without a model."""

import numpy as np
import pytest

from aes_hdc.episode import Harness, Task
from aes_hdc.rollouts.collect import play
from aes_hdc.rollouts.players import OraclePlayer

TASKS = [Task("lights_out", seed, 1, Harness.NONE) for seed in range(40)]


def success(noise, seed=0):
    episodes = play(TASKS, OraclePlayer(noise=noise, seed=seed), frame_px=96)
    return np.mean([episode.success for episode in episodes])


def replies(player, tasks=TASKS):
    return [
        [turn.reply for turn in episode.turns]
        for episode in play(tasks, player, frame_px=96)
    ]


def test_oracle_solves_all_and_noise_costs():
    assert success(0.0) == 1.0
    # Of 40 episodes each; random play solves few, see the environment's own bounds.
    assert success(0.5) > success(1.0) + 0.2
    assert success(1.0) < 0.5


def test_random_play_is_legal():
    for episode in play(TASKS, OraclePlayer(noise=1.0), frame_px=96):
        assert all(turn.valid for turn in episode.turns)


def test_choices_follow_from_the_seed():
    assert replies(OraclePlayer(noise=1.0)) == replies(OraclePlayer(noise=1.0))
    assert replies(OraclePlayer(noise=1.0)) != replies(OraclePlayer(noise=1.0, seed=1))


def test_same_task_twice_is_played_in_two_ways():
    first, *others = replies(OraclePlayer(noise=1.0), [TASKS[0]] * 6)
    assert any(other != first for other in others)


@pytest.mark.parametrize(
    ("noise", "name"), [(0.0, "oracle"), (0.3, "noisy_oracle"), (1.0, "random")]
)
def test_name_says_who_plays(noise, name):
    assert OraclePlayer(noise=noise).name == name


@pytest.mark.parametrize("noise", [-0.1, 1.1, float("nan")])
def test_noise_that_is_no_probability_is_refused(noise):
    with pytest.raises(ValueError, match="no probability"):
        OraclePlayer(noise=noise)
