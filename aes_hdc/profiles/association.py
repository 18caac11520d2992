"""How abilities go with policies and with success, over weighted trajectories."""

from dataclasses import dataclass

import numpy as np


def kappa(first: np.ndarray, second: np.ndarray) -> float:
    """Returns Cohen's kappa of two passes over the same trajectories.

    Where a pass says the same of every trajectory, kappa is 0 or undefined whatever the
    other says; the plain agreement stands in for it.

    Args:
        first: [N] bool, whether the first pass found the ability.
        second: [N] bool, whether the second did.
    """
    first, second = np.asarray(first, bool), np.asarray(second, bool)
    agreement = float(np.mean(first == second))
    if first.all() or second.all() or not first.any() or not second.any():
        return agreement
    rates = first.mean(), second.mean()
    chance = float(rates[0] * rates[1] + (1 - rates[0]) * (1 - rates[1]))
    return (agreement - chance) / (1 - chance)


@dataclass(frozen=True, slots=True)
class Table:
    """Trajectories of one environment as arrays; weights are multiplicities, [N].

    Attributes:
        presence: [N, A] bool, whether a trajectory has an ability.
        success: [N] float64, 1 where it solved the task.
        policy: [N] int, index of who played.
        num_policies: how many played.
    """

    presence: np.ndarray
    success: np.ndarray
    policy: np.ndarray
    num_policies: int

    def prevalence(self, weights: np.ndarray) -> np.ndarray:
        """Returns the share of each policy's trajectories, [P, A]."""
        member = weights * (self.policy == np.arange(self.num_policies)[:, None])
        return _ratio(member @ self.presence, member.sum(axis=1, keepdims=True))

    def success_share(self, weights: np.ndarray) -> np.ndarray:
        """Returns the share of successes that have each ability, [A]."""
        solved = weights * self.success
        return _ratio(solved @ self.presence, solved.sum())

    def lift(self, weights: np.ndarray) -> np.ndarray:
        """Returns success with less success without, pooled over policies, [A].

        Policies count by n1 n0 / (n1 + n0), as in Mantel-Haenszel; NaN where none has
        trajectories of both kinds.
        """
        member = weights * (self.policy == np.arange(self.num_policies)[:, None])
        have, lack = member @ self.presence, member @ ~self.presence
        solved = member * self.success
        gap = _ratio(solved @ self.presence, have) - _ratio(
            solved @ ~self.presence, lack
        )
        size = np.where(np.isnan(gap), 0, have * lack / np.maximum(have + lack, 1))
        return _ratio((np.nan_to_num(gap) * size).sum(axis=0), size.sum(axis=0))


def _ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """Returns top / bottom, NaN where the bottom is 0."""
    top, bottom = np.broadcast_arrays(np.asarray(top, float), np.asarray(bottom, float))
    return np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0)
