"""The growing token record of one conversation, sampled or demonstrated alike."""

from dataclasses import dataclass, field

import numpy as np

from aes_hdc.episode import Conversation, Episode, Observation
from aes_hdc.rollouts.chat import Chat


@dataclass
class Record:
    """Columns of a `Conversation` that grow message by message.

    Attributes:
        next_position: M-RoPE position of the next token.
        num_turns: messages read so far.
    """

    ids: list[int] = field(default_factory=list)
    positions: list[np.ndarray] = field(default_factory=list)
    image: list[int] = field(default_factory=list)
    image_token: list[int] = field(default_factory=list)
    turn: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    pictures: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    next_position: int = 0
    num_turns: int = 0

    def __len__(self) -> int:
        """Returns the number of tokens so far."""
        return len(self.ids)

    def read(self, observation: Observation, chat: Chat) -> None:
        """Appends a user message up to where the reply begins."""
        grids = []
        if observation.frame is not None:
            patches, grid = chat.patches(observation.frame)
            grids.append(grid)
            self.pictures.append((patches, np.asarray(grid, np.int32)))
        ids = chat.message(observation, grids, first=self.num_turns == 0)
        positions, following, is_image = chat.place(ids, grids, self.next_position)
        start = len(self.ids)
        self._extend(ids, positions, [0.0] * len(ids), -1)
        self.image[start:] = np.where(is_image, len(self.pictures) - 1, -1).tolist()
        order = np.where(is_image, is_image.cumsum() - 1, 0)
        self.image_token[start:] = order.tolist()
        self.next_position = following
        self.num_turns += 1

    def unread(self) -> None:
        """Takes the last message back, so that the record ends with a reply."""
        positions = self.positions.pop()
        count = positions.shape[1]
        # A message begins with text, whose position is the same on all axes.
        self.next_position = int(positions[0, 0])
        self.num_turns -= 1
        if any(picture >= 0 for picture in self.image[-count:]):
            self.pictures.pop()
        for column in (
            self.ids,
            self.image,
            self.image_token,
            self.turn,
            self.logprobs,
        ):
            del column[len(column) - count :]

    def reply(self, ids: list[int], logprobs: list[float]) -> None:
        """Appends what the policy wrote in answer to the last message."""
        place = self.next_position + np.arange(len(ids))
        positions = np.broadcast_to(place, (3, len(ids)))
        self._extend(ids, positions, logprobs, self.num_turns - 1)
        self.next_position += len(ids)

    def _extend(
        self, ids: list[int], positions: np.ndarray, logprobs: list[float], turn: int
    ) -> None:
        """Appends text tokens to every column."""
        self.ids += ids
        self.positions.append(positions)
        self.image += [-1] * len(ids)
        self.image_token += [0] * len(ids)
        self.turn += [turn] * len(ids)
        self.logprobs += logprobs

    def conversation(self) -> Conversation:
        """Freezes the record."""
        return Conversation(
            np.asarray(self.ids, np.int32),
            np.concatenate(self.positions or [np.zeros((3, 0))], axis=1).astype(
                np.int32
            ),
            np.asarray(self.image, np.int32),
            np.asarray(self.image_token, np.int32),
            np.asarray(self.turn, np.int32),
            np.asarray(self.logprobs, np.float32),
            tuple(self.pictures),
        )


def record_episode(episode: Episode, chat: Chat, max_tokens: int) -> Conversation:
    """Writes down an episode that somebody else played, as if the model had said it.

    Args:
        episode: with the replies as texts.
        chat: of the model that will learn from it.
        max_tokens: turns that would end behind this many tokens are left out.

    Returns:
        The conversation, its log-probabilities all 0.
    """
    record = Record()
    for turn in episode.turns:
        record.read(turn.observation, chat)
        ids = chat.reply(turn.reply)
        if len(record) + len(ids) > max_tokens:
            record.unread()
            break
        record.reply(ids, [0.0] * len(ids))
    return record.conversation()
