"""Every token, mask and advantage arrives in its slot."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aes_hdc.episode import Conversation
from aes_hdc.learner.batch import Row, Shape, micro_batches

PATCHES = (8, 3)  # Two merged tokens a picture.
WHOLE = (Shape(2, 8, 3, 2, PATCHES), Shape(3, 24, 9, 4, PATCHES))
SHARED = (
    Shape(4, 4, 3, 0, PATCHES, openings=2, opening_slots=6),
    Shape(3, 24, 9, 4, PATCHES),
)
both = pytest.mark.parametrize("shapes", [WHOLE, SHARED], ids=["whole", "shared"])


def conversation(number, num_turns, lengths, pictures, opening=0):
    """A conversation whose every value names where it belongs.

    Turn k is a message of lengths[k] tokens, with a picture of two tokens if
    pictures[k], and a reply of k + 1 tokens. Conversations with the same `opening` and
    sizes begin with the same message, others with their own.
    """
    image, image_token, turn, shown = [], [], [], []
    first = 500_000 + 1000 * opening if opening else 1000 * number
    for k in range(num_turns):
        if pictures[k]:
            image += [len(shown)] * 2
            image_token += [0, 1]
            color = opening + 200 if opening and k == 0 else 10 * number + k
            shown.append((np.full(PATCHES, color, np.uint8), np.array([2, 4])))
            turn += [-1, -1]
        text = lengths[k] + k + 1
        image += [-1] * text
        image_token += [0] * text
        turn += [-1] * lengths[k] + [k] * (k + 1)
    turn = np.array(turn, np.int32)
    ids = 1000 * number + np.arange(len(turn))
    head = np.flatnonzero(turn >= 0)[0]
    ids[:head] = first + np.arange(head)
    return Conversation(
        ids.astype(np.int32),
        np.stack([ids, ids + 1, ids + 2]).astype(np.int32),
        np.array(image, np.int32),
        np.array(image_token, np.int32),
        turn,
        np.where(turn >= 0, -ids / 7, 0).astype(np.float32),
        tuple(shown),
    )


@st.composite
def conversations(draw):
    found = []
    for number in range(1, draw(st.integers(1, 9)) + 1):
        turns = draw(st.integers(1, 3))
        lengths = draw(st.lists(st.integers(1, 3), min_size=turns, max_size=turns))
        pictures = draw(st.lists(st.booleans(), min_size=turns, max_size=turns))
        opening = draw(st.integers(0, 2))
        found.append(conversation(number, turns, lengths, pictures, opening))
    return found


def pieces(batch, row):
    """The segments that make up a row, each with the row's place in it."""
    tokens = batch.tokens
    found = [(tokens.segment, row)]
    if tokens.openings is not None:
        found.insert(0, (tokens.openings, int(tokens.opening_row[row])))
    return found


def check_tokens(batch, row, item):
    """A row's pieces, put together, are the conversation with its pictures."""
    start = 0
    for segment, place in pieces(batch, row):
        count = int((segment.order[place] >= 0).sum())
        part = slice(start, start + count)
        np.testing.assert_array_equal(segment.ids[place, :count], item.ids[part])
        np.testing.assert_array_equal(
            segment.positions[:, place, :count], item.positions[:, part]
        )
        np.testing.assert_array_equal(
            segment.order[place, :count], np.arange(start, start + count)
        )
        # The feature that a slot names belongs to its own picture.
        named, image = segment.vision_index[place, :count], item.image[part]
        np.testing.assert_array_equal(named >= 0, image >= 0)
        slot, token = np.divmod(named[named >= 0], PATCHES[0] // 4)
        np.testing.assert_array_equal(token, item.image_token[part][image >= 0])
        for where, picture in zip(slot, image[image >= 0], strict=True):
            patches, grid = item.pictures[picture]
            np.testing.assert_array_equal(segment.patches[where], patches)
            np.testing.assert_array_equal(segment.grids[where], grid)
        assert (segment.vision_index[segment.order < 0] == -1).all()
        start += count
    assert start == len(item)


def check_credit(batch, row, item, expected):
    """What the policy wrote, each token once and in order, and what it is worth."""
    mask = batch.tokens.loss_mask[row] > 0
    wrote = np.flatnonzero(item.turn >= 0)
    slots = batch.tokens.action_slots[row][mask]
    np.testing.assert_array_equal(batch.tokens.segment.ids[row][slots], item.ids[wrote])
    assert (slots > 0).all()  # What predicts it lies before it.
    columns = {
        "advantages": expected,
        "behavior_logprobs": item.logprobs[wrote],
        "old_logprobs": item.logprobs[wrote],
        "reference_logprobs": 0.0,
        "values": expected + 1,
        "returns": expected + 2,
    }
    for name, column in columns.items():
        values = getattr(batch, name)[row]
        np.testing.assert_array_equal(
            values[mask], np.broadcast_to(np.float32(column), len(wrote))
        )
        assert (values[~mask] == 0).all()


@both
@settings(deadline=None, max_examples=100)
@given(found=conversations(), per_turn=st.booleans())
def test_everything_arrives_in_its_slot(shapes, found, per_turn):
    rows = [
        Row.spread(item, 100.0 * i + np.arange(3) if per_turn else 100.0 * i)
        for i, item in enumerate(found)
    ]
    rows = [
        dataclasses.replace(row, values=row.advantages + 1, returns=row.advantages + 2)
        for row in rows
    ]
    seen = []
    for places, batch in micro_batches(rows, shapes):
        seen += places
        for row, place in enumerate(places):
            item = found[place]
            turn = item.turn[item.turn >= 0] if per_turn else 0
            check_tokens(batch, row, item)
            check_credit(batch, row, item, 100.0 * place + turn)
        assert (batch.tokens.loss_mask[len(places) :] == 0).all()
        assert (batch.tokens.segment.order[len(places) :] == -1).all()
    assert sorted(seen) == [*range(len(found))]


@both
@settings(deadline=None)
@given(found=conversations())
def test_batches_have_the_given_shapes_and_no_other(shapes, found):
    sizes = {(s.rows, s.slots, s.actions, s.pictures): s for s in shapes}
    rows = [Row.spread(item, 0.0) for item in found]
    for places, batch in micro_batches(rows, shapes):
        segment = batch.tokens.segment
        shape = sizes[
            (*segment.ids.shape, batch.advantages.shape[1], len(segment.grids))
        ]
        assert (batch.tokens.openings is None) == (shape.openings == 0)
        if shape.openings:
            assert batch.tokens.openings.ids.shape == (2, 6)
            assert len(batch.tokens.openings.grids) == 2
        for place in places:  # The smallest that holds it.
            assert next(s for s in shapes if s.holds(found[place])) == shape


def test_equal_openings_are_read_once_and_other_pictures_are_other_openings():
    alike = [conversation(i, 1, [3], [True], opening=1) for i in (1, 2, 3)]
    other = conversation(4, 1, [3], [True], opening=1)
    pixels, grid = other.pictures[0]
    other = dataclasses.replace(other, pictures=((pixels + 1, grid),))
    rows = [Row.spread(item, 0.0) for item in [*alike, other]]
    ((places, batch),) = micro_batches(rows, SHARED)
    assert places == [0, 1, 2, 3]
    assert batch.tokens.opening_row.tolist() == [0, 0, 0, 1]
    # Three openings do not fit the two of a batch.
    more = [*rows, Row.spread(conversation(5, 1, [3], [True]), 0.0)]
    assert [places for places, _ in micro_batches(more, SHARED)] == [[0, 1, 2, 3], [4]]


@pytest.mark.parametrize(
    ("turns", "lengths", "pictures"),
    [
        (1, [30], [False]),  # Too many tokens.
        (4, [1] * 4, [False] * 4),  # Ten sampled tokens of nine.
        (5, [1] * 5, [True] * 5),  # Five pictures of four.
    ],
    ids=["slots", "actions", "pictures"],
)
def test_a_conversation_that_fits_nowhere_is_refused(turns, lengths, pictures):
    row = Row.spread(conversation(1, turns, lengths, pictures), 0.0)
    with pytest.raises(ValueError, match="fits none"):
        list(micro_batches([row], WHOLE))


def test_nothing_makes_no_batch():
    assert list(micro_batches([], WHOLE)) == []
