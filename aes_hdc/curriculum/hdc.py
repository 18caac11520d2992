"""Hierarchical Difficulty Curriculum: scale grows, then help goes and scale restarts.

Each environment has a harness frontier r and a window [l, u] of scale levels. An inner
move raises u where success at the frontier cell (r, u) reaches the scale threshold; an
outer move takes help away (r + 1) once u stands on the target, and restarts the window.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from typing import Any

import numpy as np

from aes_hdc.curriculum import state_json
from aes_hdc.curriculum.settings import ARMS, Settings
from aes_hdc.errors import UserError

SCHEMA = 1


@dataclass(slots=True)
class Frontier:
    """Where one environment stands.

    Attributes:
        harness_level: r, the harness frontier.
        high: u, the scale frontier.
        evidence: (successes, episodes) of the last groups at (r, u), oldest first.
        groups: groups of the environment, at any cell, since the last move.
        finished: whether the last threshold was met.
        stalled: whether the lack of moves was reported since the last move.
    """

    harness_level: int
    high: int
    evidence: list[tuple[int, int]] = field(default_factory=list)
    groups: int = 0
    finished: bool = False
    stalled: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """One entry of the curriculum's log; the state is the one after the move.

    Attributes:
        step: the update after which it was taken.
        env_id: the environment.
        move: "scale", "harness", "finished" or "stalled".
        success: mean success over the groups judged, in [0, 1].
        groups: how many groups were judged.
        harness_level: r after the move.
        low: l after the move.
        high: u after the move.
    """

    step: int
    env_id: str
    move: str
    success: float
    groups: int
    harness_level: int
    low: int
    high: int

    def to_json(self) -> dict[str, Any]:
        """Returns one line of curriculum.jsonl."""
        return asdict(self)


def harness_distribution(level: int, *, alpha: float, p_cur: float) -> np.ndarray:
    """Returns D(h | r): p_cur at the frontier, the rest decaying below it.

    P(h) = (1 - p_cur) w_h / sum_j w_j for h < r, with w_h = exp(-alpha (r - h)); at
    r = 0 there is nothing below, and P(0) = 1.

    Args:
        level: the harness frontier r.
        alpha: decay per harness level.
        p_cur: probability of the frontier itself.

    Returns:
        [r + 1] float64, probabilities of harness levels 0..r.
    """
    if level == 0:
        return np.ones(1)
    weights = np.exp(-alpha * np.arange(level - 1, -1, -1, dtype=np.float64))
    return np.append((1 - p_cur) * weights / weights.sum(), p_cur)


def window(high: int, width: int) -> tuple[int, int]:
    """Returns the scale window [max(0, high - width), high]."""
    return max(0, high - width), high


class Curriculum:
    """Draws difficulties and moves the frontiers; its whole state is plain data.

    One instance serves a run: `sample` before a group is played, `record` after it, and
    `end_update` once per update. Groups of crashed or masked episodes are not recorded.
    """

    def __init__(self, env_targets: Mapping[str, int], settings: Settings) -> None:
        """Starts every environment at full help and the start level.

        Args:
            env_targets: target scale level T of every selected environment.
            settings: the constants.
        """
        for env_id, target in env_targets.items():
            if target < 0:
                raise ValueError(
                    f"target scale of {env_id} is {target}; it starts at 0"
                )
        self.settings = settings
        self.env_targets = {
            env_id: int(env_targets[env_id]) for env_id in sorted(env_targets)
        }
        self._top = settings.num_harness_levels - 1
        self._arm = ARMS[settings.arm]
        self._frontiers = {
            env_id: Frontier(
                0 if self._arm.moves_harness else self._top, self._start(target)
            )
            for env_id, target in self.env_targets.items()
        }

    def _start(self, target: int) -> int:
        """Returns the scale frontier a window starts from."""
        return (
            min(self.settings.start_level, target) if self._arm.moves_scale else target
        )

    def frontier(self, env_id: str) -> Frontier:
        """Returns the live state of one environment."""
        if env_id not in self._frontiers:
            raise ValueError(
                f"environment {env_id!r} is not one of {[*self._frontiers]}"
            )
        return self._frontiers[env_id]

    def scale_window(self, env_id: str) -> tuple[int, int]:
        """Returns the lowest and the highest scale level trained on now."""
        width = self.settings.width(self.env_targets[env_id])
        return window(self.frontier(env_id).high, width)

    def harness_probabilities(self, env_id: str) -> np.ndarray:
        """Returns the probabilities of harness levels, [num_harness_levels] float64."""
        out = np.zeros(self.settings.num_harness_levels)
        if not self._arm.moves_harness:
            out[self._top] = 1
            return out
        level = self.frontier(env_id).harness_level
        out[: level + 1] = harness_distribution(
            level, alpha=self.settings.alpha, p_cur=self.settings.p_cur
        )
        return out

    def sample(self, env_id: str, rng: np.random.Generator) -> tuple[int, int]:
        """Draws the harness level and the scale level of one group."""
        low, high = self.scale_window(env_id)
        probabilities = self.harness_probabilities(env_id)
        harness_level = int(rng.choice(len(probabilities), p=probabilities))
        return harness_level, int(rng.integers(low, high + 1))

    def record(
        self,
        env_id: str,
        harness_level: int,
        scale_level: int,
        successes: int,
        episodes: int,
    ) -> None:
        """Takes in one group; it is evidence only at the frontier cell.

        Args:
            env_id: the environment.
            harness_level: the group's harness level.
            scale_level: the group's scale level.
            successes: solved episodes; parse failures and truncated ones are failures.
            episodes: episodes that count; crashed or masked ones do not, and a group
                without any is absent.
        """
        if not 0 <= successes <= episodes:
            raise ValueError(
                f"{successes} of {episodes} episodes succeeded: not a count"
            )
        frontier = self.frontier(env_id)
        if episodes == 0 or frontier.finished:
            return
        frontier.groups += 1
        if (harness_level, scale_level) == (frontier.harness_level, frontier.high):
            frontier.evidence.append((int(successes), int(episodes)))
            del frontier.evidence[: -self._rule(env_id)[1]]

    def end_update(self, step: int) -> list[Decision]:
        """Judges every environment once and returns what was decided, sorted by id."""
        decisions = (self._judge(step, env_id) for env_id in self.env_targets)
        return [decision for decision in decisions if decision is not None]

    def _rule(self, env_id: str) -> tuple[Fraction, int]:
        """Returns the threshold and the number of groups of the decision due."""
        settings = self.settings
        if self.frontier(env_id).high < self.env_targets[env_id]:
            threshold, groups = settings.scale_threshold, settings.scale_groups
        else:
            threshold, groups = settings.harness_threshold, settings.harness_groups
        return Fraction(repr(float(threshold))), groups

    def _judge(self, step: int, env_id: str) -> Decision | None:
        """Makes the one move that is due, or none."""
        frontier, target = self.frontier(env_id), self.env_targets[env_id]
        if frontier.finished:
            return None
        threshold, needed = self._rule(env_id)
        # Exact arithmetic: three eighths of a group must meet a threshold of 0.375.
        rates = [Fraction(*group) for group in frontier.evidence]
        success = sum(rates, Fraction(0)) / max(1, len(rates))
        if len(rates) < needed or success < threshold:
            if frontier.stalled or not self._is_stalled(env_id, needed):
                return None
            move, frontier.stalled = "stalled", True
        else:
            if frontier.high < target:
                move, frontier.high = "scale", frontier.high + 1
            elif frontier.harness_level < self._top:
                move, frontier.high = "harness", self._start(target)
                frontier.harness_level += 1
            else:
                move, frontier.finished = "finished", True
            frontier.evidence, frontier.groups, frontier.stalled = [], 0, False
        low, high = self.scale_window(env_id)
        return Decision(
            step,
            env_id,
            move,
            float(success),
            len(rates),
            frontier.harness_level,
            low,
            high,
        )

    def _is_stalled(self, env_id: str, needed: int) -> bool:
        """Whether it took `patience` times the groups a decision should take."""
        low, high = self.scale_window(env_id)
        level = self.frontier(env_id).harness_level
        share = self.harness_probabilities(env_id)[level] / (high - low + 1)
        groups = self.frontier(env_id).groups
        return (
            self.settings.patience > 0
            and groups * share >= self.settings.patience * needed
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the settings and the whole state as plain data."""
        return {
            "schema": SCHEMA,
            "kind": "hdc",
            "settings": asdict(self.settings),
            "env_targets": dict(self.env_targets),
            "frontiers": {
                env_id: asdict(frontier)
                | {"evidence": [[*g] for g in frontier.evidence]}
                for env_id, frontier in self._frontiers.items()
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Curriculum":
        """Rebuilds a curriculum from `to_json`.

        Raises:
            UserError: if the data has another schema, a missing or unknown key, or a
                state the settings cannot reach.
        """
        keys = ("schema", "kind", "settings", "env_targets", "frontiers")
        state_json.check_header(data, keys, kind="hdc", schema=SCHEMA)
        state_json.check_keys(
            data["settings"], [f.name for f in fields(Settings)], "curriculum settings"
        )
        targets = state_json.read_targets(data["env_targets"])
        with state_json.as_user_error():
            curriculum = cls(targets, Settings(**data["settings"]))
        state_json.check_keys(data["frontiers"], list(targets), "curriculum frontiers")
        for env_id, entry in data["frontiers"].items():
            curriculum._load_frontier(env_id, entry)
        return curriculum

    def _load_frontier(self, env_id: str, entry: Mapping[str, Any]) -> None:
        """Reads one environment's state after checking it against the settings."""
        where = f"curriculum state of {env_id}"
        state_json.check_keys(entry, [f.name for f in fields(Frontier)], where)
        frontier = self._frontiers[env_id]
        frontier.harness_level = state_json.read_int(
            entry["harness_level"],
            frontier.harness_level,
            self._top,
            f"{where}: harness_level",
        )
        frontier.high = state_json.read_int(
            entry["high"],
            frontier.high,
            self.env_targets[env_id],
            f"{where}: high",
        )
        frontier.groups = state_json.read_int(
            entry["groups"], 0, None, f"{where}: groups"
        )
        frontier.finished = state_json.read_bool(
            entry["finished"], f"{where}: finished"
        )
        frontier.stalled = state_json.read_bool(entry["stalled"], f"{where}: stalled")
        top_cell = (self._top, self.env_targets[env_id])
        if frontier.finished and (frontier.harness_level, frontier.high) != top_cell:
            raise UserError(
                f"{where}: finished below the top; restore another checkpoint"
            )
        frontier.evidence = state_json.read_groups(
            entry["evidence"], self._rule(env_id)[1], f"{where}: evidence"
        )
