"""Plain values that cross the floors: tasks, observations, turns and episodes."""

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Literal

import numpy as np

# How a turn, and with it an episode, can stand. All but "running" and "success" are
# failures; "env_error" is a broken environment and leaves every statistic.
LABELS = (
    "running",
    "success",
    "wrong",  # the task ended without being solved
    "turn_limit",  # the budget of turns is spent
    "invalid_limit",  # three replies in a row were no legal action
    "length",  # the reply was cut at the token limit
    "overflow",  # the next observation does not fit the context
    "env_error",
)

# Seeds of the three splits are disjoint ranges, so no range of one can reach another.
SPLITS = {
    "train": range(0, 2**31),
    "validation": range(2**31, 2**31 + 2**20),
    "test": range(2**32, 2**33),
}


class Harness(IntFlag):
    """Textual help that may accompany a picture; the bits combine freely."""

    NONE = 0
    OBSERVATION = 1
    STATE = 2
    HINT = 4
    RULES = 8
    ALL = 15

    @property
    def label(self) -> str:
        """The set as text, `rules+state` or `none`; `parse` reads it back."""
        flags = [flag for flag in Harness.ladder_order() if flag in self]
        names = [str(flag.name).lower() for flag in flags]
        return "+".join(names) or "none"

    @staticmethod
    def ladder_order() -> tuple["Harness", ...]:
        """Single flags in the order in which texts and labels list them."""
        return (Harness.RULES, Harness.OBSERVATION, Harness.STATE, Harness.HINT)

    @staticmethod
    def parse(text: str) -> "Harness":
        """Reads `none`, `all` or flag names joined by `+`.

        Raises:
            ValueError: if a name is unknown; the message lists the known ones.
        """
        if text in ("none", "all"):
            return Harness[text.upper()]
        harness = Harness.NONE
        known = {str(flag.name).lower(): flag for flag in Harness.ladder_order()}
        for name in text.split("+"):
            if name not in known:
                raise ValueError(f"harness {text!r}: {name!r} is not one of {[*known]}")
            harness |= known[name]
        return harness


@dataclass(frozen=True, slots=True)
class Event:
    """What happened in a turn, in the environment's terms; see `envs.events.KINDS`.

    Attributes:
        kind: a name from the closed list of kinds.
        subject: what it happened to, such as "gift" or "row"; may be empty.
        amount: a count, distance or difference; 0 where none applies.
    """

    kind: str
    subject: str = ""
    amount: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """One condition under which one instance is played.

    Attributes:
        env_id: the environment's id in the registry.
        seed: the instance's seed; its range decides the split, see `SPLITS`.
        level: scale level, an index into the environment's ladder.
        harness: the help shown.
        picture: whether frames are shown; off with `STATE` on is the text form.
        turns: "many" plays action by action, "one" asks for the whole answer or plan.
    """

    env_id: str
    seed: int
    level: int
    harness: Harness = Harness.NONE
    picture: bool = True
    turns: Literal["one", "many"] = "many"


@dataclass(frozen=True, slots=True)
class Observation:
    """What the policy is shown before a turn: the user message of a chat.

    Attributes:
        text: the message without the picture.
        frame: [height, width, 3] uint8, or None where the task hides the picture. It
            stands before the text.
    """

    text: str
    frame: np.ndarray | None


@dataclass(frozen=True, slots=True)
class Turn:
    """One observation, the reply to it, and what came of it.

    Attributes:
        observation: what was shown.
        reply: the policy's text, untrusted.
        action: the canonical text of the executed actions; empty where none was legal.
        feedback: the environment's answer.
        reward: in [0, 1].
        valid: whether the reply was a legal action.
        label: one of `LABELS`.
        events: what happened, for annotators.
    """

    observation: Observation
    reply: str
    action: str
    feedback: str
    reward: float
    valid: bool
    label: str
    events: tuple[Event, ...] = ()


def turn_fault(turn: Turn) -> str:
    """Names what went wrong in a turn; empty where nothing did.

    "length": the reply was cut; "overflow": the message did not fit; "parse": the reply
    could not be read; "illegal": it was read and is not allowed now; "wrong": it ended
    the task unsolved; "turn_limit": the turns were used up by it.
    """
    if turn.label in ("length", "overflow", "wrong"):
        return turn.label
    codes = [event.subject for event in turn.events if event.kind == "rejected"]
    if codes and not turn.valid:
        return "illegal" if codes[0] == "ILLEGAL" else "parse"
    return "turn_limit" if turn.label == "turn_limit" else ""


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished play of a task.

    Attributes:
        task: what was played.
        turns: at least one turn, in order.
        policy: the name of who played, such as "model" or "oracle".
    """

    task: Task
    turns: Sequence[Turn]
    policy: str = ""

    @property
    def label(self) -> str:
        """How the episode ended, one of `LABELS`."""
        return self.turns[-1].label

    @property
    def success(self) -> bool:
        """Whether the task was solved."""
        return self.label == "success"

    @property
    def reward(self) -> float:
        """The undiscounted return, in [0, 1]."""
        return float(sum(turn.reward for turn in self.turns))


@dataclass(frozen=True)
class Conversation:
    """The tokens of one episode exactly as they were read and sampled.

    Attributes:
        ids: [n] int32.
        positions: [3, n] int32, M-RoPE.
        image: [n] int32, which of `pictures` the slot shows, -1 for text.
        image_token: [n] int32, which merged token of that picture, 0 for text.
        turn: [n] int32, the turn in which the policy wrote the token, -1 where it did
            not.
        logprobs: [n] float32, nats, under the policy that played; 0 where it did not
            write.
        pictures: per picture its patches, [P, 3 * patch**2] uint8, and grid, [2] int32.
    """

    ids: np.ndarray
    positions: np.ndarray
    image: np.ndarray
    image_token: np.ndarray
    turn: np.ndarray
    logprobs: np.ndarray
    pictures: tuple[tuple[np.ndarray, np.ndarray], ...]

    def __len__(self) -> int:
        """Returns the number of tokens."""
        return len(self.ids)

    @functools.cached_property
    def opening(self) -> int:
        """Tokens of the first message, up to where the first reply begins."""
        wrote = np.flatnonzero(self.turn >= 0)
        return int(wrote[0]) if len(wrote) else len(self)

    @functools.cached_property
    def opening_digest(self) -> bytes:
        """Digest of the first message; conversations that share it begin alike."""
        shown = self.image[: self.opening].max(initial=-1) + 1
        return message_digest(self.ids[: self.opening], self.pictures[:shown])


def message_digest(
    ids: Sequence[int] | np.ndarray,
    pictures: Sequence[tuple[np.ndarray, np.ndarray]],
) -> bytes:
    """Returns a digest of a message's tokens and pixels.

    Args:
        ids: [n] token ids.
        pictures: patches and grid of each picture in it.
    """
    found = hashlib.sha256(np.asarray(ids, np.int32).tobytes())
    for patches, grid in pictures:
        found.update(grid.tobytes())
        found.update(patches.tobytes())
    return found.digest()
