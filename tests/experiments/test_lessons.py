"""Demonstrations follow from the seed and the step, in the shares asked for."""

from collections import Counter

import numpy as np
import pytest

from aes_hdc import envs
from aes_hdc.episode import Harness, Task
from experiments.lessons import Lesson, Teacher, describe

ENV_IDS = ("count_objects", "lights_out")


@pytest.fixture
def teacher(tiny_policy):
    def make(lessons, **changes):
        settings = {
            "lessons": [Lesson.parse(*lesson) for lesson in lessons],
            "env_ids": ENV_IDS,
            "emphasis": {},
            "levels": {0: 0.5, 1: 0.5},
            "chat": tiny_policy.chat,
            "max_tokens": 512,
            "seed": 0,
            "max_turns": 5,
            "batch_episodes": 200,
            "num_steps": 10,
            "knots": (0, 10),
        }
        return Teacher(**(settings | changes))

    return make


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_a_description_tells_all_and_a_recital_shows_it_too(env_id):
    env = envs.make(env_id)
    state = env.dump(env.reset(5, 1))
    blind = describe(Task(env_id, 5, 1, Harness.NONE), 96)
    shown = describe(Task(env_id, 5, 1, Harness.STATE), 96)
    assert blind.turns[0].reply == shown.turns[0].reply == state
    assert state not in blind.turns[0].observation.text
    assert state in shown.turns[0].observation.text


def test_demonstrations_follow_from_seed_and_step(teacher):
    lessons = [("describe", (1, 1), 0.3, 1.0), ("all", (1, 1), 1.0, 0.7)]
    made = teacher(lessons, batch_episodes=12)
    noises = made.noises()
    once, again = (made.demonstrate(3, noises) for _ in range(2))
    other, _ = made.demonstrate(4, noises)
    ids = [[row.ids.tolist() for row in rows] for rows in (once[0], again[0], other)]
    assert ids[0] == ids[1] != ids[2]
    assert once[1] == again[1]


def test_shares_move_evenly_between_knots(teacher):
    made = teacher([("none", (1, 0), 2.0, 1.0), ("describe", (0, 1), 5.0, 1.0)])
    for step, share in ((0, 0.0), (5, 0.5), (10, 1.0)):
        _, weights = made.demonstrate(step, {})
        found = np.mean(np.array(weights) == 5.0)
        # Three standard deviations of 200 draws.
        assert abs(found - share) <= 3 * np.sqrt(share * (1 - share) / 200)


def test_emphasis_draws_an_environment_more_often(teacher, monkeypatch):
    made = teacher([("none", (1, 1), 1.0, 1.0)], emphasis={"lights_out": 3.0})
    drawn = Counter()
    monkeypatch.setattr(
        Teacher,
        "_play",
        lambda self, tasks, noise: drawn.update(t.env_id for t in tasks) or [],
    )
    made.demonstrate(0, {})
    assert drawn.total() == 200
    assert abs(drawn["lights_out"] / 200 - 0.75) <= 3 * np.sqrt(0.75 * 0.25 / 200)
