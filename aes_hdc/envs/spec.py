"""Values of the contract, specs and steps, and the rules that split pools and seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aes_hdc.episode import SPLITS, Event

FAR_OOD = frozenset({"sort", "graph"})  # whole families never trained on
NEAR_OOD = frozenset(
    {
        "angle_measure",
        "aquarium",
        "chess_mate",
        "circuit_logic",
        "dice_odds",
        "door_key",
        "figure_sequence",
        "game_2048",
        "guard_stealth",
        "guess_who",
        "observer_left_right",
        "odd_one_out",
        "othello_small",
        "peg_solitaire",
        "piece_fit_choice",
        "shikaku",
        "snake",
        "street_map_route",
    }
)


@dataclass(frozen=True)
class Level:
    """A rung of the scale ladder.

    Attributes:
        params: what `generate` receives; everything that makes the level harder.
        min_px: smallest legible frame, a multiple of 32.
        small: whether there are under 200 distinct instances: trained on, never
            reported as unseen.
    """

    params: Any
    min_px: int = 96
    small: bool = False


@dataclass(frozen=True)
class Spec:
    """What the registry knows about an environment.

    Attributes:
        id: the environment's name, unique.
        family: the engine it shares with its siblings.
        turns: "S" one answer, "M" many turns, "B" a class with both forms of its own.
        levels: six to eight rungs; the last two are never trained on.
        abilities: two to five names from abilities.toml, a prior and not a measurement.
        version: raised on any change of instances, frame, text or reward.
        cluster: name of the group of near-duplicates it belongs to; may be empty.
        tier: "A", or "B" for a reserve.
        has_plan: whether one reply can hold the whole solution.
        no_plan_reason: why not, where has_plan is false.
    """

    id: str
    family: str
    turns: Literal["S", "M", "B"]
    levels: tuple[Level, ...]
    abilities: tuple[str, ...]
    version: int = 1
    cluster: str = ""
    tier: str = "A"
    has_plan: bool = True
    no_plan_reason: str = ""

    @property
    def split(self) -> Literal["pool", "ood"]:
        """Whether it may be trained on, decided by rule and never by hand."""
        return "ood" if self.family in FAR_OOD or self.id in NEAR_OOD else "pool"


@dataclass(slots=True)
class Step:
    """What a reply came to.

    Attributes:
        reward: 1 where the task is solved, else 0.
        terminated: the task ended the episode.
        truncated: a limit ended the episode.
        valid: whether at least one legal action was executed.
        feedback: what the policy is told.
        success: whether the task is solved.
        label: one of `episode.LABELS`.
        events: what happened, for annotators; never shown.
        action: canonical text of what was executed, joined by "; ".
    """

    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    valid: bool = True
    feedback: str = "ok"
    success: bool = False
    label: str = "running"
    events: tuple[Event, ...] = ()
    action: str = ""

    @classmethod
    def won(cls, feedback: str = "solved", events: Sequence[Event] = ()) -> "Step":
        """Ends the episode as solved."""
        return cls(1.0, True, False, True, feedback, True, "success", tuple(events))

    @classmethod
    def lost(cls, feedback: str = "wrong", events: Sequence[Event] = ()) -> "Step":
        """Ends the episode as failed."""
        return cls(0.0, True, False, True, feedback, False, "wrong", tuple(events))

    @classmethod
    def illegal(cls, reason: str) -> "Step":
        """Rejects a well-typed action; the state must be as it was."""
        return cls(valid=False, feedback=reason)

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated


def split_of(seed: int) -> str:
    """Returns the split whose range holds the seed.

    Raises:
        ValueError: if no range does.
    """
    for name, span in SPLITS.items():
        if seed in span:
            return name
    raise ValueError(f"seed {seed!r} is in none of the ranges {SPLITS}")


def hash_split(fingerprint: bytes) -> str:
    """Returns the split of an instance: half are train, a quarter each for the rest."""
    return ("train", "train", "validation", "test")[fingerprint[0] % 4]
