"""Gymnasium environments as ours: a ladder of ids and a few small functions.

The environment must return an RGB frame (`render_mode="rgb_array"`), take discrete
actions and be a deterministic function of its seed and the actions so far. Ids come
from ladders written in code; none is ever read from a file, since `gymnasium.make`
imports whatever module an id names.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from PIL import Image

from aes_hdc.envs import actions
from aes_hdc.envs.actions import Action, Grammar, Int
from aes_hdc.envs.base import Cue, Level, Spec, Step, VisualEnv
from aes_hdc.envs.state import State
from aes_hdc.episode import Event

Env = gymnasium.Env[Any, Any]

TRIALS = 8  # random episodes of which the stronger policy plays the best
MAX_STARTS = 200  # seeds tried until an instance has a plan


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
        verbs: the word for each usable action -> its number.
        scene: the state in words, all that the frame shows; an action that leaves it
            unchanged is illegal.
        goal: what to achieve, one line.
        rules: the mechanics.
        size: instance size, which grows with the level.
        abilities: names from abilities.toml.
        caption: the picture in words, without the answer; by default the scene.
        solve: a plan in our actions, or None where there is none from here.
        frame: (environment, side in pixels) -> uint8 RGB; by default `render()`.
        repeats: verbs with an optional count -> the largest one.
        events: (before, after, verb) -> what happened.
        cues: verb -> a vaguer word that hints may use; verbs that share one are told
            apart by the policy.
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
    cues: Mapping[str, str] = field(default_factory=dict)
    no_plan_reason: str = ""
    cluster: str = ""
    version: int = 1

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


class ForeignEnv(VisualEnv[Held]):
    """A ladder played through our contract; subclasses only set `spec` and `ladder`."""

    ladder: Ladder

    def generate(self, rng: np.random.Generator, params: Rung) -> Held:
        for _ in range(MAX_STARTS):
            held = self._start(rng, params)
            if self.ladder.solve is None or self.solve(held):
                return held
        raise RuntimeError(f"{self.spec.id}: {params.gym_id} yields no solvable start")

    def _start(self, rng: np.random.Generator, rung: Rung) -> Held:
        """One instance, solvable or not."""
        moment = Moment(rung, int(rng.integers(2**31)))
        scene = self.ladder.scene(moment.env)
        codes = list(self.ladder.verbs.values())
        for code in rng.choice(codes, size=rung.wander).tolist():
            played = moment.after(code, self.ladder.scene, scene)
            if played.count and not played.done and not played.cut:
                moment, scene = played.moment, played.scene
        return Held(scene, moment, frozenset([scene]), budget=rung.budget)

    def grammar(self, held: Held) -> Grammar:
        most = self.ladder.repeats(held._moment.env)
        return {
            verb: (Int(1, most[verb], default=1),) if most.get(verb, 1) > 1 else ()
            for verb in self.ladder.verbs
        }

    def apply(self, held: Held, action: Action) -> Step:
        verb, times = str(action[0]), int(action[1]) if len(action) > 1 else 1
        code, before = self.ladder.verbs[verb], held._moment
        played = before.after(code, self.ladder.scene, held.scene, times)
        is_over = played.done or played.cut
        if not played.count:
            return Step.illegal(f"{verb} changes nothing here")
        if played.count < times and not is_over:
            return Step.illegal(f"{verb} {played.count} is the most here")
        held.scene, held._moment = played.scene, played.moment
        happened = list(self.ladder.events(before.env, played.moment.env, verb))
        if held.scene in held._seen:
            happened.append(Event("revisited", "scene"))
        held._seen |= {held.scene}
        if before.plan and before.plan[0] == action:
            held._moment.plan = before.plan[1:]
        if played.done:
            end = Step.won if played.reward > 0 else Step.lost
            return end("done" if played.reward > 0 else "failed", happened)
        if played.cut:
            held.budget = held.turn + 1  # Its own limit is a limit of turns.
        return Step(events=tuple(happened))

    def draw(self, held: Held, out: np.ndarray) -> None:
        env, side = held._moment.env, len(out)
        custom = self.ladder.frame
        frame: Any = custom(env, side) if custom else env.render()
        out[:] = fit(np.asarray(frame), side)

    def goal(self, held: Held) -> str:
        return self.ladder.goal(held._moment.env)

    def rules(self, held: Held) -> str:
        return self.ladder.rules

    def caption(self, held: Held) -> str:
        words = self.ladder.caption or self.ladder.scene
        return " ".join(words(held._moment.env).split())

    def solve(self, held: Held) -> list[Action] | None:
        return self.ladder.solve(held._moment.env) if self.ladder.solve else None

    def size(self, held: Held) -> int:
        return self.ladder.size(held._moment.env)

    def dump(self, instance: Held) -> str:
        return instance.scene

    def load(self, text: str) -> Held:
        """Foreign environments are rebuilt from their seed, not from text.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"{self.spec.id}: a foreign state cannot be read from text")

    def cue(self, held: Held, plan: list[Action]) -> Cue:
        """Names the kind of action, or rules one out; two legal ones remain."""
        verb, words = str(plan[0][0]), self.ladder.cues
        actions_of = {
            name: list(actions.every({name: args}))
            for name, args in self.grammar(held).items()
        }
        vague = words.get(verb, verb)
        like = [v for v in actions_of if words.get(v) == vague]
        if other := self._legal(held, plan[0], like, actions_of):
            return Cue(vague, (plan[0], other))
        for wrong in reversed(actions_of):
            rest = [v for v in actions_of if v != wrong]
            if wrong != verb and (
                other := self._legal(held, plan[0], rest, actions_of)
            ):
                return Cue(f"not {wrong}", (plan[0], other))
        return Cue()

    def _legal(
        self,
        held: Held,
        but: Action,
        verbs: list[str],
        actions_of: Mapping[str, list[Action]],
    ) -> Action | None:
        """The first legal action of some verbs besides one."""
        for verb in verbs:
            for action in actions_of[verb]:
                if action != but and self.is_legal(held, action):
                    return action
        return None

    def oracle_reply(self, state: Held) -> str | None:
        """Returns the solver's next action, or the best of `TRIALS` random episodes.

        Without a solver, random legal episodes are played from here on copies; the
        shortest solved one is kept and followed for as long as the caller does so.
        """
        if self.ladder.solve is not None:
            return super().oracle_reply(state)
        moment = state._moment
        if not moment.plan:
            moment.plan = self._best_trial(state)
        texts = [actions.to_text(action) for action in moment.plan]
        return "; ".join(texts) if state.one else texts[0]

    def _best_trial(self, state: Held) -> tuple[Action, ...]:
        """The actions of the best random episode: a solved one, and a short one."""
        rng = self.rng("trials", state._key, state.turn)
        best: tuple[bool, int, tuple[Action, ...]] | None = None
        for _ in range(TRIALS):
            trial, plan, step = self.clone(state), [], Step()
            while not step.done and len(plan) < max(1, state.budget - state.turn):
                plan.append(self.random_action(trial, rng))
                step = self.apply(trial, plan[-1])
            found = (step.success, -len(plan), tuple(plan))
            if best is None or found[:2] > best[:2]:
                best = found
        assert best is not None
        return best[2]


def adapt(ladder: Ladder) -> type[ForeignEnv]:
    """Makes the environment class of a ladder; it is registered nowhere."""
    name = "".join(word.title() for word in ladder.id.split("_"))
    return type(name, (ForeignEnv,), {"spec": ladder.spec, "ladder": ladder})


def fit(frame: np.ndarray, side: int) -> np.ndarray:
    """Fits a frame into a square, centred on black.

    Frames that are too large are averaged down, small ones grow by a whole factor, so
    that every pixel is a function of the frame alone.

    Args:
        frame: [height, width, 3] uint8.
        side: in pixels.

    Returns:
        [side, side, 3] uint8.

    Raises:
        ValueError: if the frame has another form.
    """
    if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
        raise ValueError(
            f"frame {frame.shape} {frame.dtype} is not [height, width, 3] uint8"
        )
    longest = max(frame.shape[:2])
    if longest > side:
        height, width = (max(1, n * side // longest) for n in frame.shape[:2])
        picture = Image.fromarray(frame).resize((width, height), Image.Resampling.BOX)
        frame = np.asarray(picture)
    else:
        factor = side // longest
        frame = frame.repeat(factor, axis=0).repeat(factor, axis=1)
    out = np.zeros((side, side, 3), np.uint8)
    top, left = ((side - n) // 2 for n in frame.shape[:2])
    out[top : top + frame.shape[0], left : left + frame.shape[1]] = frame
    return out
