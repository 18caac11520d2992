"""Rewards that a trainer may add to those of the task; none by default."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from aes_hdc.episode import Conversation, Episode


@dataclass(frozen=True)
class Shaping:
    """What is added to the reward of every turn.

    Success, the curriculum and evaluation never see it.

    Attributes:
        format_bonus: for a reply that is a legal action.
        length_cost: for every token of the reply.
        step_cost: for the turn itself.
    """

    format_bonus: float = 0.0
    length_cost: float = 0.0
    step_cost: float = 0.0

    def terms(
        self, episode: Episode, conversation: Conversation
    ) -> Mapping[str, np.ndarray]:
        """Splits the rewards of an episode's turns into terms.

        Args:
            episode: J turns.
            conversation: its tokens.

        Returns:
            By term [J] float64; "task" is the environment's own.
        """
        turns, count = episode.turns, len(episode.turns)
        tokens = np.bincount(conversation.turn[conversation.turn >= 0], minlength=count)
        valid = np.array([turn.valid for turn in turns], np.float64)
        return {
            "task": np.array([turn.reward for turn in turns], np.float64),
            "format": self.format_bonus * valid,
            "length": -self.length_cost * tokens[:count],
            "step": np.full(count, -self.step_cost),
        }
