"""The environment contract: what an author writes and what all environments share.

An environment is a set of functions of an explicit state. Seeding, splits, parsing,
budgets, labels and texts are decided here, once.
"""

import typing
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from hashlib import blake2b
from typing import Any, Generic, Literal, TypeVar
from zlib import crc32

import numpy as np

from aes_hdc.envs import actions, events, harness, state
from aes_hdc.envs.actions import Action, Grammar, RejectedError
from aes_hdc.envs.hints import Cue, default_cue
from aes_hdc.envs.spec import Level, Spec, Step, hash_split, split_of
from aes_hdc.envs.state import State
from aes_hdc.episode import Event, Task

S = TypeVar("S", bound=State)

MAX_DRAWS = 2000  # instances tried until one falls into the split of its seed
MAX_BAD = 3  # rejected replies in a row that end an episode
EASY_LEVELS = 2  # levels whose budget stays within EASY_BUDGET
EASY_BUDGET = 6
REGISTRY: dict[str, type["VisualEnv[Any]"]] = {}


def register(
    env_id: str,
    *,
    family: str,
    turns: Literal["S", "M", "B"],
    levels: Sequence[Any],
    abilities: Sequence[str],
    **extra: Any,
) -> Callable[[type["VisualEnv[Any]"]], type["VisualEnv[Any]"]]:
    """Returns a class decorator that files an environment under its id.

    Args:
        env_id: unique name.
        family: engine name.
        turns: "S", "M" or "B".
        levels: `Level` objects, or bare parameters for levels legible at 96 pixels.
        abilities: names from abilities.toml.
        **extra: further fields of `Spec`.

    Raises:
        ValueError: if the id is taken, or has_plan is false without a reason.
    """
    rungs = tuple(x if isinstance(x, Level) else Level(x) for x in levels)
    spec = Spec(env_id, family, turns, rungs, tuple(abilities), **extra)
    if not spec.has_plan and not spec.no_plan_reason:
        raise ValueError(f"{env_id}: has_plan=False needs no_plan_reason")

    def file(cls: type["VisualEnv[Any]"]) -> type["VisualEnv[Any]"]:
        known = REGISTRY.get(env_id)
        if known is not None and known.__qualname__ != cls.__qualname__:
            raise ValueError(f"{env_id}: registered twice, {known} and {cls}")
        cls.spec = spec
        REGISTRY[env_id] = cls
        return cls

    return file


class VisualEnv(Generic[S]):
    """A family of instances of one task; every method is a function of the state.

    Authors write generate, grammar, apply, draw, goal, rules, caption, solve and size,
    and cue where the derived hint is too weak. `apply` may change its state in place:
    clone before you branch.
    """

    spec: Spec
    state_type: type[S]

    def __init__(self, *, max_actions: int = 1, strict: bool = False) -> None:
        self.max_actions = max_actions
        self.strict = strict

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Finds the state's type in the brackets of `VisualEnv[...]`."""
        super().__init_subclass__(**kwargs)
        for origin in getattr(cls, "__orig_bases__", ()):
            for arg in typing.get_args(origin):
                if isinstance(arg, type) and is_dataclass(arg):
                    cls.state_type = typing.cast("type[S]", arg)

    # What an author writes.

    def generate(self, rng: np.random.Generator, params: Any) -> S:
        """Makes a solvable, unsolved instance; `reset` fills in a budget of 0."""
        raise NotImplementedError

    def grammar(self, state: S) -> Grammar:
        """Returns the verbs and their typed arguments."""
        raise NotImplementedError

    def apply(self, state: S, action: Action) -> Step:
        """Executes a well-typed action; an illegal one leaves the state as it was."""
        raise NotImplementedError

    def draw(self, state: S, out: np.ndarray) -> None:
        """Paints the visible state over all of `out`, [size, size, 3] uint8."""
        raise NotImplementedError

    def goal(self, state: S) -> str:
        """Returns what to achieve, always shown."""
        raise NotImplementedError

    def rules(self, state: S) -> str:
        """Returns the mechanics, without anything about this instance's answer."""
        raise NotImplementedError

    def caption(self, state: S) -> str:
        """Returns the picture in words, without the answer."""
        raise NotImplementedError

    def solve(self, state: S) -> list[Action] | None:
        """Returns a shortest or proven plan from any reachable state, or None.

        It is pure, and bounded by node counts. In a state with `one` set, a "B"
        environment returns its single answer.
        """
        raise NotImplementedError

    def size(self, state: S) -> int:
        """Returns the instance size, which grows with the level."""
        raise NotImplementedError

    def cue(self, state: S, plan: list[Action]) -> Cue:
        """Returns a hint that leaves two legal actions; override to sharpen it."""
        return default_cue(
            self.grammar(state),
            plan[0],
            lambda other: self.is_legal(state, other),
            coin=crc32(self.dump(state).encode()) % 2,
        )

    # Shared; normally not overridden.

    def rng(self, *parts: object) -> np.random.Generator:
        """Returns the generator named by the parts, the id and the version."""
        name = "/".join(map(str, (self.spec.id, self.spec.version, *parts)))
        key = int.from_bytes(blake2b(name.encode(), digest_size=16).digest(), "little")
        return np.random.Generator(np.random.Philox(key=key))

    def turn_rng(self, state: S) -> np.random.Generator:
        """Returns the generator for chance in this turn; clones replay it."""
        return np.random.Generator(np.random.Philox(key=state._key, counter=state.turn))

    def reset(
        self, seed: int, level: int, *, turns: Literal["one", "many"] = "many"
    ) -> S:
        """Makes the instance of a seed.

        Args:
            seed: its range decides the split; instances are redrawn until their hash
                falls into that split, so no two splits share an instance.
            level: index into the ladder.
            turns: "one" asks for the whole answer or plan in one reply.

        Raises:
            ValueError: if the seed or level is out of range or there is no such form.
            RuntimeError: if `MAX_DRAWS` instances in a row belong to other splits.
        """
        if level not in range(len(self.spec.levels)):
            raise ValueError(
                f"level {level!r}: {self.spec.id} has 0 to {len(self.spec.levels) - 1}"
            )
        if turns == "one" and not self.spec.has_plan:
            raise ValueError(f"{self.spec.id} has no plan: {self.spec.no_plan_reason}")
        split, rng = split_of(seed), self.rng(level, seed)
        for _ in range(MAX_DRAWS):
            instance = self.generate(rng, self.spec.levels[level].params)
            if hash_split(state.fingerprint(instance, self.goal(instance))) == split:
                break
        else:
            raise RuntimeError(
                f"{self.spec.id} level {level}: no {split} instance drawn"
            )
        instance._key = int(rng.integers(2**63))
        if not instance.budget:
            instance.budget = self._budget(instance, level)
        instance.one = turns == "one"
        return instance

    def _budget(self, instance: S, level: int | None) -> int:
        """Half as many actions again as the oracle needs, and three."""
        if self.spec.turns == "S":
            return 1
        needed = len(self.solve(instance) or ())
        budget = (3 * needed + 1) // 2 + 3
        if level is not None and level < EASY_LEVELS:
            budget = max(needed + 1, min(budget, EASY_BUDGET))
        return budget

    def step(self, state: S, text: str) -> Step:
        """Executes a reply.

        The reply is parsed and its actions are applied in order, each for one turn, up
        to the first that is rejected or ends the episode. A rejected reply costs one
        turn and changes nothing else.

        Args:
            state: changed in place.
            text: the policy's reply, untrusted.

        Raises:
            ValueError: if the episode is over.
        """
        if state.over:
            raise ValueError("the episode is over: reset before the next step")
        single = state.one or self.spec.turns == "S"
        done: list[str] = []
        happened: list[Event] = []
        step, total = Step(), 0
        try:
            parts = actions.clauses(text, strict=self.strict)
            total = len(parts)
            room = max(1, state.budget - state.turn)
            for part in parts[: room if state.one else min(room, self.max_actions)]:
                action = actions.parse(part, self.grammar(state))
                step = self.apply(state, action)
                if not step.valid:
                    raise RejectedError("ILLEGAL", step.feedback)
                state.turn += 1
                done.append(actions.to_text(action))
                happened += step.events
                if step.done:
                    break
        except RejectedError as error:
            step = Step(feedback=actions.rejection(error, self.grammar(state)))
            happened.append(Event("rejected", error.code))
        if done and state.bad:
            happened.append(Event("recovered", "", state.bad))
        if not done:
            state.turn += 1
        state.bad = 0 if done else state.bad + 1
        if total > 1 and len(done) < total:
            step.feedback = f"{len(done)} of {total} done. {step.feedback}"
        step.valid = bool(done)
        step.action = "; ".join(done)
        step.events = tuple(events.check(event) for event in happened)
        return self._close(state, step, single)

    def _close(self, state: S, step: Step, single: bool) -> Step:
        """Ends the episode at its limits and sets the label."""
        if step.terminated:
            step.label = "success" if step.success else "wrong"
        elif single and step.valid:
            step.terminated, step.label = True, "wrong"
        elif state.bad >= MAX_BAD:
            step.truncated, step.label = True, "invalid_limit"
        elif single or state.turn >= state.budget:
            step.truncated, step.label = True, "turn_limit"
        step.reward = 1.0 if step.success else 0.0
        state.over = step.done
        return step

    def render(self, state: S, frame_px: int) -> np.ndarray:
        """Returns the picture, [frame_px, frame_px, 3] uint8, a fresh array."""
        out = np.zeros((frame_px, frame_px, 3), np.uint8)
        self.draw(state, out)
        return out

    def dump(self, instance: S) -> str:
        """Returns all that is visible as text; `load` is its inverse."""
        return state.dump(instance)

    def load(self, text: str) -> S:
        """Builds a state from its text, with the budget of a fresh start.

        Raises:
            ValueError: if the text does not fit the fields.
        """
        instance = state.load(self.state_type, text)
        instance.budget = self._budget(instance, None)
        return instance

    def clone(self, instance: S) -> S:
        """Returns an independent copy."""
        return state.clone(instance)

    def hint(self, state: S) -> str:
        """Returns the cue's text; empty where no plan exists or one action is legal.

        Raises:
            ValueError: if the author's cue leaves fewer than two actions open or holds
                the next one.
        """
        plan = self.solve(state)
        if not plan:
            return ""
        cue = self.cue(state, plan)
        if not cue.text:
            return ""
        legal = [x for x in {*cue.options} if self.is_legal(state, x)]
        if len(legal) < 2 or actions.to_text(plan[0]) in cue.text:
            raise ValueError(f"{self.spec.id}: hint {cue.text!r} leaves one action")
        return cue.text

    def prompt(
        self,
        state: S,
        task: Task,
        *,
        first: bool,
        feedback: str = "",
        reply_format: str = "bare",
    ) -> str:
        """Returns the user message for a turn; see `harness.compose`."""
        return harness.compose(
            self,
            state,
            task,
            first=first,
            feedback=feedback,
            reply_format=reply_format,
        )

    def is_legal(self, state: S, action: Action) -> bool:
        """Whether the action would be executed; the state is left alone."""
        return self.apply(self.clone(state), action).valid

    def random_action(self, state: S, rng: np.random.Generator) -> Action:
        """Draws a legal action.

        Raises:
            RuntimeError: if none is found.
        """
        grammar = self.grammar(state)
        for _ in range(200):
            if self.is_legal(state, action := actions.sample(grammar, rng)):
                return action
        legal = [a for a in actions.every(grammar) if self.is_legal(state, a)]
        if not legal:
            raise RuntimeError(
                f"{self.spec.id}: no legal action in\n{self.dump(state)}"
            )
        return legal[rng.integers(len(legal))]

    def random_reply(self, state: S, rng: np.random.Generator) -> str:
        """Returns the text of a random legal action, or of a random plan."""
        if not state.one or self.spec.turns != "M":
            return actions.to_text(self.random_action(state, rng))
        trial, plan = self.clone(state), []
        for _ in range(state.budget):
            plan.append(self.random_action(trial, rng))
            if self.apply(trial, plan[-1]).done:
                break
        return "; ".join(map(actions.to_text, plan))

    def oracle_reply(self, state: S) -> str | None:
        """Returns the text of the oracle's next action, or of its whole plan.

        None means that the oracle knows no way to win from here.
        """
        plan = self.solve(state)
        if not plan:
            return None
        whole = state.one and self.spec.turns == "M"
        return "; ".join(map(actions.to_text, plan if whole else plan[:1]))
