"""Scores of whole conversations: blocks, padding and pictures change nothing."""

import functools

import jax
import numpy as np
import pytest

from aes_hdc.learner.batch import Shape
from aes_hdc.policy.logprobs import init_value_head, token_scores

# Float32 sums in another order.
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def conversations(few_words, make_player, talk, dialogues):
    played = talk(make_player(few_words), few_words.params, dialogues)
    return [conversation for conversation, _ in played.values()]


@pytest.fixture(scope="module")
def score(few_words, pack):
    """`score(conversations, rows, slots, pictures)`, padded to those sizes."""

    @functools.partial(jax.jit, static_argnames="chunk")
    def program(params, tokens, chunk):
        scores = token_scores(
            few_words.model, params, tokens, few_words.distribution, chunk=chunk
        )
        return scores.logprobs, scores.entropy

    def run(
        conversations, *, rows=5, slots=128, pictures=12, chunk=4096, padding=(0, 0)
    ):
        shape = Shape(rows, slots, 18, pictures, few_words.chat.patch_shape)
        advantages = [0.0] * len(conversations)
        (batch,) = pack(conversations, advantages, [shape])
        segment = batch.tokens.segment
        segment = segment._replace(
            ids=np.where(segment.order < 0, padding[0], segment.ids),
            positions=np.where(segment.order < 0, padding[1], segment.positions),
        )
        tokens = batch.tokens._replace(segment=segment)
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


@pytest.fixture(scope="module")
def group(few_words, make_player, talk, dialogues):
    """Two groups of three and one alone, whose members begin alike and go on apart."""
    again = {0: 0, 1: 0, 2: 0, 3: 3, 4: 3, 5: 3, 6: 1}
    played = talk(
        make_player(few_words),
        few_words.params,
        {index: dialogues[which] for index, which in again.items()},
    )
    return [conversation for conversation, _ in played.values()]


def test_shared_openings_give_the_scores_and_gradients_of_whole_rows(
    few_words, group, pack
):
    """The prefix is exact: nothing but the order of float32 sums differs."""
    patches = few_words.chat.patch_shape
    params = few_words.params | {
        "value": jax.tree.map(
            lambda leaf: leaf + 0.01,
            init_value_head(few_words.model.config.text.hidden_size),
        )
    }
    weights = np.random.default_rng(0).normal(size=(7, 18)).astype(np.float32)

    @jax.jit
    def program(params, tokens):
        def loss(params):
            found = token_scores(
                few_words.model, params, tokens, few_words.distribution
            )
            terms = (found.logprobs + found.values) * weights
            return terms.sum() + found.final_value.sum(), found

        return jax.grad(loss, has_aux=True)(params)

    found = []
    for shape in (
        Shape(7, 128, 18, 18, patches),
        Shape(7, 112, 18, 9, patches, openings=3, opening_slots=40),
    ):
        (batch,) = pack(group, [0.0] * 7, [shape])
        assert (batch.tokens.openings is not None) == (shape.openings > 0)
        found.append(jax.device_get(program(params, batch.tokens)))
    (grads, scores), (shared_grads, shared_scores) = found
    for whole, shared in zip(scores, shared_scores, strict=True):
        np.testing.assert_allclose(shared, whole, atol=1e-5)
    scale = max(np.abs(leaf).max() for leaf in jax.tree.leaves(grads))
    assert scale > 0.1
    for whole, shared in zip(
        jax.tree.leaves(grads), jax.tree.leaves(shared_grads), strict=True
    ):
        np.testing.assert_allclose(shared, whole, atol=1e-5 * scale)


def test_value_reads_the_state_before_each_token_and_after_the_last(
    few_words, conversations, pack
):
    """A head that reads one entry of the hidden state gives that entry."""
    width = few_words.model.config.text.hidden_size
    head = {"kernel": np.eye(width, dtype=np.float32)[3], "bias": np.float32(0.5)}
    item = conversations[0]
    shape = Shape(1, 128, 18, 3, few_words.chat.patch_shape)
    (batch,) = pack([item], [0.0], [shape])
    apply = few_words.model.apply

    @jax.jit
    def program(params, head, tokens):
        found = token_scores(
            few_words.model, params | {"value": head}, tokens, few_words.distribution
        )
        segment, variables = tokens.segment, {"params": params}
        vision = apply(
            variables, segment.patches, segment.grids, method="encode_images"
        )
        hidden, _ = apply(variables, *segment[:3], vision, segment.vision_index)
        return found, hidden

    found, hidden = program(few_words.params, head, batch.tokens)
    wrote = np.flatnonzero(item.turn >= 0)
    np.testing.assert_allclose(
        found.values[0, : len(wrote)], hidden[0, wrote - 1, 3] + 0.5, atol=1e-5
    )
    assert (np.asarray(found.values)[0, len(wrote) :] == 0).all()
    expected = hidden[0, len(item) - 1, 3] + 0.5
    np.testing.assert_allclose(found.final_value[0], expected, atol=1e-5)


def test_value_may_leave_the_core_alone(few_words, conversations, pack):
    width = few_words.model.config.text.hidden_size
    head = {"kernel": np.ones(width, np.float32), "bias": np.float32(0)}
    shape = Shape(5, 128, 18, 12, few_words.chat.patch_shape)
    (batch,) = pack(conversations, [0.0] * len(conversations), [shape])

    @jax.jit
    def slope(params, flow):
        def loss(params):
            found = token_scores(
                few_words.model,
                params,
                batch.tokens,
                few_words.distribution,
                value_flow=flow,
            )
            return found.values.sum()

        return jax.grad(loss)(params)

    params = few_words.params | {"value": head}
    for flow, moves in ((0.0, False), (1.0, True)):
        grads = jax.device_get(slope(params, np.float32(flow)))
        assert np.abs(grads.pop("value")["kernel"]).max() > 0
        largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(grads))
        assert (largest > 0) == moves
