"""Ladders of Gymnasium ids, and their environments held still between actions."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from aes_hdc.envs.actions import Action
from aes_hdc.envs.base import Level, Spec
from aes_hdc.envs.state import State
from aes_hdc.episode import Event

Env = gymnasium.Env[Any, Any]


@dataclass(frozen=True)
class Rung:
    """One level of a ladder.

    Attributes:
        gym_id: a registered Gymnasium id, without a module.
        kwargs: passed to `gymnasium.make`.
        min_px: smallest legible frame, a multiple of 32.
        small: whether there are under 200 distinct instances.
        budget: turns allowed where the ladder has no solver.
        wander: random actions that are played before the episode starts, which gives
            more instances to an environment with few.
        copies: whether `copy.deepcopy` gives an independent environment; without it
            every action replays the episode.
    """

    gym_id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    min_px: int = 96
    small: bool = False
    budget: int = 0
    wander: int = 0
    copies: bool = True


@dataclass(frozen=True)
class Ladder:
    """What turns Gymnasium ids into an environment of ours.

    The functions receive the Gymnasium environment, wrappers included, and must leave
    it alone.

    Attributes:
        id: id of the environment.
        family: engine name.
        rungs: from easy to hard.
        verbs: one or two words for each usable action -> its number. Those that share
            a first word are one verb with a choice: "turn left" and "turn right".
        scene: the state in words, all that the frame shows; an action that leaves it
            unchanged is illegal.
        goal: what to achieve, one line.
        rules: the mechanics.
        size: instance size, which grows with the level.
        abilities: names from abilities.toml.
        caption: the picture in words, without the answer; by default the scene.
        solve: a plan in our actions, or None where there is none from here.
        frame: (environment, side in pixels) -> uint8 RGB; by default `render()`.
        repeats: verbs with an optional count -> the largest one; the second word of
            two is left out here.
        events: (before, after, verb) -> what happened.
        no_plan_reason: why one reply cannot hold the whole solution, if so.
        cluster: name of its group of near-duplicates.
        version: raised on any change of instances, frame or text.
    """

    id: str
    family: str
    rungs: tuple[Rung, ...]
    verbs: Mapping[str, int]
    scene: Callable[[Env], str]
    goal: Callable[[Env], str]
    rules: str
    size: Callable[[Env], int]
    abilities: tuple[str, ...]
    caption: Callable[[Env], str] | None = None
    solve: Callable[[Env], list[Action] | None] | None = None
    frame: Callable[[Env, int], np.ndarray] | None = None
    repeats: Callable[[Env], Mapping[str, int]] = lambda env: {}
    events: Callable[[Env, Env, str], Sequence[Event]] = lambda old, new, verb: ()
    no_plan_reason: str = ""
    cluster: str = ""
    version: int = 1

    def __post_init__(self) -> None:
        """Checks the verbs.

        Raises:
            ValueError: if one has other than one or two words, or stands both alone and
                before a second word.
        """
        for words in map(str.split, self.verbs):
            if len(words) not in (1, 2) or (len(words) == 2 and words[0] in self.verbs):
                raise ValueError(
                    f"{self.id}: verb {' '.join(words)!r} in {[*self.verbs]}: use one"
                    " word, or two of which the first stands nowhere alone"
                )

    @property
    def spec(self) -> Spec:
        """The ladder as the registry knows it."""
        return Spec(
            self.id,
            self.family,
            "M",
            tuple(Level(rung, rung.min_px, rung.small) for rung in self.rungs),
            self.abilities,
            version=self.version,
            cluster=self.cluster,
            has_plan=not self.no_plan_reason,
            no_plan_reason=self.no_plan_reason,
        )


class Moment:
    """A Gymnasium environment at one point of an episode.

    It is never stepped again, so copies share it; `after` makes the next one. A pickle
    holds the seed and the actions, and replays them.

    Attributes:
        rung: what was made.
        seed: what it was reset with.
        played: the numbers of the actions so far.
        env: the environment itself.
        plan: notes of the policy that looks for plans.
    """

    __slots__ = ("env", "plan", "played", "rung", "seed")

    def __init__(
        self,
        rung: Rung,
        seed: int,
        played: tuple[int, ...] = (),
        env: Env | None = None,
    ) -> None:
        self.rung, self.seed, self.played = rung, seed, played
        self.plan: tuple[Action, ...] | None = None
        if env is None:
            env = make(rung)
            env.reset(seed=seed)
            for code in played:
                env.step(code)
        self.env = env

    def after(
        self, code: int, scene: Callable[[Env], str], before: str, times: int = 1
    ) -> "Played":
        """Plays an action up to `times` times.

        It stops early at the end of the episode and where the scene does not change.

        Args:
            code: the action's number.
            scene: the state in words.
            before: the scene of this moment.
            times: at least 1.

        Raises:
            RuntimeError: if the environment fails.
        """
        env = self._copy()
        reward, done, cut, count = 0.0, False, False, 0
        while count < times and not done and not cut:
            try:
                _, gain, done, cut, _ = env.step(code)
                now = scene(env)
            except Exception as error:
                raise RuntimeError(
                    f"{self.rung.gym_id} seed {self.seed}: action {code} after"
                    f" {list(self.played)} fails with {type(error).__name__}: {error}"
                ) from error
            if now == before and not done:
                break
            before, reward, count = now, float(gain), count + 1
        moment = Moment(self.rung, self.seed, self.played + (code,) * count, env)
        return Played(moment, before, reward, done, cut, count)

    def _copy(self) -> Env:
        """An environment in the same state that may be stepped."""
        if self.rung.copies:
            return copy.deepcopy(self.env)
        return Moment(self.rung, self.seed, self.played).env

    def __deepcopy__(self, memo: object) -> "Moment":
        """Returns itself: it never changes."""
        return self

    def __reduce__(self) -> tuple[type["Moment"], tuple[Rung, int, tuple[int, ...]]]:
        """Pickles as what it takes to play it again."""
        return Moment, (self.rung, self.seed, self.played)

    def __repr__(self) -> str:
        """Hides the seed: instances are the same if their scenes and goals are."""
        return "moment"


@dataclass(frozen=True)
class Played:
    """What an action came to.

    Attributes:
        moment: after it.
        scene: its state in words.
        reward: the last one.
        done: whether the environment ended the episode.
        cut: whether its limit of steps did.
        count: how many repeats had an effect.
    """

    moment: Moment
    scene: str
    reward: float
    done: bool
    cut: bool
    count: int


def make(rung: Rung) -> Env:
    """Makes a Gymnasium environment that returns frames.

    Raises:
        ValueError: if the id is not registered, or its actions are not discrete.
    """
    if rung.gym_id not in gymnasium.registry:
        raise ValueError(
            f"gym id {rung.gym_id!r} is not registered; import its package"
        )
    env = gymnasium.make(
        rung.gym_id,
        render_mode="rgb_array",
        disable_env_checker=True,
        **rung.kwargs,
    )
    if not isinstance(env.action_space, gymnasium.spaces.Discrete):
        raise ValueError(f"{rung.gym_id}: {env.action_space} is not Discrete")
    return env


@dataclass(slots=True)
class Held(State):
    """An environment of someone else in mid-episode.

    Attributes:
        scene: what its frame shows, in words.
    """

    scene: str
    _moment: Moment
    _seen: frozenset[str] = frozenset()
