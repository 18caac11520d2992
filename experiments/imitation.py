"""Imitation of the oracle solvers: how the embedded base model is made."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aes_hdc import envs, storage, streams
from aes_hdc.episode import (
    SPLITS,
    Conversation,
    Episode,
    Harness,
    Observation,
    Task,
    Turn,
)
from aes_hdc.learner import checkpoint
from aes_hdc.rollouts.collect import play
from aes_hdc.rollouts.model_player import ModelPlayer
from aes_hdc.rollouts.players import OraclePlayer
from aes_hdc.rollouts.record import record_episode
from experiments.learning import Learner
from experiments.progress import Progress
from experiments.training import success_table

DESCRIBE = "describe"
NOISES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

Noises = Mapping[tuple[str, float, int], float]  # (environment, skill, level)


@dataclass(frozen=True)
class Lesson:
    """One kind of demonstration.

    Attributes:
        harness: the help shown; None asks for a description of the picture instead.
        share: of the demonstrations, relative to the others.
        skill: success of the demonstrator, in [0, 1]; it plays at random now and then,
            as often as that takes. 1 is the oracle itself.
    """

    harness: Harness | None
    share: float
    skill: float


def describe(task: Task, frame_px: int) -> Episode:
    """Shows an instance as it starts and answers with all that is drawn on it.

    Telling the picture in words is the densest lesson in seeing: every token of the
    answer says what stands where.
    """
    env = envs.make(task.env_id)
    state = env.reset(task.seed, task.level)
    observation = Observation(DESCRIBE, env.render(state, frame_px))
    turn = Turn(observation, env.dump(state), "", "", 0.0, True, "success")
    return Episode(task, (turn,), "oracle")


@dataclass
class Imitator:
    """Trains on demonstrations until the measured success is where it should be.

    Attributes:
        learner: with the loss "imitation".
        player: measures success.
        lessons: what is demonstrated.
        env_ids: every environment, drawn alike.
        levels: scale levels and their shares.
        folder: of the train stage.
        seed: the run's.
        frame_px: side of the frames.
        max_turns: longest episode, in turns.
        batch_episodes: demonstrations an update.
        num_updates: where to stop at the latest.
        measure_every: updates between measurements.
        measure_episodes: per environment and harness.
        with_help: success at level 0 with all help that is asked for.
        without_help: range of success at level 0 without help.
        num_enough: environments that must meet both.
        message_weight: weight of predicting the messages' own text; what STATE says of
            the picture teaches to see it.
        config_hash: of the run, for the log.
        git: commit of the code, for the log.
    """

    learner: Learner
    player: ModelPlayer
    lessons: Sequence[Lesson]
    env_ids: Sequence[str]
    levels: Mapping[int, float]
    folder: Path
    seed: int
    frame_px: int
    max_turns: int
    batch_episodes: int
    num_updates: int
    measure_every: int
    measure_episodes: int
    with_help: float
    without_help: tuple[float, float]
    num_enough: int
    config_hash: str
    git: str

    def run(self) -> None:
        """Trains from the last checkpoint, or from the start."""
        found = checkpoint.restore(self.folder / "checkpoints", self.learner.state)
        start, is_done = 0, False
        if found is not None:
            start, self.learner.state, host = found
            is_done = host["is_done"]
        path = self.folder / "metrics.jsonl"
        storage.keep_jsonl(path, lambda line: line["step"] <= start)
        noises = self.demonstrator_noises()
        progress = Progress("imitate", self.num_updates, done=start)
        with storage.JsonLog(path) as log:
            for step, lesson in self._lessons(start, noises):
                if is_done:
                    return
                line: dict[str, Any] = {"step": step + 1, "wall": round(time.time(), 3)}
                line |= {"config_hash": self.config_hash, "git": self.git}
                line |= self.learner.imitate(lesson)
                shown: dict[str, float | str] = {"loss": line.get("loss", "skipped")}
                if (step + 1) % self.measure_every == 0:
                    table = self.measure(step + 1)
                    is_done = self.is_enough(table)
                    line["success"] = table
                    shown |= self._summary(table)
                log.append(line)
                if "success" in line or step == start:
                    progress.step(step + 1, **shown)
                if "success" in line or step + 1 == self.num_updates:
                    host = {"is_done": is_done}
                    folder = self.folder / "checkpoints"
                    checkpoint.save(folder, step + 1, self.learner.state, host)

    def demonstrator_noises(self) -> dict[tuple[str, float, int], float]:
        """Finds, per environment, skill and level, how often the oracle must err.

        The noise is the least of `NOISES` with which success is at most the skill asked
        for, measured on 100 episodes; an environment whose oracle needs no help from
        luck to stay below gets the noise of random play.
        """
        found: dict[tuple[str, float, int], float] = {}
        skills = sorted({lesson.skill for lesson in self.lessons} - {1.0})
        for env_id in self.env_ids:
            for level in self.levels if skills else ():
                tasks = [
                    Task(env_id, seed, level, picture=False) for seed in range(100)
                ]
                for noise in NOISES:
                    player = OraclePlayer(noise=noise, seed=self.seed)
                    episodes = play(
                        tasks,
                        player,
                        frame_px=self.frame_px,
                        max_turns=self.max_turns,
                    )
                    success = np.mean([episode.success for episode in episodes])
                    for skill in skills:
                        if success <= skill:
                            found.setdefault((env_id, skill, level), noise)
                    if all((env_id, skill, level) in found for skill in skills):
                        break
                for skill in skills:
                    found.setdefault((env_id, skill, level), 1.0)
        return found

    def _lessons(
        self, start: int, noises: Noises
    ) -> Iterator[tuple[int, list[Conversation]]]:
        """Yields each step's demonstrations; the next are made while one is learnt."""
        with ThreadPoolExecutor(max_workers=1) as pool:
            coming = pool.submit(self._demonstrate, start, noises)
            for step in range(start, self.num_updates):
                ready = coming.result()
                coming = pool.submit(self._demonstrate, step + 1, noises)
                yield step, ready

    def _demonstrate(self, step: int, noises: Noises) -> list[Conversation]:
        """Plays one step's demonstrations, a function of the seed and the step."""
        rng = streams.generator(self.seed, "lessons", step)
        shares = np.array([lesson.share for lesson in self.lessons])
        levels = np.array([*self.levels.values()])
        groups: dict[float, list[Task]] = {}
        episodes = []
        for _ in range(self.batch_episodes):
            env_id = self.env_ids[int(rng.integers(len(self.env_ids)))]
            lesson = self.lessons[rng.choice(len(shares), p=shares / shares.sum())]
            level = [*self.levels][rng.choice(len(levels), p=levels / levels.sum())]
            seed = int(rng.integers(len(SPLITS["train"])))
            if lesson.harness is None:
                episodes.append(describe(Task(env_id, seed, level), self.frame_px))
                continue
            noise = noises.get((env_id, lesson.skill, level), 0.0)
            task = Task(env_id, seed, level, lesson.harness)
            groups.setdefault(noise, []).append(task)
        for noise, tasks in sorted(groups.items()):
            player = OraclePlayer(noise=noise, seed=self.seed)
            episodes += play(
                tasks, player, frame_px=self.frame_px, max_turns=self.max_turns
            )
        chat, longest = self.learner.policy.chat, self.learner.shapes[-1].slots
        return [record_episode(episode, chat, longest) for episode in episodes]

    def measure(self, step: int) -> Mapping[str, Any]:
        """Plays validation instances of level 0 with all help and with none."""
        tasks = [
            Task(env_id, SPLITS["validation"][i], 0, harness)
            for env_id in self.env_ids
            for harness in (Harness.ALL, Harness.NONE)
            for i in range(self.measure_episodes)
        ]
        self.player.start(self.learner.state.params, self.seed, "measure", step)
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
