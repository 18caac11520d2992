"""GRPO and PPO: from groups of rollouts to rows with a credit for every token."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

import numpy as np

from aes_hdc.episode import Conversation
from aes_hdc.learner.advantages import group_relative, is_degenerate, rewards_to_go
from aes_hdc.learner.batch import Row
from aes_hdc.learner.gae import Gae, whiten
from experiments.groups import Group

Metrics = dict[str, float]


@dataclass(frozen=True)
class Scored:
    """What the learner computes of one conversation before it learns from it.

    Attributes:
        logprobs: [n] float64, nats, of the tokens that the policy wrote.
        values: [n] float64, of the states before them; 0 without a value head.
        final_value: of the state after the last token.
    """

    logprobs: np.ndarray
    values: np.ndarray
    final_value: float


Score = Callable[[Sequence[Conversation]], Sequence[Scored]]


class Algorithm(Protocol):
    """Gives credit."""

    @property
    def needs_values(self) -> bool:
        """Whether states are valued."""
        ...

    def rows(
        self, groups: Sequence[Group], score: Score
    ) -> tuple[list[list[Row]], Mapping[str, float]]:
        """Returns what is learnt from, in parts that no minibatch cuts, and metrics.

        Args:
            groups: what was played.
            score: scores conversations under the policy that played.
        """
        ...


@dataclass(frozen=True)
class Grpo:
    """Advantages relative to the group; groups without a signal are dropped.

    Attributes:
        std: what advantages are divided by, see `group_relative`.
        leave_one_out: whether a member stays out of its own baseline.
        mask_cut: whether members that were cut off stay out of the loss; they count in
            their group's mean all the same (DAPO's overlong filtering).
        credit: "episode" gives all tokens the advantage of the return, "turn" those of
            turn t the advantage of the rewards from t on.
        discount: from turn to turn of "turn".
    """

    std: Literal["none", "group", "batch"] = "none"
    leave_one_out: bool = False
    mask_cut: bool = False
    credit: Literal["episode", "turn"] = "episode"
    discount: float = 1.0
    needs_values: ClassVar[bool] = False

    def rows(
        self, groups: Sequence[Group], score: Score
    ) -> tuple[list[list[Row]], Mapping[str, float]]:
        """One part a group."""
        informative = [g for g in groups if not is_degenerate(g.rewards)]
        parts = []
        for group, credits in zip(informative, self._credits(informative), strict=True):
            parts.append(
                [
                    Row.spread(conversation, credit, group.env_id)
                    for conversation, credit, is_cut in zip(
                        group.conversations, credits, group.is_cut, strict=True
                    )
                    if not (self.mask_cut and is_cut)
                ]
            )
        fraction = 1 - len(informative) / max(len(groups), 1)
        return parts, {"degenerate_fraction": fraction}

    def _credits(
        self, groups: Sequence[Group]
    ) -> Sequence[Sequence[np.ndarray | float]]:
        """The advantage of each member, or of each of its turns."""
        if self.credit == "episode":
            return [
                advantages.tolist()
                for advantages in group_relative(
                    [group.rewards for group in groups],
                    std=self.std,
                    leave_one_out=self.leave_one_out,
                )
            ]
        return [rewards_to_go(group.turn_rewards, self.discount) for group in groups]


@dataclass(frozen=True)
class Ppo:
    """Advantages relative to a learnt value of the state.

    Attributes:
        gae: how values and rewards become advantages.
        whiten: whether advantages are brought to mean 0 and deviation 1.
        bootstrap: whether an episode whose turns were used up counts the value of the
            state it was left in. Off, it is worth 0 like every other end: the limit of
            turns is part of the task, and values that count on themselves beyond it
            grow past any reward there is.
    """

    gae: Gae = field(default_factory=Gae)
    whiten: bool = True
    bootstrap: bool = False
    needs_values: ClassVar[bool] = True

    def rows(
        self, groups: Sequence[Group], score: Score
    ) -> tuple[list[list[Row]], Mapping[str, float]]:
        """One part a conversation."""
        members = [
            (conversation, rewards, timed_out, group.env_id)
            for group in groups
            for conversation, rewards, timed_out in zip(
                group.conversations,
                group.turn_rewards,
                group.is_timed_out,
                strict=True,
            )
            if (conversation.turn >= 0).any()
        ]
        scored = score([member[0] for member in members])
        rows = []
        for member, found in zip(members, scored, strict=True):
            conversation, rewards, timed_out, env_id = member
            turns = conversation.turn[conversation.turn >= 0]
            # A message that did not fit ended the episode; it was never answered.
            rewards = rewards[: turns[-1] + 1]
            final = found.final_value if self.bootstrap and timed_out else 0.0
            advantages = self.gae(rewards, found.values, turns, final)
            rows.append(
                Row(
                    conversation,
                    advantages,
                    old_logprobs=found.logprobs,
                    values=found.values,
                    returns=advantages + found.values,
                    env_id=env_id,
                )
            )
        metrics = _value_metrics(rows, groups)
        if self.whiten:
            whitened = whiten([row.advantages for row in rows])
            rows = [
                row.with_advantages(part)
                for row, part in zip(rows, whitened, strict=True)
            ]
        return [[row] for row in rows], metrics


def _value_metrics(rows: Sequence[Row], groups: Sequence[Group]) -> Metrics:
    """How well the values foretold the returns, and groups that GRPO would drop."""
    degenerate = [is_degenerate(group.rewards) for group in groups]
    metrics = {"degenerate_fraction": float(np.mean(degenerate)) if groups else 0.0}
    if not rows:
        return metrics
    values = np.concatenate([row.values for row in rows if row.values is not None])
    returns = np.concatenate([row.returns for row in rows if row.returns is not None])
    metrics["value_mean"] = float(values.mean())
    metrics["return_mean"] = float(returns.mean())
    if returns.var() > 0:
        explained = 1 - (returns - values).var() / returns.var()
        metrics["explained_variance"] = float(explained)
    return metrics
