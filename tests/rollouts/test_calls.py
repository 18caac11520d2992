"""How conversations are dealt out to calls: everybody once, in a shape that fits."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aes_hdc.episode import message_digest
from aes_hdc.policy.sampling import DecodeShape, PrefillShape
from aes_hdc.rollouts.calls import Open, deal_messages, deal_replies, fitting
from aes_hdc.rollouts.record import Record

PREFILL = (PrefillShape(2, 8, 0, 3), PrefillShape(3, 4, 40), PrefillShape(2, 16, 40))
DECODE = (DecodeShape(3, 10), DecodeShape(2, 40))

# Tokens read before, tokens that wait, and which of four openings.
CONVERSATIONS = st.lists(
    st.tuples(st.integers(0, 24), st.integers(1, 16), st.integers(0, 3)), max_size=24
)


def digest_of(record):
    return message_digest(record.ids, record.pictures)


def open_all(sizes):
    """Conversations of given sizes; those of one opening begin with equal tokens."""
    opened = []
    for index, (cached, unread, opening) in enumerate(sizes):
        # The first message's length belongs to its opening.
        unread = unread if cached else 3 + 4 * opening
        record = Record(ids=[opening] * (cached + unread))
        opened.append(Open(index, record, digest_of(record), 0, index, cached))
    return opened


@given(CONVERSATIONS)
def test_every_message_is_dealt_once_to_a_shape_that_holds_it(sizes):
    opened = open_all(sizes)
    dealt = [*deal_messages(opened, PREFILL)]
    indices = [
        one.index for _, messages in dealt for readers in messages for one in readers
    ]
    assert sorted(indices) == [*range(len(opened))]
    for shape, messages in dealt:
        assert 1 <= len(messages) <= shape.rows
        for readers in messages:
            assert len(readers) <= shape.copies
            assert fitting([shape], readers[0]) == shape
            # Who shares a message shares all that was said before it: nothing.
            assert len(readers) == 1 or not any(one.cached for one in readers)
            assert len({tuple(one.record.ids) for one in readers}) == 1


@given(CONVERSATIONS)
def test_only_the_last_call_of_a_shape_has_room(sizes):
    dealt = [*deal_messages(open_all(sizes), PREFILL)]
    for shape in PREFILL:
        counts = [len(messages) for used, messages in dealt if used == shape]
        assert all(count == shape.rows for count in counts[:-1])


@given(CONVERSATIONS)
def test_every_reply_is_dealt_once_behind_a_span_that_holds_it(sizes):
    opened = open_all(sizes)
    dealt = [*deal_replies(opened, DECODE)]
    assert sorted(one.index for _, chosen in dealt for one in chosen) == [
        *range(len(opened))
    ]
    lengths = [len(one.record) for _, chosen in dealt for one in chosen]
    assert lengths == sorted(lengths, reverse=True)
    for shape, chosen in dealt:
        assert 1 <= len(chosen) <= shape.rows
        assert all(len(one.record) <= shape.span for one in chosen)


def test_a_group_of_four_is_two_messages_of_three_copies():
    (call,) = deal_messages(open_all([(0, 1, 0)] * 4), PREFILL)
    assert call[0] == PREFILL[0]
    assert [len(readers) for readers in call[1]] == [3, 1]


def test_digest_tells_tokens_and_pictures_apart():
    patches, grid = np.zeros((36, 768), np.uint8), np.array([6, 6], np.int32)
    records = [
        Record(ids=[1, 2]),
        Record(ids=[1, 3]),
        Record(ids=[1, 2], pictures=[(patches, grid)]),
        Record(ids=[1, 2], pictures=[(patches + 1, grid)]),
        Record(ids=[1, 2], pictures=[(patches, grid[::-1] + np.arange(2))]),
    ]
    assert len({digest_of(record) for record in records}) == len(records)
    assert digest_of(records[0]) == digest_of(Record(ids=[1, 2]))
