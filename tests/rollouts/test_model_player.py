"""The model as a player: overflow, rows that are used again, calls."""

import numpy as np
import pytest

from aes_hdc.episode import Harness, Observation, Task
from aes_hdc.rollouts.collect import Request, play


def spy(player):
    """Wraps the jitted prefill; returns the list of chunks it was called with."""
    chunks, prefill = [], player._prefill

    def call(params, pool, chunk, span):
        chunks.append(chunk)
        return prefill(params, pool, chunk, span=span)

    player._prefill = call
    return chunks


def words(count):
    """A message of `count` words that are one token each."""
    return Observation(" ".join(["goal"] * count), None)


def test_message_too_long_for_every_width_overflows_before_the_call(
    few_words, make_player, talk
):
    player = make_player(few_words)
    chunks = spy(player)
    found = talk(player, few_words.params, {0: [words(3), words(200)], 1: [words(300)]})
    conversation, labels = found[0]
    assert labels[-1] == "overflow"
    assert len(chunks) == 1
    # What did not fit is not in the record, which ends with the reply.
    assert conversation.turn[-1] == 0
    assert len(found[1][0]) == 0
    assert found[1][1] == ["overflow"]


def test_full_context_overflows_before_the_call(few_words, make_player, talk):
    player = make_player(few_words)  # 192 slots.
    chunks = spy(player)
    dialogue = [words(30)] * 6  # About 41 tokens each with the frame of the chat.
    conversation, labels = talk(player, few_words.params, {0: dialogue})[0]
    assert labels[-1] == "overflow"
    assert 3 <= len(chunks) == len(labels) - 1
    assert len(conversation) <= 192
    assert conversation.turn[-1] == len(labels) - 2


def test_rows_that_are_used_again_forget_what_they_held(
    few_words, make_player, talk, dialogues
):
    player = make_player(few_words)
    used = {10 + i: dialogues[0] for i in range(5)} | {1: dialogues[1]}
    again = talk(player, few_words.params, used)[1][0]
    fresh = talk(make_player(few_words), few_words.params, {1: dialogues[1]})[1][0]
    np.testing.assert_array_equal(again.ids, fresh.ids)
    np.testing.assert_allclose(again.logprobs, fresh.logprobs, atol=1e-4)


def test_start_forgets_everything(few_words, make_player, talk, dialogues):
    player = make_player(few_words)
    first = talk(player, few_words.params, {0: dialogues[0]})[0][0]
    talk(player, few_words.params, {i: dialogues[2] for i in range(5)}, seed=3)
    second = talk(player, few_words.params, {0: dialogues[0]})[0][0]
    np.testing.assert_array_equal(first.ids, second.ids)
    np.testing.assert_array_equal(first.logprobs, second.logprobs)
    with pytest.raises(KeyError):
        player.conversation(4)


def test_calls_are_filled_up_with_shorter_messages(few_words, make_player):
    # Two rows of width 32 for first messages; four of width 32, four of 64.
    player = make_player(few_words)
    player.start(few_words.params, 0, "test")
    chunks = spy(player)

    def request(index, count):
        return Request(index, None, 0, words(count), None, None)

    requests = [request(0, 40), *(request(1 + i, 3 + i) for i in range(4))]
    assert set(player.act(requests)) == {0, 1, 2, 3, 4}
    assert [chunk.ids.shape for chunk in chunks] == [(4, 64), (2, 32)]
    assert (chunks[0].length > 0).all()
    assert set(chunks[1].rows[1].tolist()) == {player.capacity}  # The scratch row.


def test_groups_stay_in_one_pool_while_it_has_room(few_words, make_player):
    player = make_player(few_words, capacity=8, pools=2)
    player.start(few_words.params, 0, "test")
    chunks = spy(player)
    requests = [
        Request(index, None, 0, words(3 + index // 3), None, None) for index in range(6)
    ]
    player.act(requests)
    assert sum(int((chunk.length > 0).sum()) for chunk in chunks) == 2
    homes = [player._episodes[index].pool for index in range(6)]
    assert homes == [0, 0, 0, 1, 1, 1]


def test_every_turn_prefills_its_new_tokens_only(
    few_words, make_player, talk, dialogues
):
    player = make_player(few_words)
    found = talk(player, few_words.params, dialogues)
    read = sum(int((talked.turn < 0).sum()) for talked, _ in found.values())
    wrote = sum(int((talked.turn >= 0).sum()) for talked, _ in found.values())
    # The last token of every reply but the final one is fed with the next message.
    fed = sum(len(labels) - 1 for _, labels in found.values())
    assert player.counts == {"prefilled": read + fed, "sampled": wrote}
    player.start(few_words.params, 0, "again")
    assert player.counts == {"prefilled": 0, "sampled": 0}


def test_it_plays_real_environments(few_words, make_player):
    tasks = [
        Task("count_objects", seed, 0, harness)
        for seed in range(3)
        for harness in (Harness.NONE, Harness.OBSERVATION)
    ]
    player = make_player(few_words)
    player.start(few_words.params, 0, "test")
    episodes = play(tasks, player, frame_px=96)
    for index, episode in enumerate(episodes):
        conversation = player.conversation(index)
        assert episode.policy == "model"
        played = [turn for turn in episode.turns if turn.label != "overflow"]
        for number, turn in enumerate(played):
            ids = conversation.ids[conversation.turn == number]
            assert few_words.chat.decode(ids) == turn.reply
