"""Generalized advantage estimation over conversations, on the host in float64.

A conversation has two clocks: tokens inside a turn, and turns. Only tokens that the
policy wrote are states of the decision process; what the environment says in between is
skipped, not zeroed.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class Gae:
    """How values and rewards become advantages; Schulman et al., 2016.

    Attributes:
        level: "token" has one chain of tokens, "turn" one of turns, whose tokens share
            their turn's advantage, "bilevel" turns first and then tokens within each.
        discount: from turn to turn.
        gae_lambda: from turn to turn.
        token_discount: from token to token.
        token_gae_lambda: from token to token.
    """

    level: Literal["token", "turn", "bilevel"] = "bilevel"
    discount: float = 0.99
    gae_lambda: float = 0.95
    token_discount: float = 1.0
    token_gae_lambda: float = 1.0

    def __call__(
        self,
        rewards: np.ndarray,
        values: np.ndarray,
        turns: np.ndarray,
        final_value: float = 0.0,
    ) -> np.ndarray:
        """Computes the advantage of every token that the policy wrote.

        Args:
            rewards: [J], of each turn; zeros are rewards like any other.
            values: [n], of the state before each token.
            turns: [n] int, the turn of each token, ascending, without gaps.
            final_value: of the state after the last token: 0 where the episode ended,
                its value where it was cut off by a limit of turns.

        Returns:
            [n] float64.
        """
        rewards, values = np.asarray(rewards, float), np.asarray(values, float)
        if len(turns) == 0 or len(rewards) != turns[-1] + 1:
            raise ValueError(f"{len(rewards)} rewards for turns {turns}")
        last = np.flatnonzero(np.diff(turns, append=turns[-1] + 1))
        if self.level == "token":
            by_token = np.zeros(len(values))
            by_token[last] = rewards
            return self._inside(by_token, values, final_value)
        if self.level == "turn":
            first = np.concatenate([[0], last[:-1] + 1])
            by_turn = discounted(
                rewards, values[first], final_value, self.discount, self.gae_lambda
            )
            return by_turn[turns]
        by_turn = discounted(
            rewards, values[last], final_value, self.discount, self.gae_lambda
        )
        parts = []
        for turn, stop in enumerate(last + 1):
            start = last[turn - 1] + 1 if turn else 0
            inside = np.zeros(stop - start)
            inside[-1] = by_turn[turn] + values[stop - 1]
            parts.append(self._inside(inside, values[start:stop], 0.0))
        return np.concatenate(parts)

    def _inside(
        self, rewards: np.ndarray, values: np.ndarray, final_value: float
    ) -> np.ndarray:
        """Advantages along a chain of tokens."""
        settings = self.token_discount, self.token_gae_lambda
        return discounted(rewards, values, final_value, *settings)


def discounted(
    rewards: np.ndarray,
    values: np.ndarray,
    final_value: float,
    discount: float,
    gae_lambda: float,
) -> np.ndarray:
    """Computes A_t = d_t + gamma lam A_{t+1}, d_t = r_t + gamma V_{t+1} - V_t.

    Args:
        rewards: [n].
        values: [n], of the state before each reward.
        final_value: V_n.
        discount: gamma, in [0, 1].
        gae_lambda: lam, in [0, 1].

    Returns:
        [n] float64.
    """
    following = np.append(values[1:], final_value)
    deltas = rewards + discount * following - values
    advantages = np.zeros(len(deltas))
    carried = 0.0
    for t in reversed(range(len(deltas))):
        carried = deltas[t] + discount * gae_lambda * carried
        advantages[t] = carried
    return advantages


def whiten(advantages: list[np.ndarray]) -> list[np.ndarray]:
    """Brings all tokens of a batch to mean 0 and standard deviation 1.

    Returns:
        Arrays in the shapes of `advantages`; zeros where all entries are equal.
    """
    if not advantages:
        return []
    together = np.concatenate(advantages)
    # Equal entries may have a "deviation" of rounding, tiny ones none at all.
    is_flat = together.size == 0 or together.max() == together.min()
    std = 0.0 if is_flat else together.std()
    if std == 0:
        return [np.zeros(len(part)) for part in advantages]
    return [(part - together.mean()) / std for part in advantages]
