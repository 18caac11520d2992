"""Token records of episodes -> padded micro-batches of few shapes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from aes_hdc.episode import Conversation
from aes_hdc.learner.losses import Batch
from aes_hdc.policy.logprobs import Tokens


@dataclass(frozen=True)
class Shape:
    """Static sizes of a micro-batch.

    Attributes:
        rows: conversations.
        slots: tokens of one.
        actions: tokens that the policy wrote in one.
        pictures: pictures of all rows together.
        patches: patches per picture and values per patch, as the vision tower reads
            them.
    """

    rows: int
    slots: int
    actions: int
    pictures: int
    patches: tuple[int, int]

    def holds(self, conversation: Conversation) -> bool:
        """Whether one such conversation fits."""
        return (
            len(conversation) <= self.slots
            and int((conversation.turn >= 0).sum()) <= self.actions
            and len(conversation.pictures) <= self.pictures
        )


def micro_batches(
    conversations: Sequence[Conversation],
    advantages: Sequence[np.ndarray | float],
    shapes: Sequence[Shape],
) -> Iterator[Batch]:
    """Packs conversations into batches, each of the first shape that holds it.

    Args:
        conversations: what was played.
        advantages: per conversation a number, or an array [turns].
        shapes: from small to large.

    Yields:
        Batches whose padding has loss_mask 0.

    Raises:
        ValueError: if a conversation fits no shape.
    """
    waiting: dict[Shape, list[int]] = {shape: [] for shape in shapes}
    for index, conversation in enumerate(conversations):
        shape = next((s for s in shapes if s.holds(conversation)), None)
        if shape is None:
            raise ValueError(
                f"a conversation of {len(conversation)} tokens and "
                f"{len(conversation.pictures)} pictures fits none of {[*shapes]}"
            )
        group = waiting[shape]
        pictures = sum(len(conversations[i].pictures) for i in group)
        is_full = pictures + len(conversation.pictures) > shape.pictures
        if is_full or len(group) == shape.rows:
            yield _pack(group, conversations, advantages, shape)
            group.clear()
        group.append(index)
    for shape, group in waiting.items():
        if group:
            yield _pack(group, conversations, advantages, shape)


def _pack(
    group: Sequence[int],
    conversations: Sequence[Conversation],
    advantages: Sequence[np.ndarray | float],
    shape: Shape,
) -> Batch:
    """Fills one micro-batch."""
    rows, slots, actions = shape.rows, shape.slots, shape.actions
    ids = np.zeros((rows, slots), np.int32)
    positions = np.zeros((3, rows, slots), np.int32)
    order = np.full((rows, slots), -1, np.int32)
    vision_index = np.full((rows, slots), -1, np.int32)
    patches = np.zeros((shape.pictures, *shape.patches), np.uint8)
    grids = np.zeros((shape.pictures, 2), np.int32)
    action_slots = np.zeros((rows, actions), np.int32)
    values = np.zeros((3, rows, actions), np.float32)  # mask, advantage, behavior
    picture = 0
    for row, index in enumerate(group):
        item, n = conversations[index], len(conversations[index])
        ids[row, :n], positions[:, row, :n] = item.ids, item.positions
        order[row, :n] = np.arange(n)
        place = (item.image + picture) * (shape.patches[0] // 4) + item.image_token
        vision_index[row, :n] = np.where(item.image >= 0, place, -1)
        for pixels, grid in item.pictures:
            patches[picture], grids[picture] = pixels, grid
            picture += 1
        wrote = np.flatnonzero(item.turn >= 0)
        action_slots[row, : len(wrote)] = wrote
        credit = np.asarray(advantages[index], np.float64)
        credit = credit[item.turn[wrote]] if credit.ndim else credit
        values[:, row, : len(wrote)] = (
            np.ones(len(wrote)),
            np.broadcast_to(credit, len(wrote)),
            item.logprobs[wrote],
        )
    tokens = Tokens(
        ids, positions, order, vision_index, patches, grids, action_slots, values[0]
    )
    _, credits, behavior = values
    return Batch(tokens, credits, behavior, behavior, np.zeros_like(behavior))
