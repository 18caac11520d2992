"""What selection is compared with: ablations as settings, and blind choices."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aes_hdc.selection.aes import Pick

# Overrides of `aes.select`'s keyword arguments.
ABLATIONS: Mapping[str, Mapping[str, Any]] = {
    "full": {},
    "no_redundancy": {"redundancy_weight": 0.0},
    "no_conflict": {"conflict_weight": 0.0},
    "coverage_only": {"redundancy_weight": 0.0, "conflict_weight": 0.0},
    "soft_covers": {"soft_covers": True},
    "require_new_core": {"require_new_core": True},
}


def random_order(
    env_ids: Sequence[str], rng: np.random.Generator, num_picks: int | None = None
) -> list[str]:
    """Draws environments without looking at them.

    Args:
        env_ids: the candidates; their order does not matter.
        rng: decides.
        num_picks: how many, by default all of them.
    """
    ordered = sorted(env_ids)
    count = len(ordered) if num_picks is None else num_picks
    if not 0 <= count <= len(ordered):
        raise ValueError(
            f"num_picks is {count}; the pool has {len(ordered)} environments"
        )
    return [ordered[i] for i in rng.permutation(len(ordered))[:count]]


def blind_picks(
    order: Sequence[str], env_ids: Sequence[str], core: np.ndarray
) -> list[Pick]:
    """Writes a choice that looked at nothing in the form of AES's picks.

    Args:
        order: what was chosen, in order.
        env_ids: [E] the candidates.
        core: [E, A] bool, whether a is core in e.
    """
    covered = coverage_curve([env_ids.index(env_id) for env_id in order], core)
    return [
        Pick(env_id, 0.0, 0.0, 0.0, 0.0, int(count))
        for env_id, count in zip(order, covered, strict=True)
    ]


def permute_pairs(pairs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns the [E, E] matrix with its environments shuffled.

    The values stay and their meaning goes: a selection that does as well on shuffled
    cosines owes nothing to conflict.
    """
    order = rng.permutation(len(pairs))
    return np.asarray(pairs)[np.ix_(order, order)]


def coverage_curve(order: Sequence[int], core: np.ndarray) -> np.ndarray:
    """Returns how many core abilities are covered after each environment of an order.

    Args:
        order: indices of environments, in the order they are taken.
        core: [E, A] bool, whether a is core in e.

    Returns:
        [len(order)] int64, never falling.
    """
    taken = np.asarray(core, bool)[list(order)]
    return np.logical_or.accumulate(taken, axis=0).sum(axis=1)


def random_curve(
    core: np.ndarray, rng: np.random.Generator, num_orders: int = 200
) -> np.ndarray:
    """Returns the coverage curve of random orders, averaged, [E] float64."""
    orders = (rng.permutation(len(core)).tolist() for _ in range(num_orders))
    return np.mean([coverage_curve(order, core) for order in orders], axis=0)
