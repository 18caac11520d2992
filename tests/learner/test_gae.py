"""Advantages over turns and tokens: by hand, by law, and against rlax."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aes_hdc.learner.gae import Gae, discounted, whiten

LEVELS = ("token", "turn", "bilevel")


def test_discounted_by_hand():
    # d = (0 + .5*2 - 1, 1 + .5*4 - 2, 2 + .5*8 - 4) = (0, 1, 2); A = d + .25 A'.
    found = discounted(np.array([0.0, 1, 2]), np.array([1.0, 2, 4]), 8.0, 0.5, 0.5)
    np.testing.assert_allclose(found, [0.375, 1.5, 2.0])


def test_two_levels_by_hand():
    # Two turns, of two tokens and of one; rewards 0 and 1; values as given.
    rewards, values, turns = [0.0, 1.0], [0.2, 0.4, 0.5], np.array([0, 0, 1])
    gae = Gae(
        "bilevel",
        discount=0.5,
        gae_lambda=1.0,
        token_discount=1.0,
        token_gae_lambda=0.5,
    )
    # Turn 1: 1 - .5 = .5. Turn 0: 0 + .5*.5 - .4 + .5*.5 = .1, at its last token.
    # Token 0 of turn 0: V_1 - V_0 + .5 * .1 = .25.
    np.testing.assert_allclose(gae(rewards, values, turns), [0.25, 0.1, 0.5])
    # Left over at the limit of turns: turn 1 gains .5 * .6, and turn 0 half of that.
    found = gae(rewards, values, turns, final_value=0.6)
    np.testing.assert_allclose(found, [0.25 + 0.075, 0.1 + 0.15, 0.8])


def test_turns_share_the_advantage_of_their_first_token():
    gae = Gae("turn", discount=0.5, gae_lambda=1.0)
    # Turn 1: 1 - .5. Turn 0: 0 + .5*.5 - .2 + .5*.5 = .3.
    found = gae([0.0, 1.0], [0.2, 0.4, 0.5], np.array([0, 0, 1]))
    np.testing.assert_allclose(found, [0.3, 0.3, 0.5])


def test_tokens_in_one_chain_skip_what_the_environment_said():
    gae = Gae("token", token_discount=1.0, token_gae_lambda=0.0)
    # One-step differences over the policy's own tokens: V' - V, at the end 1 - V.
    found = gae([0.0, 1.0], [0.2, 0.4, 0.5], np.array([0, 0, 1]))
    np.testing.assert_allclose(found, [0.2, 0.1, 0.5])


EPISODES = st.lists(
    st.tuples(st.floats(-2, 2), st.lists(st.floats(-3, 3), min_size=1, max_size=4)),
    min_size=1,
    max_size=5,
)


def unpack(episode):
    """(rewards by turn, values by token, turn of each token)."""
    rewards = np.array([reward for reward, _ in episode])
    values = np.concatenate([tokens for _, tokens in episode])
    counts = [len(tokens) for _, tokens in episode]
    return rewards, values, np.repeat(np.arange(len(episode)), counts)


@pytest.mark.parametrize("level", LEVELS)
@given(episode=EPISODES, final=st.floats(-3, 3))
def test_without_discount_it_is_what_was_earned_less_what_was_expected(
    level, episode, final
):
    """All discounts and lambdas 1: A = sum of rewards from here on + V_end - V."""
    rewards, values, turns = unpack(episode)
    gae = Gae(level, discount=1.0, gae_lambda=1.0)
    togo = rewards[::-1].cumsum()[::-1][turns] + final
    expected = togo - values
    if level == "turn":  # The value is that before the turn's first token.
        first = np.searchsorted(turns, turns)
        expected = togo - values[first]
    np.testing.assert_allclose(gae(rewards, values, turns, final), expected, atol=1e-9)


@pytest.mark.parametrize("level", LEVELS)
@given(episode=EPISODES)
def test_values_that_foretell_everything_leave_no_advantage(level, episode):
    rewards, values, turns = unpack(episode)
    perfect = rewards[::-1].cumsum()[::-1][turns]
    found = Gae(level, discount=1.0, gae_lambda=0.7, token_gae_lambda=0.3)(
        rewards, perfect, turns
    )
    np.testing.assert_allclose(found, 0, atol=1e-9)
    assert len(found) == len(values)


def test_a_reward_of_zero_ends_no_turn():
    """Turns are explicit: rewards say nothing about where they end."""
    gae = Gae("bilevel", discount=0.9, gae_lambda=0.9)
    turns = np.array([0, 0, 1, 2, 2])
    found = gae([0.0, 0.0, 1.0], np.zeros(5), turns)
    np.testing.assert_allclose(found, 0.81 ** np.array([2, 2, 1, 0, 0]))


def test_rewards_must_match_the_turns():
    with pytest.raises(ValueError, match="2 rewards for turns"):
        Gae()([0.0, 1.0], [0.1], np.array([0]))


@given(st.lists(st.lists(st.floats(-5, 5), max_size=4), max_size=5))
def test_whitened_tokens_have_mean_zero_and_deviation_one(parts):
    found = whiten([np.array(part, float) for part in parts])
    assert [len(part) for part in found] == [len(part) for part in parts]
    together = np.concatenate([*found, np.zeros(0)])
    before = np.concatenate([np.array(part, float) for part in parts] + [np.zeros(0)])
    if before.size and np.ptp(before) > 1e-3:
        assert together.mean() == pytest.approx(0, abs=1e-6)
        assert together.std() == pytest.approx(1, abs=1e-6)
    elif before.size and np.ptp(before) == 0:
        assert (together == 0).all()


@pytest.mark.parity
def test_chain_equals_rlax():
    rlax = pytest.importorskip("rlax")
    rng = np.random.default_rng(0)
    for _ in range(20):
        rewards, values = rng.normal(size=7), rng.normal(size=8)
        expected = rlax.truncated_generalized_advantage_estimation(
            rewards.astype(np.float32), np.full(7, 0.9, np.float32), 0.8, values
        )
        found = discounted(rewards, values[:-1], values[-1], 0.9, 0.8)
        np.testing.assert_allclose(found, expected, atol=1e-5)
