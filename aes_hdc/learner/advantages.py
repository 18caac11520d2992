"""Group-relative advantages, on the host in float64."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

STD_EPSILON = 1e-4


def is_degenerate(rewards: np.ndarray) -> bool:
    """Tells whether a group carries no signal: equal rewards, or fewer than two.

    Args:
        rewards: [n], the rewards of the group's valid members.
    """
    rewards = np.asarray(rewards, np.float64)
    return len(rewards) < 2 or rewards.max() == rewards.min()


def group_relative(
    groups: Sequence[np.ndarray],
    *,
    std: Literal["none", "group", "batch"] = "none",
    leave_one_out: bool = False,
) -> list[np.ndarray]:
    """Computes GRPO's advantages, A = R - mean(R) of the group, [1].

    `std` divides by (s + 1e-4), s the standard deviation of the group or of all
    informative groups; "none" is Dr. GRPO [2], which has no bias toward easy or hard
    instances. Groups with equal rewards get exactly 0: in float32 eight rewards of 0.1
    have a "standard deviation" of 7.5e-9, and dividing by it makes -0.43 of nothing.

    With `leave_one_out` the mean is that of the other members, which multiplies A by
    n / (n - 1) and leaves no bias [3].

    [1] Shao et al., DeepSeekMath, 2024. [2] Liu et al., Understanding R1-Zero, 2025.
    [3] Kool et al., Buy 4 REINFORCE samples, get a baseline for free, 2019.

    Args:
        groups: rewards of each group's valid members, each [n], finite.
        std: what the advantages are divided by.
        leave_one_out: whether a member's own reward stays out of its baseline.

    Returns:
        Advantages in the shapes of `groups`, float64.
    """
    groups = [np.asarray(group, np.float64) for group in groups]
    for group in groups:
        if group.ndim != 1 or not np.isfinite(group).all():
            raise ValueError(
                f"rewards {group!r}: a group is a vector of finite numbers"
            )
    informative = [group for group in groups if not is_degenerate(group)]
    batch_std = np.concatenate(informative).std() if informative else 1.0
    advantages = []
    for group in groups:
        if is_degenerate(group):
            advantages.append(np.zeros(len(group)))
            continue
        scale = {"none": 1.0, "group": group.std(), "batch": batch_std}[std]
        divisor = 1.0 if std == "none" else scale + STD_EPSILON
        if leave_one_out:
            divisor *= (len(group) - 1) / len(group)
        advantages.append((group - group.mean()) / divisor)
    return advantages


def rewards_to_go(
    turn_rewards: Sequence[np.ndarray], discount: float = 1.0
) -> list[np.ndarray]:
    """Computes advantages turn by turn, G_t - mean(G_t) over the group's members.

    G_t = sum over t' >= t of gamma^(t' - t) r_t'. The mean at turn t is over the
    members that played it. Turns at which all are equal, or which one member alone
    played, get exactly 0.

    Args:
        turn_rewards: of each member the rewards of its turns, [J] float64.
        discount: gamma, from turn to turn.

    Returns:
        Advantages in the shapes of `turn_rewards`, float64.
    """
    togo = []
    for rewards in turn_rewards:
        found = np.zeros(len(rewards))
        following = 0.0
        for turn in reversed(range(len(rewards))):
            following = rewards[turn] + discount * following
            found[turn] = following
        togo.append(found)
    advantages = [np.zeros(len(found)) for found in togo]
    for turn in range(max(map(len, togo), default=0)):
        players = [i for i, found in enumerate(togo) if len(found) > turn]
        (credit,) = group_relative([np.array([togo[i][turn] for i in players])])
        for i, value in zip(players, credit, strict=True):
            advantages[i][turn] = value
    return advantages
