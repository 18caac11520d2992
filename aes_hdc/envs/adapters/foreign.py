"""Gymnasium environments as ours: a ladder of ids and a few small functions.

The environment must return an RGB frame (`render_mode="rgb_array"`), take discrete
actions and be a deterministic function of its seed and the actions so far. Ids come
from ladders written in code; none is ever read from a file, since `gymnasium.make`
imports whatever module an id names.
"""

from typing import Any

import numpy as np
from PIL import Image

from aes_hdc.envs import actions
from aes_hdc.envs.actions import Action, Arg, Choice, Grammar, Int
from aes_hdc.envs.adapters.ladder import Held, Ladder, Moment, Rung
from aes_hdc.envs.base import Step, VisualEnv
from aes_hdc.envs.hints import Cue
from aes_hdc.episode import Event

TRIALS = 8  # random episodes of which the stronger policy plays the best
MAX_STARTS = 200  # seeds tried until an instance has a plan


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
        seconds: dict[str, list[str]] = {}
        for verb in self.ladder.verbs:
            first, *second = verb.split()
            seconds.setdefault(first, []).extend(second)
        grammar: dict[str, tuple[Arg, ...]] = {}
        for first, options in seconds.items():
            grammar[first] = (Choice(*options),) if options else ()
            if most.get(first, 1) > 1:
                grammar[first] += (Int(1, most[first], default=1),)
        return grammar

    def apply(self, held: Held, action: Action) -> Step:
        verb = " ".join(word for word in action if isinstance(word, str))
        times = next((word for word in action if isinstance(word, int)), 1)
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
        """Names the verb, or rules another action out; two legal ones remain."""
        cue = super().cue(held, plan)
        if cue.text:
            return cue
        grammar, right = self.grammar(held), plan[0]
        others = [action for action in actions.every(grammar) if action != right]
        other = next((x for x in others if self.is_legal(held, x)), None)
        wrong = next((x for x in others[::-1] if self.is_legal(held, x)), None)
        if other is None or wrong is None or other == wrong:
            return Cue()
        return Cue(f"not {actions.to_text(wrong)}", (right, other))

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
            plan: list[Action] = []
            trial, step = self.clone(state), Step()
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
