"""From groups of rollouts to the credit of every token."""

import dataclasses

import numpy as np
import pytest

from aes_hdc.episode import Conversation
from aes_hdc.learner.gae import Gae
from experiments.algorithms import Grpo, Ppo, Scored
from experiments.groups import Group, gather_groups


def talked(*lengths):
    """A conversation of a three-token message and a reply of each given length."""
    turn = [t for k, n in enumerate(lengths) for t in (-1, -1, -1, *[k] * n)]
    turn = np.array(turn, np.int32)
    count = len(turn)
    nothing = np.zeros(count, np.int32)
    return Conversation(
        np.arange(count, dtype=np.int32),
        np.zeros((3, count), np.int32),
        nothing - 1,
        nothing,
        turn,
        np.where(turn >= 0, -1.0, 0.0).astype(np.float32),
        (),
    )


def group(*members, env_id="", timed_out=()):
    """A group of (lengths of replies, rewards of turns)."""
    size = len(members)
    return Group(
        [talked(*lengths) for lengths, _ in members],
        [np.array(rewards, np.float64) for _, rewards in members],
        np.zeros(size, bool),
        np.array([i in timed_out for i in range(size)]),
        env_id,
    )


def no_score(conversations):
    raise AssertionError("nothing is to be scored")


def test_grpo_drops_groups_without_a_signal_and_counts_them():
    groups = [
        group(([2], [1.0]), ([1], [0.0]), env_id="a"),
        group(([2], [0.1]), ([1], [0.1]), env_id="b"),
        group(([2], [1.0]), env_id="c"),
    ]
    parts, metrics = Grpo().rows(groups, no_score)
    assert metrics == {"degenerate_fraction": pytest.approx(2 / 3)}
    ((first, second),) = parts
    assert first.advantages.tolist() == [0.5, 0.5]
    assert second.advantages.tolist() == [-0.5]
    assert first.env_id == "a"
    assert first.values is None


def test_credit_by_turn_is_what_was_still_to_come():
    # Two members: 0 then 1, and 1 then 0. The first turns are worth the same.
    played = group(([2, 1], [0.0, 1.0]), ([1, 1], [1.0, 0.0]), ([1], [0.0]))
    parts, _ = Grpo(credit="turn").rows([played], no_score)
    ((first, second, third),) = parts
    # Turn 0: 1, 1, 0 with mean 2/3; turn 1, played by two: 1, 0.
    np.testing.assert_allclose(first.advantages, [1 / 3, 1 / 3, 0.5])
    np.testing.assert_allclose(second.advantages, [1 / 3, -0.5])
    np.testing.assert_allclose(third.advantages, [-2 / 3])
    discounted, _ = Grpo(credit="turn", discount=0.5).rows([played], no_score)
    # Turn 0: .5, 1, 0.
    np.testing.assert_allclose(discounted[0][0].advantages[:2], [0.0, 0.0], atol=1e-12)


def scores(values, final):
    def score(conversations):
        return [
            Scored(np.full((c.turn >= 0).sum(), -2.0), np.asarray(v, float), f)
            for c, v, f in zip(conversations, values, final, strict=True)
        ]

    return score


def test_ppo_by_hand():
    played = group(([2, 1], [0.0, 1.0]), ([1], [0.0]), env_id="a", timed_out=(1,))
    gae = Gae("token", token_discount=1.0, token_gae_lambda=1.0)
    ppo = Ppo(gae, whiten=False, bootstrap=True)
    parts, metrics = ppo.rows([played], scores([[0.2, 0.4, 0.5], [0.1]], [9.0, 0.6]))
    (first,), (second,) = parts
    # The first ended by itself: its last state is worth nothing more.
    np.testing.assert_allclose(first.advantages, [0.8, 0.6, 0.5])
    np.testing.assert_allclose(first.returns, [1.0, 1.0, 1.0])
    np.testing.assert_allclose(first.old_logprobs, [-2.0] * 3)
    # The second ran out of turns: 0 + .6 - .1.
    np.testing.assert_allclose(second.advantages, [0.5])
    assert metrics["value_mean"] == pytest.approx(0.3)
    assert metrics["degenerate_fraction"] == 0.0
    without = Ppo(gae, whiten=False)
    parts, _ = without.rows([played], scores([[0.2, 0.4, 0.5], [0.1]], [9.0, 0.6]))
    np.testing.assert_allclose(parts[1][0].advantages, [-0.1])


def test_ppo_whitens_over_all_tokens_and_leaves_the_returns():
    played = group(([2], [1.0]), ([2], [0.0]))
    parts, _ = Ppo(Gae("token")).rows([played], scores([[0.0] * 2] * 2, [0.0] * 2))
    rows = [row for part in parts for row in part]
    np.testing.assert_allclose(rows[0].advantages, [1.0, 1.0])
    np.testing.assert_allclose(rows[1].advantages, [-1.0, -1.0])
    np.testing.assert_allclose(rows[0].returns, [1.0, 1.0])


def test_a_message_that_was_never_answered_has_no_reward_to_give():
    """Its turn overflowed: two turns were played, one was written."""
    played = group(([2], [0.25, 0.0]), ([1], [1.0]))
    parts, _ = Ppo(Gae("token"), whiten=False).rows(
        [played], scores([[0.0] * 2, [0.0]], [0.0] * 2)
    )
    np.testing.assert_allclose(parts[0][0].advantages, [0.25, 0.25])


def test_groups_are_the_valid_members_of_each_instance(episode):
    def ended(label):
        turns = [*episode.turns[:1], dataclasses.replace(episode.turns[1], label=label)]
        return dataclasses.replace(episode, turns=turns)

    episodes = [episode, ended("env_error"), ended("length"), ended("turn_limit")]
    talks = [talked(1, 1) for _ in episodes]
    groups = gather_groups(episodes, talks.__getitem__, 2)
    assert [len(g.conversations) for g in groups] == [1, 2]
    assert groups[1].conversations[0] is talks[2]
    assert groups[0].rewards.tolist() == [1.0]
    assert groups[0].turn_rewards[0].tolist() == [0.0, 1.0]
    assert groups[1].is_cut.tolist() == [True, False]
    assert groups[1].is_timed_out.tolist() == [False, True]
    assert groups[0].env_id == "lights_out"
