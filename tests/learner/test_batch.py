"""Every token, mask and advantage arrives in its slot."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aes_hdc.episode import Conversation
from aes_hdc.learner.batch import Shape, micro_batches

PATCHES = (8, 3)  # Two merged tokens a picture.
SHAPES = (Shape(2, 8, 3, 2, PATCHES), Shape(3, 24, 9, 4, PATCHES))


def conversation(number, num_turns, lengths, pictures):
    """A conversation whose every value names where it belongs.

    Turn k is a message of lengths[k] tokens, with a picture of two tokens if
    pictures[k], and a reply of k + 1 tokens.
    """
    image, image_token, turn, shown = [], [], [], []
    for k in range(num_turns):
        if pictures[k]:
            image += [len(shown)] * 2
            image_token += [0, 1]
            shown.append(
                (np.full(PATCHES, 10 * number + k, np.uint8), np.array([2, 4]))
            )
            turn += [-1, -1]
        text = lengths[k] + k + 1
        image += [-1] * text
        image_token += [0] * text
        turn += [-1] * lengths[k] + [k] * (k + 1)
    count = len(turn)
    ids = 1000 * number + np.arange(count)
    return Conversation(
        ids.astype(np.int32),
        np.stack([ids, ids + 1, ids + 2]).astype(np.int32),
        np.array(image, np.int32),
        np.array(image_token, np.int32),
        np.array(turn, np.int32),
        np.where(np.array(turn) >= 0, -ids / 7, 0).astype(np.float32),
        tuple(shown),
    )


@st.composite
def conversations(draw):
    found = []
    for number in range(1, draw(st.integers(1, 9)) + 1):
        turns = draw(st.integers(1, 3))
        lengths = draw(st.lists(st.integers(1, 3), min_size=turns, max_size=turns))
        pictures = draw(st.lists(st.booleans(), min_size=turns, max_size=turns))
        found.append(conversation(number, turns, lengths, pictures))
    return found


@settings(deadline=None, max_examples=100)
@given(found=conversations(), per_turn=st.booleans())
def test_everything_arrives_in_its_slot(found, per_turn):
    credit = [
        100.0 * i + np.arange(3) if per_turn else 100.0 * i for i in range(len(found))
    ]
    seen = []
    for batch in micro_batches(found, credit, SHAPES):
        tokens = batch.tokens
        pictures = 0
        for row in range(len(tokens.ids)):
            count = int((tokens.order[row] >= 0).sum())
            mask = tokens.loss_mask[row] > 0
            if not count:
                assert not mask.any()
                continue
            index = int(tokens.ids[row, 0]) // 1000 - 1
            item = found[index]
            seen.append(index)
            assert count == len(item)
            np.testing.assert_array_equal(tokens.ids[row, :count], item.ids)
            np.testing.assert_array_equal(tokens.order[row, :count], np.arange(count))
            np.testing.assert_array_equal(
                tokens.positions[:, row, :count], item.positions
            )
            # Masks: the slots that the policy wrote, each once and in order.
            wrote = np.flatnonzero(item.turn >= 0)
            np.testing.assert_array_equal(tokens.action_slots[row][mask], wrote)
            np.testing.assert_array_equal(
                batch.behavior_logprobs[row][mask], item.logprobs[wrote]
            )
            expected = 100.0 * index + (item.turn[wrote] if per_turn else 0)
            np.testing.assert_array_equal(
                batch.advantages[row][mask], np.broadcast_to(expected, len(wrote))
            )
            assert (batch.advantages[row][~mask] == 0).all()
            # Pictures: the feature that a slot names belongs to its own picture.
            named = tokens.vision_index[row, :count]
            np.testing.assert_array_equal(named >= 0, item.image >= 0)
            place, token = np.divmod(named[named >= 0], PATCHES[0] // 4)
            np.testing.assert_array_equal(token, item.image_token[item.image >= 0])
            for slot, picture in zip(place, item.image[item.image >= 0], strict=True):
                patches, grid = item.pictures[picture]
                np.testing.assert_array_equal(tokens.patches[slot], patches)
                np.testing.assert_array_equal(tokens.grids[slot], grid)
            pictures += len(item.pictures)
        assert (tokens.grids[pictures:] == 0).all()
        assert (tokens.vision_index[tokens.order < 0] == -1).all()
    assert sorted(seen) == [*range(len(found))]


@settings(deadline=None)
@given(found=conversations())
def test_batches_have_the_given_shapes_and_no_other(found):
    sizes = {(s.rows, s.slots, s.actions, s.pictures): s for s in SHAPES}
    for batch in micro_batches(found, [0.0] * len(found), SHAPES):
        rows, slots = batch.tokens.ids.shape
        shape = sizes[rows, slots, batch.advantages.shape[1], len(batch.tokens.grids)]
        filled = batch.tokens.order[:, 0] >= 0
        for ids in batch.tokens.ids[filled]:
            index = int(ids[0]) // 1000 - 1
            first = next(s for s in SHAPES if s.holds(found[index]))
            assert first == shape  # The smallest that holds it.


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
    item = conversation(1, turns, lengths, pictures)
    with pytest.raises(ValueError, match="fits none"):
        list(micro_batches([item], [0.0], SHAPES))


def test_nothing_makes_no_batch():
    assert list(micro_batches([], [], SHAPES)) == []
