"""Token records of episodes -> padded micro-batches of few shapes."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from aes_hdc.episode import Conversation
from aes_hdc.learner.losses import Batch
from aes_hdc.policy.logprobs import Segment, Tokens


@dataclass(frozen=True)
class Shape:
    """Static sizes of a micro-batch.

    Attributes:
        rows: conversations.
        slots: tokens of one, behind its opening where openings are shared.
        actions: tokens that the policy wrote in one.
        pictures: pictures of all rows together, those of shared openings apart.
        patches: patches per picture and values per patch, as the vision tower reads
            them.
        openings: first messages that rows may share; 0 where each row is whole.
        opening_slots: tokens of the longest of them.
    """

    rows: int
    slots: int
    actions: int
    pictures: int
    patches: tuple[int, int]
    openings: int = 0
    opening_slots: int = 0

    def head(self, conversation: Conversation) -> int:
        """Tokens of a conversation that go to an opening.

        All that precede the first reply but the last one, which predicts it.
        """
        return conversation.opening - 1 if self.openings else 0

    def num_pictures(self, conversation: Conversation) -> int:
        """Pictures of a conversation behind its opening."""
        head = self.head(conversation)
        return len(conversation.pictures) - _num_shown(conversation, head)

    def holds(self, conversation: Conversation) -> bool:
        """Whether one such conversation fits."""
        head = self.head(conversation)
        return (
            head <= self.opening_slots
            and len(conversation) - head <= self.slots
            and int((conversation.turn >= 0).sum()) <= self.actions
            and self.num_pictures(conversation) <= self.pictures
        )


@dataclass(frozen=True)
class Row:
    """A conversation, and what each token that the policy wrote is worth.

    Attributes:
        conversation: n tokens of which were written by the policy.
        advantages: [n] float64.
        old_logprobs: [n] float64, nats, of the policy that played, as the learner
            computes them; None takes those that the sampler stored.
        reference_logprobs: [n] float64, nats, of the frozen policy, or None.
        values: [n] float64, of the state before the token when it was played; None
            where nothing values states.
        returns: [n] float64, what the value should have been; with `values`.
        env_id: of the environment, for metrics.
    """

    conversation: Conversation
    advantages: np.ndarray
    old_logprobs: np.ndarray | None = None
    reference_logprobs: np.ndarray | None = None
    values: np.ndarray | None = None
    returns: np.ndarray | None = None
    env_id: str = ""

    @classmethod
    def spread(
        cls, conversation: Conversation, credit: np.ndarray | float, env_id: str = ""
    ) -> "Row":
        """Gives every written token the credit of its row, or of its turn.

        Args:
            conversation: what was played.
            credit: a number, or an array [turns].
            env_id: of the environment.
        """
        wrote = conversation.turn[conversation.turn >= 0]
        credit = np.asarray(credit, np.float64)
        spread = credit[wrote] if credit.ndim else np.full(len(wrote), credit)
        return cls(conversation, spread, env_id=env_id)

    def with_advantages(self, advantages: np.ndarray) -> "Row":
        """Returns the row with other advantages."""
        return dataclasses.replace(self, advantages=advantages)

    def with_old(self, logprobs: np.ndarray) -> "Row":
        """Returns the row with log-probabilities of the policy that played."""
        return dataclasses.replace(self, old_logprobs=logprobs)

    def with_reference(self, logprobs: np.ndarray) -> "Row":
        """Returns the row with log-probabilities of the frozen policy."""
        return dataclasses.replace(self, reference_logprobs=logprobs)

    def columns(self) -> np.ndarray:
        """Returns what the loss reads of each written token, [6, n] float64.

        Advantage; log-probability as sampled, of the old and of the frozen policy;
        value and return.
        """
        sampled = self.conversation.logprobs[self.conversation.turn >= 0]
        nothing = np.zeros(len(sampled))

        def given(column: np.ndarray | None, default: np.ndarray) -> np.ndarray:
            return default if column is None else column

        return np.stack(
            [
                self.advantages,
                sampled,
                given(self.old_logprobs, sampled),
                given(self.reference_logprobs, nothing),
                given(self.values, nothing),
                given(self.returns, nothing),
            ]
        )


def micro_batches(
    rows: Sequence[Row], shapes: Sequence[Shape]
) -> Iterator[tuple[list[int], Batch]]:
    """Packs rows into batches, each of the first shape that holds it.

    Args:
        rows: what was played and what it is worth.
        shapes: from small to large.

    Yields:
        The places in `rows` of a batch's rows, and the batch, whose padding has
        loss_mask 0.

    Raises:
        ValueError: if a conversation fits no shape.
    """
    bins = {shape: _Bin(shape) for shape in shapes}
    for index, row in enumerate(rows):
        conversation = row.conversation
        shape = next((s for s in shapes if s.holds(conversation)), None)
        if shape is None:
            raise ValueError(
                f"a conversation of {len(conversation)} tokens and "
                f"{len(conversation.pictures)} pictures fits none of {[*shapes]}"
            )
        if not bins[shape].has_room(conversation):
            yield bins[shape].places, _pack(bins[shape], rows)
            bins[shape] = _Bin(shape)
        bins[shape].add(index, conversation)
    for found in bins.values():
        if found.places:
            yield found.places, _pack(found, rows)


def empty_batch(shape: Shape) -> Batch:
    """Returns a batch of this shape with nothing in it; it says what programs read."""
    return _pack(_Bin(shape), [])


@dataclass
class _Bin:
    """Rows that go into one micro-batch."""

    shape: Shape
    places: list[int] = field(default_factory=list)
    num_pictures: int = 0
    openings: dict[bytes, int] = field(default_factory=dict)  # Digest to opening row.
    opening_rows: list[int] = field(default_factory=list)

    def has_room(self, conversation: Conversation) -> bool:
        """Whether one more conversation fits."""
        pictures = self.num_pictures + self.shape.num_pictures(conversation)
        openings = len(self.openings)
        if self.shape.openings:
            openings += conversation.opening_digest not in self.openings
        return (
            len(self.places) < self.shape.rows
            and pictures <= self.shape.pictures
            and openings <= self.shape.openings
        )

    def add(self, index: int, conversation: Conversation) -> None:
        """Adds a conversation for which there is room."""
        self.places.append(index)
        self.num_pictures += self.shape.num_pictures(conversation)
        if self.shape.openings:
            digest = conversation.opening_digest
            self.opening_rows.append(
                self.openings.setdefault(digest, len(self.openings))
            )


def _num_shown(conversation: Conversation, stop: int) -> int:
    """Pictures among the first `stop` tokens."""
    return int(conversation.image[:stop].max(initial=-1)) + 1


def _pack(found: _Bin, rows: Sequence[Row]) -> Batch:
    """Fills one micro-batch."""
    shape = found.shape
    chosen = [rows[place] for place in found.places]
    conversations = [row.conversation for row in chosen]
    heads = [shape.head(conversation) for conversation in conversations]
    pieces = [(c, head, len(c)) for c, head in zip(conversations, heads, strict=True)]
    segment = _segment(pieces, shape.rows, shape.slots, shape.pictures, shape.patches)
    openings = opening_row = None
    if shape.openings:
        firsts = [found.opening_rows.index(n) for n in range(len(found.openings))]
        pieces = [(conversations[i], 0, heads[i]) for i in firsts]
        size = shape.openings
        openings = _segment(pieces, size, shape.opening_slots, size, shape.patches)
        opening_row = np.zeros(shape.rows, np.int32)
        opening_row[: len(chosen)] = found.opening_rows
    action_slots = np.zeros((shape.rows, shape.actions), np.int32)
    mask = np.zeros((shape.rows, shape.actions), np.float32)
    columns = np.zeros((6, shape.rows, shape.actions), np.float32)
    for place, (row, head) in enumerate(zip(chosen, heads, strict=True)):
        wrote = np.flatnonzero(row.conversation.turn >= 0)
        action_slots[place, : len(wrote)] = wrote - head
        mask[place, : len(wrote)] = 1.0
        columns[:, place, : len(wrote)] = row.columns()
    tokens = Tokens(segment, action_slots, mask, openings, opening_row)
    return Batch(tokens, *columns)


def _segment(
    pieces: Sequence[tuple[Conversation, int, int]],
    rows: int,
    slots: int,
    pictures: int,
    patch_shape: tuple[int, int],
) -> Segment:
    """Pads slices of conversations, (conversation, start, stop) each, to one array."""
    segment = Segment(
        ids=np.zeros((rows, slots), np.int32),
        positions=np.zeros((3, rows, slots), np.int32),
        order=np.full((rows, slots), -1, np.int32),
        vision_index=np.full((rows, slots), -1, np.int32),
        patches=np.zeros((pictures, *patch_shape), np.uint8),
        grids=np.zeros((pictures, 2), np.int32),
    )
    filled = 0
    for row, (item, start, stop) in enumerate(pieces):
        count, part = stop - start, slice(start, stop)
        segment.ids[row, :count] = item.ids[part]
        segment.positions[:, row, :count] = item.positions[:, part]
        segment.order[row, :count] = np.arange(start, stop)
        first, last = _num_shown(item, start), _num_shown(item, stop)
        place = (item.image[part] - first + filled) * (patch_shape[0] // 4)
        segment.vision_index[row, :count] = np.where(
            item.image[part] >= 0, place + item.image_token[part], -1
        )
        for pixels, grid in item.pictures[first:last]:
            segment.patches[filled], segment.grids[filled] = pixels, grid
            filled += 1
    return segment
