"""Token records: what was read and written, in the form of the model's chat."""

import numpy as np
import pytest

from aes_hdc.episode import Episode, Observation, Task, Turn
from aes_hdc.rollouts.record import Record, record_episode


@pytest.fixture
def chat(tiny_policy):
    return tiny_policy.chat


def observation(text, *, picture=False):
    frame = np.full((96, 96, 3), 40, np.uint8) if picture else None
    return Observation(text, frame)


def make_episode(turns):
    """An episode of (message, picture, reply)."""
    return Episode(
        Task("lights_out", 0, 0),
        [
            Turn(observation(text, picture=p), reply, "", "", 0.0, True, "running")
            for text, p, reply in turns
        ],
    )


THREE = [("goal", True, "press 1 1"), ("ok", False, "no"), ("ok 2", True, "answer 3")]


def test_pieces_make_the_chat_of_the_whole_dialogue(chat, tiny_folder):
    import tokenizers

    record = record_episode(make_episode(THREE), chat, 500)
    whole = tokenizers.Tokenizer.from_file(str(tiny_folder / "tokenizer.json"))
    picture = "<|vision_start|>" + "<|image_pad|>" * 9 + "<|vision_end|>"
    text = (
        f"<|im_start|>user\n{picture}goal<|im_end|>\n"
        "<|im_start|>assistant\npress 1 1<|im_end|>\n"
        "<|im_start|>user\nok<|im_end|>\n"
        "<|im_start|>assistant\nno<|im_end|>\n"
        f"<|im_start|>user\n{picture}ok 2<|im_end|>\n"
        "<|im_start|>assistant\nanswer 3<|im_end|>"
    )
    assert whole.decode(record.ids.tolist(), skip_special_tokens=False) == text
    assert record.ids.tolist() == whole.encode(text, add_special_tokens=False).ids


def test_mask_is_on_replies_and_their_ends_only(chat):
    record = record_episode(make_episode(THREE), chat, 500)
    end = chat.end_ids[0]
    for turn, (_, _, reply) in enumerate(THREE):
        ids = record.ids[record.turn == turn].tolist()
        assert ids == chat.reply(reply)
        assert ids[-1] == end
        assert chat.decode(ids) == reply
    # Golden: the whole column as runs of (turn, tokens). A message of one picture is
    # start, user, break, vision start, 9, vision end, word, end, break, start,
    # assistant, break.
    edges = np.flatnonzero(np.diff(record.turn, prepend=-9))
    runs = [
        (int(record.turn[at]), int(count))
        for at, count in zip(edges, np.diff([*edges, len(record)]), strict=True)
    ]
    counts = [len(chat.reply(reply)) for _, _, reply in THREE]
    assert [turn for turn, _ in runs] == [-1, 0, -1, 1, -1, 2]
    assert [n for turn, n in runs if turn >= 0] == counts
    forbidden = record.ids[record.turn >= 0]
    assert not np.isin(forbidden, chat.forbidden_ids).any()


def test_pictures_are_named_by_their_tokens(chat):
    record = record_episode(make_episode(THREE), chat, 500)
    assert len(record.pictures) == 2
    for picture in range(2):
        tokens = record.image_token[record.image == picture]
        assert tokens.tolist() == [*range(9)]
    assert (record.image_token[record.image < 0] == 0).all()
    assert (record.logprobs == 0).all()


def test_positions_count_up_and_a_picture_takes_its_side(chat):
    record = record_episode(make_episode(THREE), chat, 500)
    text = record.image < 0
    assert (record.positions[:, text] == record.positions[0, text]).all()
    # 18 picture tokens of 3 x 3 advance by 3 each; all the others by 1.
    assert record.positions[0, -1] == text.sum() + 2 * 3 - 1
    first = np.flatnonzero(record.image == 1)
    start = record.positions[0, first[0] - 1] + 1
    expected = [
        [start] * 9,
        start + np.repeat(range(3), 3),
        start + np.tile(range(3), 3),
    ]
    np.testing.assert_array_equal(record.positions[:, first], expected)


def columns(record):
    return (
        [*record.ids],
        np.concatenate(record.positions, axis=1).tolist() if record.positions else [],
        [*record.image],
        [*record.image_token],
        [*record.turn],
        [*record.logprobs],
        len(record.pictures),
        record.next_position,
        record.num_turns,
    )


@pytest.mark.parametrize("picture", [False, True])
@pytest.mark.parametrize("turns_before", [0, 2])
def test_unread_restores_what_was_before(chat, picture, turns_before):
    record = Record()
    for _ in range(turns_before):
        record.read(observation("goal", picture=True), chat)
        record.reply(chat.reply("no"), [-0.5] * len(chat.reply("no")))
    before = columns(record)
    record.read(observation("ok 1 2", picture=picture), chat)
    assert columns(record) != before
    record.unread()
    assert columns(record) == before


def test_reading_after_unread_is_as_if_nothing_had_been(chat):
    plain, undone = Record(), Record()
    for record in (plain, undone):
        record.read(observation("goal", picture=True), chat)
        record.reply(chat.reply("no"), [-0.5] * len(chat.reply("no")))
    undone.read(observation("rules", picture=True), chat)
    undone.unread()
    for record in (plain, undone):
        record.read(observation("ok"), chat)
    assert columns(plain) == columns(undone)


def test_empty_record_is_an_empty_conversation():
    found = Record().conversation()
    assert len(found) == 0
    assert found.positions.shape == (3, 0)


def test_turns_that_do_not_fit_are_left_out(chat):
    whole = record_episode(make_episode(THREE), chat, 500)
    last = int((whole.turn == 2).sum())
    exact = record_episode(make_episode(THREE), chat, len(whole))
    assert exact.ids.tolist() == whole.ids.tolist()
    short = record_episode(make_episode(THREE), chat, len(whole) - 1)
    assert set(short.turn.tolist()) == {-1, 0, 1}
    assert short.ids[-1] == chat.end_ids[0]
    assert len(short) < len(whole) - last
    assert len(short.pictures) == 1
    np.testing.assert_array_equal(short.ids, whole.ids[: len(short)])
