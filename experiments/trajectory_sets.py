"""Trajectories of a weaker and a stronger policy on the same instances."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from aes_hdc import storage, streams, trajectories
from aes_hdc.episode import SPLITS, Episode, Harness, Task
from aes_hdc.rollouts.collect import Player, play
from aes_hdc.rollouts.players import OraclePlayer
from experiments.progress import Progress
from experiments.suite import Suite

NOISES = (0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05, 0.0)


def draw_tasks(suite: Suite, *, seed: int, instances: int, harness: str) -> list[Task]:
    """Draws the instances that both policies play, s uniform on 0..T."""
    tasks = []
    for env_id in suite.pool:
        rng = streams.generator(seed, "collect", env_id)
        for _ in range(instances):
            level = int(rng.integers(suite.targets[env_id] + 1))
            instance = int(rng.integers(len(SPLITS["train"])))
            tasks.append(Task(env_id, instance, level, Harness.parse(harness)))
    return tasks


def collect(
    suite: Suite,
    weak: Player,
    folder: Path,
    *,
    seed: int,
    instances: int,
    harness: str,
    strong_success: float,
) -> list[str]:
    """Writes weak.jsonl and strong.jsonl; one that is there already is kept.

    The stronger policy is an oracle that errs now and then: as often as leaves it at
    least `strong_success`, so that its failures are in the evidence as well.

    Args:
        suite: the environments.
        weak: the weaker policy.
        folder: of the stage.
        seed: the run's.
        instances: per environment.
        harness: label of the help shown.
        strong_success: in [0, 1].

    Returns:
        The artefacts' names.
    """
    tasks = draw_tasks(suite, seed=seed, instances=instances, harness=harness)
    progress = Progress("collect", 2)
    for number, (name, make) in enumerate(
        (
            ("weak", lambda: play_suite(suite, tasks, weak)),
            ("strong", lambda: play_strong(suite, tasks, seed, strong_success)),
        )
    ):
        path = folder / f"{name}.jsonl"
        if not path.exists():
            episodes = make()
            lines = [storage.to_json(trajectories.to_json(e)) + "\n" for e in episodes]
            storage.write_text(path, "".join(lines))
            success = float(np.mean([episode.success for episode in episodes]))
            progress.step(number + 1, policy=name, success=success)
    return ["weak.jsonl", "strong.jsonl"]


def play_suite(suite: Suite, tasks: Sequence[Task], player: Player) -> list[Episode]:
    """Plays tasks under the suite's limits."""
    return play(tasks, player, frame_px=suite.frame_px, max_turns=suite.max_turns)


def play_strong(
    suite: Suite, tasks: Sequence[Task], seed: int, least: float
) -> list[Episode]:
    """Plays each environment with the noisiest oracle that succeeds often enough."""
    episodes = []
    for env_id in suite.pool:
        mine = [task for task in tasks if task.env_id == env_id]
        for noise in NOISES:
            player = OraclePlayer(noise=noise, seed=seed)
            player.name = "strong"
            played = play_suite(suite, mine, player)
            if np.mean([episode.success for episode in played]) >= least:
                break
        episodes += played
    return episodes
