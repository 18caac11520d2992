"""Many instances played side by side in this process.

Replies of a language model arrive out of order, so everything goes by slot index; an
index is any hashable value the caller likes.
"""

import logging
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from aes_hdc import envs
from aes_hdc.envs.base import Step, VisualEnv
from aes_hdc.envs.state import State
from aes_hdc.episode import Observation, Task


@dataclass(slots=True)
class _Slot:
    """One running episode."""

    task: Task
    env: VisualEnv[Any]
    state: State
    seen: str = ""  # Dump of the state in the frame.
    frame: np.ndarray | None = None


class Vec:
    """Holds running episodes by slot.

    Attributes:
        frame_px: side of the frames, a multiple of 32.
        reply_format: a key of `harness.REPLY_FORMATS`.
    """

    def __init__(
        self, frame_px: int, *, reply_format: str = "bare", max_actions: int = 1
    ) -> None:
        if frame_px <= 0 or frame_px % 32:
            raise ValueError(f"frame_px {frame_px!r} is not a positive multiple of 32")
        self.frame_px = frame_px
        self.reply_format = reply_format
        self._max_actions = max_actions
        self._envs: dict[str, VisualEnv[Any]] = {}
        self._slots: dict[Hashable, _Slot] = {}
        self._buffer = np.empty((frame_px, frame_px, 3), np.uint8)

    def reset(self, index: Hashable, task: Task) -> Observation:
        """Starts an episode in a slot, whatever was there before.

        Raises:
            ValueError: if the task does not exist or is not legible at `frame_px`.
        """
        env = self._env(task.env_id)
        state = env.reset(task.seed, task.level, turns=task.turns)
        least = env.spec.levels[task.level].min_px
        if task.picture and self.frame_px < least:
            raise ValueError(
                f"frame_px {self.frame_px}: {task.env_id} level {task.level} needs "
                f"{least} or more"
            )
        slot = self._slots[index] = _Slot(task, env, state)
        return self._observe(slot, first=True, feedback="")

    def copy(self, source: Hashable, target: Hashable) -> None:
        """Puts an independent copy of one slot's episode into another."""
        slot = self._slots[source]
        twin = slot.env.clone(slot.state)
        self._slots[target] = _Slot(slot.task, slot.env, twin, slot.seen, slot.frame)

    def step(self, index: Hashable, reply: str) -> tuple[Observation | None, Step]:
        """Plays a reply.

        An exception inside the environment is logged and ends the episode with the
        label "env_error", which leaves every statistic.

        Returns:
            The next observation, None where the episode is over, and the step.

        Raises:
            ValueError: if the slot has no running episode.
        """
        slot = self._slots.get(index)
        if slot is None or slot.state.over:
            raise ValueError(f"slot {index!r} has no running episode: reset it first")
        try:
            step = slot.env.step(slot.state, reply)
            if step.done:
                return None, step
            return self._observe(slot, first=False, feedback=step.feedback), step
        except Exception:
            logging.exception("%s failed in the reply %.200r", slot.task, reply)
            slot.state.over = True
            return None, Step(truncated=True, valid=False, label="env_error")

    def state(self, index: Hashable) -> State:
        """Returns the state of a slot, for oracles and random players."""
        return self._slots[index].state

    def env(self, index: Hashable) -> VisualEnv[Any]:
        """Returns the environment of a slot."""
        return self._slots[index].env

    def _env(self, env_id: str) -> VisualEnv[Any]:
        """One instance for each id."""
        if env_id not in self._envs:
            self._envs[env_id] = envs.make(
                env_id,
                max_actions=self._max_actions,
                strict=self.reply_format != "bare",
            )
        return self._envs[env_id]

    def _observe(self, slot: _Slot, *, first: bool, feedback: str) -> Observation:
        """Composes the message; draws only where the visible state has changed."""
        text = slot.env.prompt(
            slot.state,
            slot.task,
            first=first,
            feedback=feedback,
            reply_format=self.reply_format,
        )
        if not slot.task.picture:
            return Observation(text, None)
        dump = slot.env.dump(slot.state)
        if slot.frame is None or dump != slot.seen:
            slot.env.draw(slot.state, self._buffer)
            slot.seen, slot.frame = dump, self._buffer.copy()
        return Observation(text, slot.frame.copy())
