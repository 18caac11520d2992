"""The sampler against the learner, and a conversation against its neighbours."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aes_hdc.learner.batch import Row, Shape, micro_batches
from aes_hdc.learner.step import make_score
from aes_hdc.models.qwen3_vl.text import init_cache
from aes_hdc.policy.distribution import TokenDistribution
from experiments import compiles

# Float32 sums in another order; the tiny model's logits are of order 1.
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def played(few_words, make_player, talk, dialogues):
    """Conversations and labels, by index, all played side by side."""
    return talk(make_player(few_words), few_words.params, dialogues)


def scored(policy, conversations):
    """The learner's log-probabilities of every sampled token, by conversation."""
    shape = Shape(5, 128, 18, 12, policy.chat.patch_shape)
    rows = [Row.spread(conversation, 0.0) for conversation in conversations]
    ((_, batch),) = micro_batches(rows, [shape])
    score = make_score(policy.model, policy.distribution)
    logprobs = np.asarray(score(policy.params, batch.tokens).logprobs)
    counts = [int((c.turn >= 0).sum()) for c in conversations]
    return [row[:n] for row, n in zip(logprobs, counts, strict=False)]


def sampled(conversation):
    """(ids, log-probabilities) of what the policy wrote."""
    wrote = conversation.turn >= 0
    return conversation.ids[wrote], conversation.logprobs[wrote]


def test_dialogues_cover_what_the_laws_are_about(played):
    conversations = [conversation for conversation, _ in played.values()]
    assert {len(c.pictures) for c in conversations} == {0, 1, 3}
    first = {int((c.turn == 0).sum()) for c in conversations}
    assert len(first) > 1, "all rows ended at the same step"
    assert "length" in {label for _, labels in played.values() for label in labels}


def test_learner_scores_the_samples_as_the_sampler_did(few_words, played):
    conversations = [conversation for conversation, _ in played.values()]
    for conversation, found in zip(
        conversations, scored(few_words, conversations), strict=True
    ):
        _, logprobs = sampled(conversation)
        assert (logprobs < 0).all()
        np.testing.assert_allclose(found, logprobs, atol=TOLERANCE)


def test_scores_depend_on_the_picture(few_words, played):
    conversation, _ = played[0]
    patches, grid = conversation.pictures[0]
    other = dataclasses.replace(
        conversation, pictures=((255 - patches, grid), *conversation.pictures[1:])
    )
    (found,) = scored(few_words, [other])
    _, logprobs = sampled(conversation)
    assert np.abs(found - logprobs).max() > 10 * TOLERANCE


@pytest.mark.parametrize("index", range(5))
def test_a_row_alone_samples_what_it_samples_in_company(
    index, played, few_words, make_player, talk, dialogues
):
    alone = talk(make_player(few_words), few_words.params, {index: dialogues[index]})
    together, labels = played[index]
    ids, logprobs = sampled(together)
    found_ids, found = sampled(alone[index][0])
    assert alone[index][1] == labels
    np.testing.assert_array_equal(found_ids, ids)
    np.testing.assert_allclose(found, logprobs, atol=TOLERANCE)


def test_neighbours_and_their_order_change_nothing(
    played, few_words, make_player, talk, dialogues
):
    others = {10 + index: dialogues[index] for index in (2, 4, 0)}
    shuffled = others | {index: dialogues[index] for index in (3, 1, 4, 0, 2)}
    player = make_player(few_words)  # Eight on five rows: some are handed on.
    found_all = talk(player, few_words.params, shuffled)
    for index, (conversation, _) in played.items():
        ids, logprobs = sampled(conversation)
        found_ids, found = sampled(found_all[index][0])
        np.testing.assert_array_equal(found_ids, ids)
        np.testing.assert_allclose(found, logprobs, atol=TOLERANCE)


def test_two_pools_side_by_side_sample_the_same(
    played, few_words, make_player, talk, dialogues
):
    player = make_player(few_words, capacity=4, pools=2)
    assert player.capacity == 4
    for index, (conversation, labels) in talk(
        player, few_words.params, dialogues
    ).items():
        ids, logprobs = sampled(played[index][0])
        found_ids, found = sampled(conversation)
        assert labels == played[index][1]
        np.testing.assert_array_equal(found_ids, ids)
        np.testing.assert_allclose(found, logprobs, atol=TOLERANCE)


def test_who_begins_alike_shares_a_prefill_and_goes_on_alone(
    few_words, make_player, talk, dialogues
):
    members = dict.fromkeys(range(4), dialogues[0])
    player = make_player(few_words)
    together = talk(player, few_words.params, members)
    shared = sum(player.counts.values())
    separate = 0
    for index, (conversation, labels) in together.items():
        player = make_player(few_words)
        alone = talk(player, few_words.params, {index: dialogues[0]})[index]
        separate += sum(player.counts.values())
        assert labels == alone[1]
        np.testing.assert_array_equal(conversation.ids, alone[0].ids)
        np.testing.assert_allclose(
            conversation.logprobs, alone[0].logprobs, atol=TOLERANCE
        )
    replies = {tuple(sampled(conversation)[0]) for conversation, _ in together.values()}
    assert len(replies) == 4, "equal replies would hide a row that was mixed up"
    first = int((together[0][0].turn == 0).argmax())  # Tokens of the first message.
    assert separate - shared == 2 * first  # One message opens three, one the fourth.


def test_seed_index_and_turn_each_have_a_stream(
    played, few_words, make_player, talk, dialogues
):
    other = talk(make_player(few_words), few_words.params, dialogues, seed=1)
    different = [
        not np.array_equal(sampled(played[i][0])[0], sampled(other[i][0])[0])
        for i in dialogues
    ]
    assert all(different)
    same = talk(
        make_player(few_words), few_words.params, dict.fromkeys((7, 8), dialogues[0])
    )
    assert not np.array_equal(sampled(same[7][0])[0], sampled(same[8][0])[0])


def test_forbidden_tokens_are_never_sampled(few_words, played):
    forbidden = np.asarray(few_words.distribution.forbidden)
    for conversation, _ in played.values():
        assert not np.isin(sampled(conversation)[0], forbidden).any()


def test_forbidden_tokens_have_probability_zero_and_the_others_one():
    distribution = TokenDistribution((1, 3), temperature=0.5)
    logits = jnp.array([[9.0, 99.0, 8.0, 1e4], [0.0, 1.0, 2.0, 3.0]])
    probabilities = np.exp(np.asarray(distribution.log_softmax(logits)))
    assert (probabilities[:, [1, 3]] == 0).all()
    # softmax((9, 8) / 0.5) = sigmoid(+-2), softmax((0, 2) / 0.5) = sigmoid(-+4).
    expected = 1 / (1 + np.exp([[-2.0, 2.0], [4.0, -4.0]]))
    np.testing.assert_allclose(probabilities[:, [0, 2]], expected, rtol=1e-6)
    slope = jax.grad(lambda x: distribution.log_softmax(x)[0, 0])(logits)
    assert (np.asarray(slope)[:, [1, 3]] == 0).all()


def test_turn_ends_at_the_first_end_token_or_is_cut(few_words, played):
    ends = np.asarray(few_words.chat.end_ids)
    for conversation, labels in played.values():
        for turn, label in enumerate(labels):
            ids = conversation.ids[conversation.turn == turn]
            is_end = np.isin(ids, ends)
            assert not is_end[:-1].any()
            assert (label == "length") == (not is_end[-1])
            assert len(ids) == 6 if label == "length" else len(ids) <= 6


def test_greedy_takes_the_most_probable_token_whatever_the_seed(
    few_words, make_player, talk, dialogues
):
    player = make_player(few_words, greedy=True)
    once, again = (
        talk(player, few_words.params, {0: dialogues[0]}, seed=seed)[0][0]
        for seed in (0, 1)
    )
    np.testing.assert_array_equal(once.ids, again.ids)
    _, logprobs = sampled(once)
    # Twelve tokens share the mass, so the best has at least a twelfth.
    assert (logprobs >= np.log(1 / 12)).all()


def test_pool_holds_each_token_once_in_order(few_words, make_player, talk, dialogues):
    player = make_player(few_words)
    conversation, _ = talk(player, few_words.params, {0: dialogues[0]})[0]
    count = len(conversation) - 1  # The last sampled token was never fed.
    model, params = few_words.model, few_words.params
    index = np.where(
        conversation.image >= 0, conversation.image * 9 + conversation.image_token, -1
    )
    patches = np.stack([patches for patches, _ in conversation.pictures])
    grids = np.stack([grid for _, grid in conversation.pictures])

    @jax.jit
    def forward(params):
        variables = {"params": params}
        features = model.apply(variables, patches, grids, method="encode_images")
        _, cache = model.apply(
            variables,
            conversation.ids[None],
            conversation.positions[:, None],
            np.arange(len(conversation), dtype=np.int32)[None],
            features,
            index[None],
            init_cache(model.config, 1, len(conversation), jnp.float32),
            0,
        )
        return cache.k[:, 0], cache.v[:, 0]

    row = 0  # The first row that is given out.
    pool = player._pools[0]
    for found, expected in zip((pool.k, pool.v), forward(params), strict=True):
        np.testing.assert_allclose(
            np.asarray(found)[:, row, :, :count],
            np.asarray(expected)[:, :, :count],
            atol=TOLERANCE,
        )
        # What stands behind the last token is no copy of it.
        after = np.asarray(found)[:, row, :, count]
        assert np.abs(after - np.asarray(expected)[:, :, count]).max() > TOLERANCE


def test_one_program_per_shape(few_words, played, make_player, talk, dialogues):
    compiles.listen()
    player = make_player(few_words)  # All shapes were compiled for `played`.
    before = compiles.count()
    for seed in range(6):
        chosen = {i: dialogues[i] for i in range(seed % 5 + 1)}
        talk(player, few_words.params, chosen, seed=seed)
    assert compiles.count() == before
