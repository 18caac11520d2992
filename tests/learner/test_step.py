"""Gradients of whole batches: how a batch is cut, masks, divisors, broken numbers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from aes_hdc import storage
from aes_hdc.errors import UserError
from aes_hdc.learner.batch import Row, Shape
from aes_hdc.learner.losses import Batch, LossSettings, loss_sums
from aes_hdc.learner.optimizer import make_optimizer
from aes_hdc.learner.step import (
    TrainState,
    make_accumulate,
    make_apply,
    make_gradient,
    make_score,
)
from aes_hdc.policy.logprobs import Scores
from experiments.algorithms import Grpo
from experiments.groups import Group
from experiments.learning import Learner

SLOTS, ACTIONS = 128, 18
OPTIMIZER = make_optimizer(learning_rate=1e-3)  # One, so that programs are shared.


@pytest.fixture(scope="module")
def conversations(few_words, make_player, talk, dialogues):
    """Eight conversations."""
    eight = dialogues | {5 + i: dialogues[i] for i in range(3)}
    played = talk(make_player(few_words), few_words.params, eight)
    return [conversation for conversation, _ in played.values()]


@pytest.fixture(scope="module")
def gradient(few_words):
    return make_gradient(few_words.model, few_words.distribution, LossSettings())


def shape(policy, rows):
    return Shape(rows, SLOTS, ACTIONS, 3 * rows, policy.chat.patch_shape)


def largest(tree):
    return max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(tree))


def test_eight_rows_at_once_equal_one_row_eight_times(
    few_words, conversations, gradient, pack
):
    """N4."""
    advantages = [*np.linspace(-1, 1, 8)]
    found = {}
    for rows in (8, 1):
        total, sums = None, {}
        batches = pack(conversations, advantages, [shape(few_words, rows)])
        assert len(batches) == 8 // rows
        for batch in batches:
            grads, part = gradient(few_words.params, batch)
            total = grads if total is None else make_accumulate()(total, grads)
            for name in ("loss", "tokens", "entropy"):
                sums[name] = sums.get(name, 0.0) + float(part[name])
        found[rows] = total, sums
    scale = largest(found[8][0])
    for one, other in zip(
        jax.tree.leaves(found[8][0]), jax.tree.leaves(found[1][0]), strict=True
    ):
        # Float32 sums in another order, relative to the largest entry.
        np.testing.assert_allclose(one, other, atol=1e-5 * scale)
    for name, value in found[8][1].items():
        # The loss is a difference of terms of order 1.
        assert found[1][1][name] == pytest.approx(value, rel=1e-5, abs=1e-5)
    assert scale > 0


def test_tokens_of_the_environment_have_exactly_no_gradient(
    few_words, conversations, gradient, pack
):
    (batch,) = pack(conversations, [1.0] * 8, [shape(few_words, 8)])
    # Slots that were never sampled, with a huge advantage but no mask.
    tokens = batch.tokens
    blank = tokens._replace(
        action_slots=np.full_like(tokens.action_slots, 3),
        loss_mask=np.zeros_like(tokens.loss_mask),
    )
    huge = np.full_like(batch.advantages, 1e6)
    grads, sums = gradient(
        few_words.params, batch._replace(tokens=blank, advantages=huge)
    )
    assert largest(grads) == 0.0
    assert float(sums["tokens"]) == 0.0
    # And beside tokens that do count they change no bit.
    hidden = np.where(tokens.loss_mask > 0, batch.advantages, 1e6).astype(np.float32)
    expected, _ = gradient(few_words.params, batch)
    found, _ = gradient(few_words.params, batch._replace(advantages=hidden))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_gradient_is_that_of_advantage_times_log_probability(
    few_words, conversations, gradient, pack
):
    """At ratio 1, along a random direction, by central differences."""
    advantages = [*np.linspace(-1, 1, 8)]
    (batch,) = pack(conversations, advantages, [shape(few_words, 8)])
    grads, sums = gradient(few_words.params, batch)
    assert float(sums["logprob_gap_max"]) < 1e-4
    norm = float(optax.tree.norm(grads))
    # The losses differ by 2 * 0.1 with 1e-5 of noise; the cubic term is below 1 %.
    length = 0.1 / norm
    losses = []
    for sign in (1, -1):
        moved = jax.tree.map(
            lambda p, g: np.asarray(p + sign * length / norm * np.asarray(g)),  # noqa: B023
            few_words.params,
            grads,
        )
        losses.append(float(gradient(moved, batch)[1]["loss"]))
    assert (losses[0] - losses[1]) / 2 == pytest.approx(length * norm, rel=0.02)


@pytest.mark.parametrize(
    ("aggregation", "divisor"), [("constant", 2 * 20.0), ("token", 22.0)]
)
def test_divisor_for_lengths_two_and_twenty(fresh_policy, aggregation, divisor):
    learner = Learner(
        policy=fresh_policy,
        optimizer=OPTIMIZER,
        settings=LossSettings(),
        shapes=[],
        aggregation=aggregation,
        row_tokens=20,
    )
    mask = (np.arange(20) < np.array([[2], [20]])).astype(np.float32)
    tokens = type("T", (), {"loss_mask": mask})
    advantages = mask * [[1.0], [-1.0]]
    zeros = np.zeros((2, 20), np.float32)

    batch = Batch(tokens, advantages, *[zeros] * 5)

    def loss(logprobs):
        scores = Scores(logprobs, zeros, zeros, zeros[:, 0])
        return loss_sums(scores, batch, LossSettings())

    slopes, sums = jax.grad(loss, has_aux=True)(jnp.asarray(zeros))
    found = np.asarray(slopes) / learner.divisor(2, float(sums["tokens"]))
    # Each token weighs 1 / divisor, in the short row as in the long one.
    np.testing.assert_allclose(found, -mask * [[1.0], [-1.0]] / divisor, rtol=1e-6)


def bits(tree):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_gradient_that_is_not_finite_leaves_every_bit(bad):
    params = {"kernel": jnp.arange(6.0).reshape(2, 3), "bias": jnp.ones(3)}
    state = TrainState(params, OPTIMIZER.init(params))
    apply = make_apply(OPTIMIZER)
    good = jax.tree.map(jnp.ones_like, params)
    state, norm, is_applied = apply(state, good, np.float32(2.0))
    assert bool(is_applied)
    assert float(norm) == pytest.approx(3 / 2)  # Nine ones, halved.
    before = bits(state)
    broken = {**good, "bias": jnp.array([0.0, bad, 0.0])}
    state, norm, is_applied = apply(state, broken, np.float32(2.0))
    assert not bool(is_applied)
    assert not np.isfinite(float(norm))
    assert bits(state) == before


def make_learner(policy, tmp_path, **changes):
    return Learner(
        policy=policy,
        optimizer=OPTIMIZER,
        settings=changes.pop("settings", LossSettings()),
        shapes=[shape(policy, 8)],
        aggregation="constant",
        row_tokens=ACTIONS,
        dump_folder=tmp_path,
        **changes,
    )


def test_third_broken_step_in_a_row_ends_the_run(
    fresh_few_words, conversations, tmp_path
):
    """N1."""
    learner = make_learner(fresh_few_words, tmp_path)
    broken = dataclasses.replace(
        conversations[0], logprobs=np.full_like(conversations[0].logprobs, np.nan)
    )
    bad = [Group.of_returns([broken, conversations[1]], [0.0, 1.0])]
    good = [Group.of_returns(conversations[:2], [0.0, 1.0])]
    before = bits(learner.state.params)
    for groups, skipped in (
        (bad, 1.0),
        (bad, 1.0),
        (good, 0.0),
        (bad, 1.0),
        (bad, 1.0),
    ):
        metrics = learner.update(groups)
        assert metrics["skipped_updates"] == skipped
        storage.to_json(metrics)  # Refuses NaN.
        if groups is good:
            before = bits(learner.state.params)
        assert bits(learner.state.params) == before
    with pytest.raises(UserError, match=r"not finite in 3 steps.*not_finite_3\.npz"):
        learner.update(bad)
    assert bits(learner.state.params) == before
    dump = np.load(tmp_path / "not_finite_3.npz", allow_pickle=False)
    assert dump["length"].tolist() == [len(broken), len(conversations[1])]
    np.testing.assert_array_equal(
        dump["ids"], np.concatenate([broken.ids, conversations[1].ids])
    )


def test_degenerate_groups_change_nothing_at_all(
    fresh_few_words, conversations, tmp_path
):
    learner = make_learner(fresh_few_words, tmp_path)
    before = bits(learner.state)
    metrics = learner.update([Group.of_returns(conversations[:4], [0.1] * 4)])
    assert metrics["degenerate_fraction"] == 1.0
    assert bits(learner.state) == before
    mixed = [
        Group.of_returns(conversations[:2], [0.0, 1.0]),
        Group.of_returns(conversations[2:6], [1.0] * 4),
    ]
    alone = make_learner(
        dataclasses.replace(fresh_few_words, params=copied(learner.state.params)),
        tmp_path,
    )
    metrics, expected = learner.update(mixed), alone.update(mixed[:1])
    assert metrics["degenerate_fraction"] == 0.5
    # The divisor counts the rows of informative groups only, so every bit is the same.
    assert metrics["grad_norm"] == expected["grad_norm"] > 0
    assert bits(learner.state) == bits(alone.state)


def copied(params):
    return jax.tree.map(lambda leaf: jax.device_put(np.array(leaf)), params)


def test_kl_is_measured_from_where_training_began(
    few_words, fresh_few_words, conversations, tmp_path, pack
):
    settings = LossSettings(kl="k3", kl_coef=0.1)
    learner = make_learner(fresh_few_words, tmp_path, settings=settings)
    groups = [Group.of_returns(conversations[:4], [0.0, 1.0, 0.0, 1.0])]
    first = learner.update(groups)
    assert first["kl"] == pytest.approx(0.0, abs=1e-8)  # Nothing has moved yet.
    (batch,) = pack(conversations[:4], [0.0] * 4, [shape(few_words, 8)])
    score = make_score(few_words.model, few_words.distribution)
    began, now = (
        np.asarray(score(params, batch.tokens).logprobs, np.float64)
        for params in (few_words.params, learner.state.params)
    )
    mask = batch.tokens.loss_mask
    delta = np.clip(began - now, -10, 10)
    expected = ((np.exp(delta) - delta - 1) * mask).sum() / mask.sum()
    assert expected > 1e-6
    assert learner.update(groups)["kl"] == pytest.approx(expected, rel=1e-3)


def test_members_that_were_cut_stay_out_of_the_loss_but_in_the_mean(
    fresh_few_words, conversations, tmp_path
):
    learner = make_learner(fresh_few_words, tmp_path, algorithm=Grpo(mask_cut=True))
    params = copied(learner.state.params)
    group = Group.of_returns(conversations[:3], [1.0, 0.0, 0.0], [False, True, False])
    found = learner.update([group])
    plain = make_learner(dataclasses.replace(fresh_few_words, params=params), tmp_path)
    kept = zip([conversations[0], conversations[2]], [2 / 3, -1 / 3], strict=True)
    grads, _ = plain.gradient([Row.spread(*pair) for pair in kept])
    norm, _ = plain.step(grads, 2 * ACTIONS)
    assert found["grad_norm"] == pytest.approx(norm, rel=1e-6)


def test_importance_correction_of_a_sampler_that_agrees_changes_little(
    fresh_few_words, conversations, tmp_path
):
    group = [Group.of_returns(conversations[:2], [0.0, 1.0])]
    plain = make_learner(fresh_few_words, tmp_path)
    params = copied(plain.state.params)
    expected = plain.update(group)
    settings = LossSettings(importance_cap=2.0)
    policy = dataclasses.replace(fresh_few_words, params=params)
    learner = make_learner(policy, tmp_path, settings=settings)
    found = learner.update(group)
    assert found["importance"] == pytest.approx(1.0, abs=1e-4)
    assert found["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-3)


def test_truncated_sampling_is_learnt_in_full(
    fresh_few_words, conversations, tmp_path, caplog
):
    """The sampler left tokens out: what it stored is 0.3 above the whole of them."""
    raised = [
        dataclasses.replace(c, logprobs=c.logprobs + np.float32(0.3) * (c.turn >= 0))
        for c in conversations[:2]
    ]
    group = [Group.of_returns(raised, [0.0, 1.0])]
    plain = make_learner(fresh_few_words, tmp_path)
    params = copied(plain.state.params)
    assert plain.update(group)["clip_fraction"] > 0  # Taken for a policy that moved.
    assert "differ by 0.3" in caplog.text
    caplog.clear()
    distribution = dataclasses.replace(fresh_few_words.distribution, top_k=3)
    policy = dataclasses.replace(
        fresh_few_words, params=params, distribution=distribution
    )
    found = make_learner(policy, tmp_path).update(group)
    assert found["clip_fraction"] == 0.0
    assert found["approx_kl"] == pytest.approx(0.0, abs=1e-9)
    assert found["logprob_gap"] == pytest.approx(0.3, abs=1e-4)
    assert not caplog.text
