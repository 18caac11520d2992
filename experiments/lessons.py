"""Lessons of a base model: the oracles' play, good and bad, and pictures in words."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from aes_hdc import envs, streams
from aes_hdc.envs import harness as messages
from aes_hdc.episode import (
    SPLITS,
    Conversation,
    Episode,
    Harness,
    Observation,
    Task,
    Turn,
)
from aes_hdc.rollouts.chat import Chat
from aes_hdc.rollouts.collect import play
from aes_hdc.rollouts.players import OraclePlayer
from aes_hdc.rollouts.record import record_episode

DESCRIBE = "describe"
RECITE = "recite"
NOISES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

T = TypeVar("T")
Demonstrations = tuple[list[Conversation], list[float]]  # and the weight of each
Noises = Mapping[tuple[str, float, int], float]  # (environment, skill, level)


@dataclass(frozen=True)
class Lesson:
    """One kind of demonstration.

    Attributes:
        harness: the help shown.
        shares: of the demonstrations, relative to the others, at each of the teacher's
            knots; in between it moves evenly.
        weight: of its tokens in the loss.
        skill: success of the demonstrator, in [0, 1]; it plays at random now and then,
            as often as that takes. 1 is the oracle itself.
        describes: whether the picture is told in words instead of played.
    """

    harness: Harness
    shares: tuple[float, ...]
    weight: float
    skill: float
    describes: bool = False

    @classmethod
    def parse(
        cls, label: str, shares: tuple[float, ...], weight: float, skill: float
    ) -> "Lesson":
        """Reads `describe`, `recite` (describe with the state shown) or a harness."""
        if label in (DESCRIBE, RECITE):
            harness = Harness.STATE if label == RECITE else Harness.NONE
            return cls(harness, shares, weight, skill, describes=True)
        return cls(Harness.parse(label), shares, weight, skill)


def describe(task: Task, frame_px: int) -> Episode:
    """Shows an instance as it starts and answers with all that is drawn on it.

    Telling the picture in words is the densest lesson in seeing: every token of the
    answer says what stands where. With the state among the help it is the densest
    lesson in reading: every token can be found in the message.
    """
    env = envs.make(task.env_id)
    state = env.reset(task.seed, task.level)
    text = messages.compose(env, state, task, first=False, feedback=DESCRIBE)
    observation = Observation(text, env.render(state, frame_px))
    turn = Turn(observation, env.dump(state), "", "", 0.0, True, "success")
    return Episode(task, (turn,), "oracle")


@dataclass(frozen=True)
class Teacher:
    """Plays demonstrations; a step's are a function of the seed and the step.

    Attributes:
        lessons: what is demonstrated.
        env_ids: every environment.
        emphasis: how often an environment is drawn, relative to the others; 1 where
            none is given.
        levels: scale levels and their shares.
        chat: of the model that learns.
        max_tokens: of a demonstration.
        seed: the run's.
        max_turns: longest episode, in turns.
        batch_episodes: demonstrations a step.
        num_steps: how many.
        knots: steps at which the lessons' shares are given, ascending.
    """

    lessons: Sequence[Lesson]
    env_ids: Sequence[str]
    emphasis: Mapping[str, float]
    levels: Mapping[int, float]
    chat: Chat
    max_tokens: int
    seed: int
    max_turns: int
    batch_episodes: int
    num_steps: int
    knots: tuple[int, ...]

    def each(self, start: int) -> Iterator[tuple[int, Demonstrations]]:
        """Yields each step's demonstrations; the next are made while one is learnt."""
        noises = self.noises()
        with ThreadPoolExecutor(max_workers=1) as pool:
            coming = pool.submit(self.demonstrate, start, noises)
            for step in range(start, self.num_steps):
                ready = coming.result()
                coming = pool.submit(self.demonstrate, step + 1, noises)
                yield step, ready

    def noises(self) -> dict[tuple[str, float, int], float]:
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
                    episodes = self._play(tasks, noise)
                    success = np.mean([episode.success for episode in episodes])
                    for skill in skills:
                        if success <= skill:
                            found.setdefault((env_id, skill, level), noise)
                    if all((env_id, skill, level) in found for skill in skills):
                        break
                for skill in skills:
                    found.setdefault((env_id, skill, level), 1.0)
        return found

    def demonstrate(self, step: int, noises: Noises) -> Demonstrations:
        """Plays one step's demonstrations, a function of the seed and the step."""
        rng = streams.generator(self.seed, "lessons", step)
        shares = [np.interp(step, self.knots, lesson.shares) for lesson in self.lessons]
        emphasis = [self.emphasis.get(env_id, 1.0) for env_id in self.env_ids]
        env_ids = _draw(rng, self.env_ids, emphasis)
        lessons = _draw(rng, self.lessons, shares)
        levels = _draw(rng, [*self.levels], [*self.levels.values()])
        episodes, weights = [], []
        groups: dict[float, list[tuple[Task, float]]] = {}
        for _ in range(self.batch_episodes):
            env_id, lesson, level = next(env_ids), next(lessons), next(levels)
            seed = int(rng.integers(len(SPLITS["train"])))
            task = Task(env_id, seed, level, lesson.harness)
            if lesson.describes:
                episodes.append(describe(task, self.chat.frame_px))
                weights.append(lesson.weight)
                continue
            noise = noises.get((env_id, lesson.skill, level), 0.0)
            groups.setdefault(noise, []).append((task, lesson.weight))
        for noise, pairs in sorted(groups.items()):
            episodes += self._play([task for task, _ in pairs], noise)
            weights += [weight for _, weight in pairs]
        records = [record_episode(e, self.chat, self.max_tokens) for e in episodes]
        return records, weights

    def _play(self, tasks: Sequence[Task], noise: float) -> list[Episode]:
        """Plays tasks with an oracle that errs so often."""
        player = OraclePlayer(noise=noise, seed=self.seed)
        return play(
            tasks, player, frame_px=self.chat.frame_px, max_turns=self.max_turns
        )


def _draw(
    rng: np.random.Generator, things: Sequence[T], shares: Sequence[float]
) -> Iterator[T]:
    """Draws things with the given shares, without end."""
    weights = np.array(shares) / np.sum(shares)
    while True:
        yield things[rng.choice(len(things), p=weights)]
