"""Imitation of the oracle solvers: how the embedded base model is made."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aes_hdc import stamps, storage
from aes_hdc.episode import SPLITS, Harness, Task
from aes_hdc.learner import checkpoint
from aes_hdc.rollouts.collect import play
from aes_hdc.rollouts.model_player import ModelPlayer
from experiments import preemption
from experiments.base_model import count_parameters, make_base_folder
from experiments.learning import Learner
from experiments.lessons import Lesson, Teacher
from experiments.progress import Progress
from experiments.run import Run
from experiments.runtime import make_learner, save_policy
from experiments.training import success_table


@dataclass
class Imitator:
    """Trains on demonstrations until the measured success is where it should be.

    Attributes:
        learner: with the loss "imitation".
        player: measures success.
        teacher: demonstrates.
        env_ids: every environment.
        folder: of the train stage.
        seed: the run's.
        frame_px: side of the frames.
        max_turns: longest episode, in turns.
        num_updates: where to stop at the latest.
        measure_every: updates between measurements.
        measure_episodes: per environment and harness.
        with_help: success at level 0 with all help that is asked for.
        without_help: range of success at level 0 without help.
        num_enough: environments that must meet both.
        config_hash: of the run, for the log.
        git: commit of the code, for the log.
    """

    learner: Learner
    player: ModelPlayer
    teacher: Teacher
    env_ids: Sequence[str]
    folder: Path
    seed: int
    frame_px: int
    max_turns: int
    num_updates: int
    measure_every: int
    measure_episodes: int
    with_help: float
    without_help: tuple[float, float]
    num_enough: int
    config_hash: str
    git: str

    def run(self) -> None:
        """Trains from the last checkpoint, or from the start.

        Raises:
            Stopped: where a stop was asked for, once a checkpoint is written.
        """
        found = checkpoint.restore(self.folder / "checkpoints", self.learner.state)
        start, is_done = 0, False
        if found is not None:
            start, self.learner.state, host = found
            is_done = host["is_done"]
        path = self.folder / "metrics.jsonl"
        storage.keep_jsonl(path, lambda line: line["step"] <= start)
        progress = Progress("imitate", self.num_updates, done=start)
        with storage.JsonLog(path) as log:
            for step, lesson in self.teacher.each(start):
                if is_done:
                    return
                line: dict[str, Any] = {"step": step + 1, "wall": round(time.time(), 3)}
                line |= {"config_hash": self.config_hash, "git": self.git}
                line |= self.learner.imitate(*lesson)
                shown: dict[str, float | str] = {"loss": line.get("loss", "skipped")}
                if (step + 1) % self.measure_every == 0:
                    table = self.measure(step + 1)
                    is_done = self.is_enough(table)
                    line["success"] = table
                    shown |= self._summary(table)
                log.append(line)
                if "success" in line or step == start:
                    progress.step(step + 1, **shown)
                is_last = step + 1 == self.num_updates or preemption.is_requested()
                if "success" in line or is_last:
                    host = {"is_done": is_done}
                    folder = self.folder / "checkpoints"
                    checkpoint.save(folder, step + 1, self.learner.state, host)
                preemption.check()

    def measure(self, step: int) -> Mapping[str, Any]:
        """Plays validation instances of level 0 with all help and with none."""
        tasks = [
            Task(env_id, SPLITS["validation"][i], 0, harness)
            for env_id in self.env_ids
            for harness in (Harness.ALL, Harness.NONE)
            for i in range(self.measure_episodes)
        ]
        self.player.start(self.learner.params, self.seed, "measure", step)
        return success_table(
            play(tasks, self.player, frame_px=self.frame_px, max_turns=self.max_turns)
        )

    def rates(self, table: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
        """Success with all help and with none, by environment."""
        return {
            env_id: tuple(
                np.divide(*table[env_id][harness.label]["0"])
                for harness in (Harness.ALL, Harness.NONE)
            )
            for env_id in self.env_ids
        }

    def is_enough(self, table: Mapping[str, Any]) -> bool:
        """Whether enough environments are good with help and middling without."""
        low, high = self.without_help
        met = [
            full >= self.with_help and low <= bare <= high
            for full, bare in self.rates(table).values()
        ]
        return sum(met) >= self.num_enough

    def _summary(self, table: Mapping[str, Any]) -> dict[str, str]:
        """`help/none` in percent by environment, for the progress line."""
        return {
            env_id: f"{100 * full:.0f}/{100 * bare:.0f}"
            for env_id, (full, bare) in self.rates(table).items()
        }


def imitate(run: Run) -> list[str]:
    """Makes a base model: from fresh weights unless the config names a folder.

    Returns:
        The artefacts' names.
    """
    config, folder, suite = run.config, run.folder("train"), run.suite
    source = config["model"]["folder"]
    if not source:
        source = str(folder / "init")
        if not (folder / "init" / "model.safetensors").exists():
            make_base_folder(
                folder / "init",
                {env_id: suite.targets[env_id] + 1 for env_id in suite.env_ids},
                seed=run.seed,
                frame_px=suite.frame_px,
                **config["base_model"],
            )
    policy = run.policy(source)
    print(f"imitate: {count_parameters(policy.params)} parameters")
    learner = make_learner(
        policy, config["learner"], config["rollout"], suite.max_turns, folder
    )
    section, num_updates = dict(config["imitation"]), config["learner"]["num_updates"]
    teacher = Teacher(
        lessons=[Lesson.parse(*lesson) for lesson in section.pop("lessons")],
        env_ids=suite.env_ids,
        emphasis=section.pop("emphasis"),
        levels=dict(section.pop("levels")),
        chat=policy.chat,
        max_tokens=learner.shapes[-1].slots,
        seed=run.seed,
        max_turns=suite.max_turns,
        batch_episodes=section.pop("batch_episodes"),
        num_steps=num_updates,
        knots=section.pop("knots"),
    )
    imitator = Imitator(
        learner=learner,
        player=run.player(policy),
        teacher=teacher,
        env_ids=suite.env_ids,
        folder=folder,
        seed=run.seed,
        frame_px=suite.frame_px,
        max_turns=suite.max_turns,
        num_updates=num_updates,
        config_hash=stamps.config_hash(config),
        git=stamps.git_commit(Path(__file__).parent),
        **section,
    )
    imitator.run()
    save_policy(policy, learner.params, folder / "model")
    return ["model", "metrics.jsonl"]
