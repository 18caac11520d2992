"""Scores of whole conversations: blocks, padding and pictures change nothing."""

import functools

import jax
import numpy as np
import pytest

from aes_hdc.learner.batch import Shape, micro_batches
from aes_hdc.policy.logprobs import token_logprobs

# Float32 sums in another order.
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def conversations(few_words, make_player, talk, dialogues):
    played = talk(make_player(few_words), few_words.params, dialogues)
    return [conversation for conversation, _ in played.values()]


@pytest.fixture(scope="module")
def score(few_words):
    """`score(conversations, rows, slots, pictures)`, padded to those sizes."""

    @functools.partial(jax.jit, static_argnames="chunk")
    def program(params, tokens, chunk):
        return token_logprobs(
            few_words.model, params, tokens, few_words.distribution, chunk=chunk
        )

    def run(
        conversations, *, rows=5, slots=128, pictures=12, chunk=4096, padding=(0, 0)
    ):
        shape = Shape(rows, slots, 18, pictures, few_words.chat.patch_shape)
        advantages = [0.0] * len(conversations)
        (batch,) = micro_batches(conversations, advantages, [shape])
        tokens = batch.tokens
        tokens = tokens._replace(
            ids=np.where(tokens.order < 0, padding[0], tokens.ids),
            positions=np.where(tokens.order < 0, padding[1], tokens.positions),
        )
        found = program(few_words.params, tokens, chunk)
        return [np.asarray(array) for array in found], batch.tokens.loss_mask

    return run


def test_vocabulary_in_blocks_equals_all_at_once(conversations, score):
    (logprobs, entropy), mask = score(conversations)
    # 90 slots in blocks of 7: the last block is padded.
    (blocked, blocked_entropy), _ = score(conversations, chunk=7)
    np.testing.assert_allclose(blocked, logprobs, atol=1e-5)
    np.testing.assert_allclose(blocked_entropy, entropy, atol=1e-5)
    assert (logprobs[mask == 0] == 0).all()
    assert (entropy[mask == 0] == 0).all()


def test_entropy_is_between_zero_and_that_of_a_fair_choice(conversations, score):
    (_, entropy), mask = score(conversations)
    assert (entropy[mask > 0] > 0).all()
    assert (entropy[mask > 0] <= np.log(12) + 1e-5).all()  # Twelve tokens allowed.


def test_row_alone_equals_row_in_padded_batch(conversations, score):
    """N4: for rows of three, none and one picture."""
    (together, _), _ = score(conversations)
    for row, conversation in enumerate(conversations[:3]):
        # Alone, in the same program: other rows and their pictures are padding.
        (alone, _), _ = score([conversation])
        np.testing.assert_allclose(alone[0], together[row], atol=TOLERANCE)
    # And with neither spare slots nor spare pictures.
    conversation = conversations[0]
    (exact, _), _ = score(
        [conversation],
        rows=1,
        slots=len(conversation),
        pictures=len(conversation.pictures),
    )
    np.testing.assert_allclose(exact[0], together[0], atol=TOLERANCE)


def test_order_of_rows_changes_nothing(conversations, score):
    (together, _), _ = score(conversations)
    (reversed_, _), _ = score(conversations[::-1])
    np.testing.assert_allclose(reversed_[::-1], together, atol=TOLERANCE)


def test_text_alone_needs_no_picture(conversations, score):
    text = conversations[1]
    assert not text.pictures
    (logprobs, _), mask = score([text])
    sampled = text.logprobs[text.turn >= 0]
    np.testing.assert_allclose(logprobs[mask > 0], sampled, atol=TOLERANCE)


def test_padding_values_do_not_matter(conversations, score):
    (expected, _), _ = score(conversations)
    (found, _), _ = score(conversations, padding=(77, 9))
    np.testing.assert_array_equal(found, expected)
