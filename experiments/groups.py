"""What was played, gathered for the learner: one group for each instance."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from aes_hdc.episode import Conversation, Episode
from experiments.shaping import Shaping

CUT = ("length", "overflow")  # Labels of episodes that ended for want of room.


@dataclass(frozen=True)
class Group:
    """The rollouts of one instance under one condition.

    Attributes:
        conversations: of the valid members.
        turn_rewards: of each member the rewards of its turns, [J] float64.
        is_cut: whether each ended because a reply or the context was full, [n] bool.
        is_timed_out: whether each ended because its turns were used up, [n] bool.
        env_id: of the environment.
        reward_terms: of all members together, by term, see `Shaping`.
    """

    conversations: Sequence[Conversation]
    turn_rewards: Sequence[np.ndarray]
    is_cut: np.ndarray
    is_timed_out: np.ndarray
    env_id: str = ""
    reward_terms: Mapping[str, float] = field(default_factory=dict)

    @property
    def rewards(self) -> np.ndarray:
        """The members' returns, [n] float64."""
        return np.array([rewards.sum() for rewards in self.turn_rewards], np.float64)

    @classmethod
    def of_returns(
        cls,
        conversations: Sequence[Conversation],
        rewards: Sequence[float] | np.ndarray,
        is_cut: Sequence[bool] | None = None,
    ) -> "Group":
        """Makes a group of members that are rewarded at the end only."""
        size = len(conversations)
        turns = [int(c.turn.max(initial=0)) + 1 for c in conversations]
        return cls(
            conversations,
            [
                np.append(np.zeros(count - 1), reward)
                for count, reward in zip(turns, rewards, strict=True)
            ],
            np.asarray([False] * size if is_cut is None else is_cut, bool),
            np.zeros(size, bool),
        )


def gather_groups(
    episodes: Sequence[Episode],
    conversation: Callable[[int], Conversation],
    group_size: int,
    shaping: Shaping | None = None,
) -> list[Group]:
    """Cuts a list of episodes, group by group, into groups of their valid members.

    Args:
        episodes: `group_size` of each instance in turn.
        conversation: tokens of the episode at a place of the list.
        group_size: episodes an instance.
        shaping: what is added to the rewards of the task.
    """
    shaping = shaping or Shaping()
    groups = []
    for first in range(0, len(episodes), group_size):
        members = range(first, first + group_size)
        valid = [i for i in members if episodes[i].label != "env_error"]
        labels = [episodes[i].label for i in valid]
        talks = [conversation(i) for i in valid]
        terms = [
            shaping.terms(episodes[i], talk)
            for i, talk in zip(valid, talks, strict=True)
        ]
        groups.append(
            Group(
                talks,
                [sum(row.values(), np.zeros(len(row["task"]))) for row in terms],
                np.array([label in CUT for label in labels], bool),
                np.array([label == "turn_limit" for label in labels], bool),
                episodes[first].task.env_id,
                {
                    name: float(sum(row[name].sum() for row in terms))
                    for name in (terms[0] if terms else ())
                },
            )
        )
    return groups
