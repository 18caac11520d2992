"""The curriculum's constants and its ablation arms, as data."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arm:
    """Which of the two frontiers move; a frozen one stands at its hardest value.

    Attributes:
        moves_harness: whether help is withdrawn step by step; else there never is any.
        moves_scale: whether the window climbs; else it is the whole ladder 0..T.
    """

    moves_harness: bool
    moves_scale: bool


ARMS = {
    "both": Arm(moves_harness=True, moves_scale=True),
    "harness_only": Arm(moves_harness=True, moves_scale=False),
    "scale_only": Arm(moves_harness=False, moves_scale=True),
    "none": Arm(moves_harness=False, moves_scale=False),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The curriculum's constants; the defaults are the method's.

    Attributes:
        num_harness_levels: rungs of the harness ladder; the last one shows no help.
        alpha: decay of the share of easier harness levels, per level, >= 0.
        p_cur: share of groups at the harness frontier, in [0, 1].
        window: scale levels kept below the frontier, delta_d; None takes 1, or 2 where
            the target scale is 6 or more.
        scale_threshold: success that raises the scale frontier, in [0, 1].
        harness_threshold: success that withdraws help, in [0, 1].
        scale_groups: groups a scale decision looks back on.
        harness_groups: groups a harness decision looks back on.
        start_level: scale frontier at the start and after help was withdrawn.
        patience: an environment without a move for this many times the groups that a
            decision is expected to take is reported as stalled; 0 reports none.
        arm: a name in `ARMS`.
    """

    num_harness_levels: int = 5
    alpha: float = 0.5
    p_cur: float = 0.8
    window: int | None = None
    scale_threshold: float = 0.6
    harness_threshold: float = 0.7
    scale_groups: int = 8
    harness_groups: int = 16
    start_level: int = 0
    patience: int = 20
    arm: str = "both"

    def __post_init__(self) -> None:
        """Raises ValueError at the first constant out of range."""
        for name in ("p_cur", "scale_threshold", "harness_threshold"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; it must be in [0, 1]"
                )
        for name in ("num_harness_levels", "scale_groups", "harness_groups"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; it must be at least 1"
                )
        for name in ("window", "start_level", "patience"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; it must not be negative"
                )
        if not (self.alpha >= 0 and math.isfinite(self.alpha)):
            raise ValueError(
                f"alpha is {self.alpha!r}; it must be finite and at least 0"
            )
        if self.arm not in ARMS:
            raise ValueError(f"arm {self.arm!r} is not one of {[*ARMS]}")

    def width(self, target: int) -> int:
        """Returns delta_d for an environment with target scale `target`."""
        if not ARMS[self.arm].moves_scale:
            return target
        if self.window is None:
            return 2 if target >= 6 else 1
        return self.window
