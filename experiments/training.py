"""The training loop: draw tasks, play them, learn, move the curriculum, keep score."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aes_hdc import storage, streams
from aes_hdc.curriculum.hdc import Curriculum
from aes_hdc.episode import SPLITS, Episode, Harness, Task
from aes_hdc.learner import checkpoint
from aes_hdc.rollouts.collect import play
from aes_hdc.rollouts.model_player import ModelPlayer
from experiments import compiles
from experiments.examples import write_examples
from experiments.learning import Group, Learner
from experiments.progress import Progress

CUT = ("length", "overflow")  # Labels of episodes that ended for want of room.


@dataclass
class Trainer:
    """Everything an update needs; `run` goes through them.

    Attributes:
        learner: holds the parameters.
        player: plays with them.
        curriculum: decides how hard the tasks are.
        ladder: harness sets, from the most help to none.
        env_ids: selected environments.
        folder: of the train stage.
        seed: the run's.
        frame_px: side of the frames.
        max_turns: longest episode, in turns.
        num_groups: instances an update.
        group_size: episodes an instance.
        num_updates: where to stop.
        checkpoint_every: updates between checkpoints.
        example_every: updates between written example episodes.
        config_hash: of the run, for the log.
        git: commit of the code, for the log.
    """

    learner: Learner
    player: ModelPlayer
    curriculum: Curriculum
    ladder: Sequence[Harness]
    env_ids: Sequence[str]
    folder: Path
    seed: int
    frame_px: int
    max_turns: int
    num_groups: int
    group_size: int
    num_updates: int
    checkpoint_every: int
    example_every: int
    config_hash: str
    git: str

    def run(self) -> None:
        """Trains from the last checkpoint, or from the start, to `num_updates`."""
        start = self._resume()
        progress = Progress("train", self.num_updates, done=start)
        with storage.JsonLog(self.folder / "metrics.jsonl") as log:
            for step in range(start, self.num_updates):
                metrics = self._update(step)
                done = step + 1
                log.append(self._header(done) | metrics)
                progress.step(
                    done,
                    success=metrics["success_mean"],
                    informative=1 - metrics["degenerate_fraction"],
                    grad_norm=metrics.get("grad_norm", 0.0),
                )
                if done % self.checkpoint_every == 0 or done == self.num_updates:
                    host = {"curriculum": self.curriculum.to_json()}
                    checkpoint.save(
                        self.folder / "checkpoints", done, self.learner.state, host
                    )

    def _resume(self) -> int:
        """Loads the newest checkpoint and drops log lines of updates to be redone."""
        found = checkpoint.restore(self.folder / "checkpoints", self.learner.state)
        step = 0
        if found is not None:
            step, self.learner.state, host = found
            self.curriculum = Curriculum.from_json(host["curriculum"])
        for name in ("metrics.jsonl", "curriculum.jsonl"):
            storage.keep_jsonl(self.folder / name, lambda line: line["step"] <= step)
        return step

    def _header(self, step: int) -> dict[str, Any]:
        """What every line of the log begins with."""
        return {
            "step": step,
            "wall": round(time.time(), 3),
            "config_hash": self.config_hash,
            "git": self.git,
        }

    def draw(self, step: int) -> list[Task]:
        """Draws one task per group; the stream belongs to the update alone."""
        rng = streams.generator(self.seed, "tasks", step)
        tasks = []
        for group in range(self.num_groups):
            env_id = self.env_ids[int(rng.integers(len(self.env_ids)))]
            harness_level, level = self.curriculum.sample(env_id, rng)
            seed = streams.integer(
                self.seed, "instance", step, group, high=len(SPLITS["train"])
            )
            tasks.append(Task(env_id, seed, level, self.ladder[harness_level]))
        return tasks

    def _update(self, step: int) -> dict[str, Any]:
        """One update; everything it draws follows from the seed and `step`."""
        started = time.monotonic()
        tasks = self.draw(step)
        members = [task for task in tasks for _ in range(self.group_size)]
        tokens = self.player.num_tokens
        self.player.start(self.learner.state.params, self.seed, "rollout", step)
        episodes = play(
            members, self.player, frame_px=self.frame_px, max_turns=self.max_turns
        )
        played = time.monotonic()
        groups = []
        for first in range(0, len(members), self.group_size):
            members_of = range(first, first + self.group_size)
            valid = [i for i in members_of if episodes[i].label != "env_error"]
            self._record(episodes, valid)
            rewards = np.array([episodes[i].reward for i in valid])
            is_cut = np.array([episodes[i].label in CUT for i in valid])
            rows = [self.player.conversation(i) for i in valid]
            groups.append(Group(rows, rewards, is_cut))
        metrics: dict[str, Any] = dict(self.learner.update(groups))
        with storage.JsonLog(self.folder / "curriculum.jsonl") as log:
            for decision in self.curriculum.end_update(step + 1):
                log.append(decision.to_json())
        if step % self.example_every == 0:
            write_examples(self.folder / "episodes" / f"{step:06d}", episodes, count=4)
        return metrics | {
            "success_mean": float(np.mean([e.success for e in episodes])),
            "success": success_table(episodes),
            "labels": label_table(episodes),
            "episodes": len(episodes),
            "tokens": self.player.num_tokens - tokens,
            "seconds": {
                "rollout": round(played - started, 3),
                "learn": round(time.monotonic() - played, 3),
            },
            "compiles": compiles.count(),
        }

    def _record(self, episodes: Sequence[Episode], valid: Sequence[int]) -> None:
        """Tells the curriculum how a group went."""
        if valid:
            task = episodes[valid[0]].task
            solved = sum(episodes[i].success for i in valid)
            self.curriculum.record(
                task.env_id,
                self.ladder.index(task.harness),
                task.level,
                solved,
                len(valid),
            )


def success_table(episodes: Sequence[Episode]) -> Mapping[str, Any]:
    """Counts [successes, episodes] by environment, harness label and scale level."""
    table: dict[str, dict[str, dict[str, list[int]]]] = {}
    for episode in episodes:
        task = episode.task
        if episode.label == "env_error":
            continue
        by_harness = table.setdefault(task.env_id, {})
        by_level = by_harness.setdefault(task.harness.label, {})
        cell = by_level.setdefault(str(task.level), [0, 0])
        cell[0] += episode.success
        cell[1] += 1
    return table


def label_table(episodes: Sequence[Episode]) -> Mapping[str, Any]:
    """Counts how the episodes of each environment ended."""
    table: dict[str, Counter[str]] = {}
    for episode in episodes:
        table.setdefault(episode.task.env_id, Counter())[episode.label] += 1
    return {env_id: dict(counter) for env_id, counter in table.items()}
