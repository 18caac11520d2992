"""Open conversations dealt out to calls of few shapes, and packed into arrays."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from aes_hdc import streams
from aes_hdc.policy.sampling import Chunk, DecodeShape, PrefillShape, Prompts
from aes_hdc.rollouts.record import Record


@dataclass(eq=False)
class Open:
    """An episode's record and its place in a pool.

    Attributes:
        index: of the episode.
        record: what was read and sampled.
        opening: digest of the first message.
        pool: which pool.
        row: in the pool; -1 once the episode has ended.
        cached: tokens whose keys are in the pool; the rest opens the next message.
    """

    index: int
    record: Record
    opening: bytes
    pool: int
    row: int
    cached: int = 0

    @property
    def unread(self) -> int:
        """Tokens that wait to be prefilled."""
        return len(self.record) - self.cached


def fitting(shapes: Sequence[PrefillShape], opened: Open) -> PrefillShape | None:
    """Returns the first shape that holds what is unread; None where none does."""
    for shape in shapes:
        if opened.unread <= shape.width and opened.cached <= shape.span:
            return shape
    return None


def deal_messages(
    opened: Sequence[Open], shapes: Sequence[PrefillShape]
) -> Iterator[tuple[PrefillShape, list[list[Open]]]]:
    """Deals unread messages out to prefills; one that opens several is dealt once.

    Args:
        opened: conversations of one pool, each of which fits a shape.
        shapes: from small to large.

    Yields:
        A shape and at most as many messages as it has rows, each the list of the
        conversations that read it.
    """
    buckets: dict[PrefillShape, list[list[Open]]] = {shape: [] for shape in shapes}
    for shape, readers in _messages(opened, shapes):
        buckets[shape] += [
            readers[start : start + shape.copies]
            for start in range(0, len(readers), shape.copies)
        ]
    for shape in reversed(shapes):
        bucket = buckets.pop(shape)
        while bucket:
            chosen, bucket = bucket[: shape.rows], bucket[shape.rows :]
            for smaller in buckets.values():
                for message in [m for m in smaller if _may_join(m, shape)]:
                    if len(chosen) < shape.rows:
                        smaller.remove(message)
                        chosen.append(message)
            yield shape, chosen


def _messages(
    opened: Sequence[Open], shapes: Sequence[PrefillShape]
) -> Iterator[tuple[PrefillShape, list[Open]]]:
    """Gathers the readers of each message, and the smallest shape that holds it."""
    readers: dict[bytes | int, list[Open]] = {}
    for number, one in enumerate(opened):
        readers.setdefault(number if one.cached else one.opening, []).append(one)
    for message in readers.values():
        shape = fitting(shapes, message[0])
        assert shape is not None
        yield shape, message


def _may_join(message: Sequence[Open], shape: PrefillShape) -> bool:
    """Whether a message that has a smaller shape of its own also fits this one."""
    return fitting([shape], message[0]) is not None and len(message) <= shape.copies


def deal_replies(
    opened: Sequence[Open], shapes: Sequence[DecodeShape]
) -> Iterator[tuple[DecodeShape, list[Open]]]:
    """Deals replies out to decodes, the longest conversations first.

    Args:
        opened: conversations of one pool.
        shapes: from small to large; the last one holds every conversation.
    """
    waiting = sorted(opened, key=lambda one: len(one.record), reverse=True)
    while waiting:
        shape = next(s for s in shapes if s.span >= len(waiting[0].record))
        chosen, waiting = waiting[: shape.rows], waiting[shape.rows :]
        yield shape, chosen


def make_chunk(
    messages: Sequence[Sequence[Open]],
    shape: PrefillShape,
    *,
    patch_shape: tuple[int, int],
    scratch: int,
) -> Chunk:
    """Pads unread messages to one array each.

    Args:
        messages: each the conversations that read it.
        shape: of the call.
        patch_shape: patches per picture and values per patch.
        scratch: the pool's scratch row.
    """
    batch, width = shape.rows, shape.width
    chunk = Chunk(
        ids=np.zeros((batch, width), np.int32),
        positions=np.zeros((3, batch, width), np.int32),
        vision_index=np.full((batch, width), -1, np.int32),
        patches=np.zeros((batch, *patch_shape), np.uint8),
        grids=np.zeros((batch, 2), np.int32),
        rows=np.full((batch, shape.copies), scratch, np.int32),
        cached=np.zeros(batch, np.int32),
        length=np.zeros(batch, np.int32),
    )
    for row, readers in enumerate(messages):
        record, cached, count = readers[0].record, readers[0].cached, readers[0].unread
        chunk.ids[row, :count] = record.ids[cached:]
        # The message's positions, and before them those of the reply it follows.
        recent = np.concatenate(record.positions[-2:], axis=1)
        chunk.positions[:, row, :count] = recent[:, -count:]
        is_shown = np.asarray(record.image[cached:]) >= 0
        place = row * (patch_shape[0] // 4) + np.asarray(record.image_token[cached:])
        chunk.vision_index[row, :count] = np.where(is_shown, place, -1)
        if is_shown.any():
            chunk.patches[row], chunk.grids[row] = record.pictures[-1]
        chunk.rows[row, : len(readers)] = [one.row for one in readers]
        chunk.cached[row], chunk.length[row] = cached, count
    return chunk


def make_prompts(
    chosen: Sequence[Open],
    shape: DecodeShape,
    *,
    scratch: int,
    seed: int,
    names: Sequence[streams.Name],
) -> Prompts:
    """Says where the replies of a call begin.

    Args:
        chosen: who replies.
        shape: of the call.
        scratch: the pool's scratch row.
        seed: the run's.
        names: of the random stream that episode and turn branch off.
    """
    prompts = Prompts(
        rows=np.full(shape.rows, scratch, np.int32),
        length=np.zeros(shape.rows, np.int32),
        next_position=np.zeros(shape.rows, np.int32),
        keys=np.zeros((shape.rows, 2), np.uint32),
    )
    for place, one in enumerate(chosen):
        turn = one.record.num_turns - 1
        prompts.rows[place], prompts.length[place] = one.row, len(one.record)
        prompts.next_position[place] = one.record.next_position
        prompts.keys[place] = streams.key_data(seed, *names, one.index, turn)
    return prompts
