"""Curricula without a frontier, behind the same interface, and the choice by name."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from aes_hdc.curriculum import hdc, state_json
from aes_hdc.errors import UserError

SCHEMA = 1


class Sampler(Protocol):
    """What training needs of a curriculum."""

    def sample(self, env_id: str, rng: np.random.Generator) -> tuple[int, int]:
        """Draws the harness level and the scale level of one group."""

    def record(
        self,
        env_id: str,
        harness_level: int,
        scale_level: int,
        successes: int,
        episodes: int,
    ) -> None:
        """Takes in one played group."""

    def end_update(self, step: int) -> list[hdc.Decision]:
        """Moves what is due and returns the decisions."""

    def to_json(self) -> dict[str, Any]:
        """Returns the whole state as plain data."""


class Uniform:
    """Draws both levels uniformly from 0 to their tops; nothing ever moves."""

    def __init__(self, env_targets: Mapping[str, int], num_harness_levels: int) -> None:
        """Fixes the ranges.

        Args:
            env_targets: highest scale level drawn, by environment.
            num_harness_levels: rungs of the harness ladder.
        """
        self.env_targets = {
            env_id: int(env_targets[env_id]) for env_id in sorted(env_targets)
        }
        self.num_harness_levels = num_harness_levels

    def sample(self, env_id: str, rng: np.random.Generator) -> tuple[int, int]:
        """Draws the harness level and the scale level of one group."""
        top = self.env_targets[env_id]
        return int(rng.integers(self.num_harness_levels)), int(rng.integers(top + 1))

    def record(
        self,
        env_id: str,
        harness_level: int,
        scale_level: int,
        successes: int,
        episodes: int,
    ) -> None:
        """Ignores the group."""

    def end_update(self, step: int) -> list[hdc.Decision]:
        """Returns no decision."""
        return []

    def to_json(self) -> dict[str, Any]:
        """Returns the ranges as plain data."""
        return {
            "schema": SCHEMA,
            "kind": "uniform",
            "env_targets": dict(self.env_targets),
            "num_harness_levels": self.num_harness_levels,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Uniform":
        """Rebuilds the sampler from `to_json`; raises UserError on anything else."""
        keys = ("schema", "kind", "env_targets", "num_harness_levels")
        state_json.check_header(data, keys, kind="uniform", schema=SCHEMA)
        levels = state_json.read_int(
            data["num_harness_levels"], 1, None, "num_harness_levels"
        )
        return cls(state_json.read_targets(data["env_targets"]), levels)


class Fixed:
    """Plays every group at one harness level and at each environment's target scale."""

    def __init__(self, env_targets: Mapping[str, int], harness_level: int) -> None:
        """Fixes the cell.

        Args:
            env_targets: the scale level played, by environment.
            harness_level: the harness level played.
        """
        self.env_targets = {
            env_id: int(env_targets[env_id]) for env_id in sorted(env_targets)
        }
        self.harness_level = harness_level

    def sample(self, env_id: str, rng: np.random.Generator) -> tuple[int, int]:
        """Returns the fixed cell; `rng` is not used."""
        return self.harness_level, self.env_targets[env_id]

    def record(
        self,
        env_id: str,
        harness_level: int,
        scale_level: int,
        successes: int,
        episodes: int,
    ) -> None:
        """Ignores the group."""

    def end_update(self, step: int) -> list[hdc.Decision]:
        """Returns no decision."""
        return []

    def to_json(self) -> dict[str, Any]:
        """Returns the cell as plain data."""
        return {
            "schema": SCHEMA,
            "kind": "fixed",
            "env_targets": dict(self.env_targets),
            "harness_level": self.harness_level,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Fixed":
        """Rebuilds the sampler from `to_json`; raises UserError on anything else."""
        keys = ("schema", "kind", "env_targets", "harness_level")
        state_json.check_header(data, keys, kind="fixed", schema=SCHEMA)
        level = state_json.read_int(data["harness_level"], 0, None, "harness_level")
        return cls(state_json.read_targets(data["env_targets"]), level)


KINDS: dict[str, type[hdc.Curriculum] | type[Uniform] | type[Fixed]] = {
    "hdc": hdc.Curriculum,
    "uniform": Uniform,
    "fixed": Fixed,
}


def from_json(data: Mapping[str, Any]) -> Sampler:
    """Rebuilds whichever curriculum `data` was saved from.

    Raises:
        UserError: if the kind is unknown or the state is malformed.
    """
    kind = data.get("kind") if isinstance(data, Mapping) else None
    if kind not in KINDS:
        raise UserError(f"curriculum state of kind {kind!r}; known are {[*KINDS]}")
    return KINDS[kind].from_json(data)
