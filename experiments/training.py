"""The training loop: draw tasks, play them, learn, move the curriculum, keep score."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from aes_hdc import storage, streams
from aes_hdc.clock import Stopwatch
from aes_hdc.curriculum.hdc import Curriculum
from aes_hdc.episode import SPLITS, Episode, Harness, Task, turn_fault
from aes_hdc.errors import UserError
from aes_hdc.learner import checkpoint
from aes_hdc.learner.metrics import Writers
from aes_hdc.rollouts.collect import play
from aes_hdc.rollouts.model_player import ModelPlayer
from experiments import compiles, preemption, process
from experiments.examples import write_examples
from experiments.groups import Group, gather_groups
from experiments.learning import Learner
from experiments.progress import Progress
from experiments.shaping import Shaping
from experiments.watchdog import Watchdog

HOST_FIELDS = {"curriculum", "env_ids", "num_rejected", "seed", "step"}


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
        shaping: what is added to the rewards of the task.
        writers: where scalars go beside the JSON lines.
        watchdog: told of every update.
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
    shaping: Shaping = field(default_factory=Shaping)
    writers: Writers = field(default_factory=lambda: Writers({}))
    watchdog: Watchdog | None = None

    def run(self) -> None:
        """Trains from the last checkpoint, or from the start, to `num_updates`.

        Raises:
            Stopped: where a stop was asked for, once a checkpoint is written.
        """
        start = saved = self._resume()
        progress = Progress("train", self.num_updates, done=start)
        metrics: dict[str, Any] = {}
        done = start
        with storage.JsonLog(self.folder / "metrics.jsonl") as log:
            try:
                while done < self.num_updates:
                    preemption.check(done)
                    metrics = self._update(done)
                    done += 1
                    log.append(self._header(done) | metrics)
                    self._tell(done, metrics, progress)
                    is_due = done % self.checkpoint_every == 0
                    if is_due or done == self.num_updates:
                        self._save(done, metrics["success_mean"])
                        saved = done
            except preemption.Stopped:
                if done > saved:
                    self._save(done, metrics["success_mean"])
                raise

    def _tell(self, done: int, metrics: Mapping[str, Any], progress: Progress) -> None:
        """Says on the screen and to the writers how an update went."""
        progress.step(
            done,
            success=metrics["success_mean"],
            informative=1 - metrics["degenerate_fraction"],
            grad_norm=metrics.get("grad_norm", 0.0),
        )
        self.writers.write(done, metrics)
        if self.watchdog is not None:
            self.watchdog.beat()

    def _save(self, step: int, score: float) -> None:
        """Writes a checkpoint: all that an update changes, and what it must fit."""
        host = {
            "curriculum": self.curriculum.to_json(),
            "env_ids": [*self.env_ids],
            "num_rejected": self.learner.num_rejected,
            "seed": self.seed,
            "step": step,
        }
        checkpoint.save(
            self.folder / "checkpoints", step, self.learner.state, host, score=score
        )
        process.trim()

    def _resume(self) -> int:
        """Loads the newest checkpoint and drops log lines of updates to be redone.

        Raises:
            UserError: if the checkpoint lacks a field or belongs to another run.
        """
        found = checkpoint.restore(self.folder / "checkpoints", self.learner.state)
        step = 0
        if found is not None:
            step, self.learner.state, host = found
            where = f"checkpoint {step} in {self.folder}"
            remedy = "restart with --restart=train"
            if missing := sorted(HOST_FIELDS - {*host}):
                raise UserError(f"{where} lacks {', '.join(missing)}; {remedy}")
            wanted = {"env_ids": [*self.env_ids], "seed": self.seed, "step": step}
            for name, value in wanted.items():
                if host[name] != value:
                    raise UserError(
                        f"{where} is of another run: its {name} is {host[name]!r} and"
                        f" not {value!r}; {remedy}"
                    )
            self.curriculum = Curriculum.from_json(host["curriculum"])
            self.learner.num_rejected = host["num_rejected"]
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
        watch = Stopwatch()
        self.player.start(
            self.learner.params, self.seed, "rollout", step, stopwatch=watch
        )
        with preemption.interruptible():
            episodes = play(
                members,
                self.player,
                frame_px=self.frame_px,
                max_turns=self.max_turns,
                stopwatch=watch,
            )
        played = time.monotonic()
        groups = gather_groups(
            episodes, self.player.conversation, self.group_size, self.shaping
        )
        for first in range(0, len(members), self.group_size):
            self._record(episodes[first : first + self.group_size])
        metrics: dict[str, Any] = self.learner.update(groups, seed=self.seed, step=step)
        with storage.JsonLog(self.folder / "curriculum.jsonl") as log:
            for decision in self.curriculum.end_update(step + 1):
                log.append(decision.to_json())
        if step % self.example_every == 0:
            write_examples(self.folder / "episodes" / f"{step:06d}", episodes, count=4)
        learnt = time.monotonic()
        counts = self.player.counts
        return metrics | {
            "success_mean": float(np.mean([e.success for e in episodes])),
            "success": success_table(episodes),
            "reward": reward_table(groups),
            "labels": label_table(episodes),
            "faults": fault_table(episodes),
            "episodes": len(episodes),
            "tokens": sum(counts.values()),
            "tokens_by": counts,
            "tokens_per_second": sum(counts.values()) / (played - started),
            "seconds": {
                "rollout": round(played - started, 3),
                "learn": round(learnt - played, 3),
                "by": watch.read(),
            },
            "compiles": compiles.count(),
            "process": process.usage(),
        }

    def _record(self, members: Sequence[Episode]) -> None:
        """Tells the curriculum how a group went."""
        valid = [member for member in members if member.label != "env_error"]
        if valid:
            task = valid[0].task
            self.curriculum.record(
                task.env_id,
                self.ladder.index(task.harness),
                task.level,
                sum(member.success for member in valid),
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


def fault_table(episodes: Sequence[Episode]) -> Mapping[str, Any]:
    """Counts what went wrong in the turns of each environment, see `turn_fault`."""
    table: dict[str, Counter[str]] = {}
    for episode in episodes:
        counter = table.setdefault(episode.task.env_id, Counter())
        counter.update(filter(None, map(turn_fault, episode.turns)))
    return {env_id: dict(counter) for env_id, counter in table.items()}


def reward_table(groups: Sequence[Group]) -> Mapping[str, float]:
    """Averages each term of the rewards over the episodes."""
    count = max(sum(len(group.conversations) for group in groups), 1)
    names = sorted({name for group in groups for name in group.reward_terms})
    return {
        name: sum(group.reward_terms.get(name, 0.0) for group in groups) / count
        for name in names
    }
