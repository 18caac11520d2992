"""Group-relative advantages, worked by hand and as laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aes_hdc.learner.advantages import STD_EPSILON, group_relative, is_degenerate

REWARDS = st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=16)


def test_without_std_worked_by_hand():
    (found,) = group_relative([np.array([1.0, 0.0, 0.0, 1.0, 0.0])])
    np.testing.assert_allclose(found, [0.6, -0.4, -0.4, 0.6, -0.4], rtol=1e-15)


def test_group_std_worked_by_hand():
    first, second = group_relative(
        [np.array([1.0, 0.0]), np.array([0.0, 4.0])], std="group"
    )
    np.testing.assert_allclose(first, np.array([0.5, -0.5]) / (0.5 + 1e-4))
    np.testing.assert_allclose(second, np.array([-2.0, 2.0]) / (2.0 + 1e-4))


def test_batch_std_is_over_informative_groups_only():
    groups = [np.array([1.0, 0.0]), np.array([0.5] * 6), np.array([0.0, 1.0])]
    first, second, third = group_relative(groups, std="batch")
    # The four informative rewards have standard deviation 0.5; with the six halves it
    # would be 0.316.
    np.testing.assert_allclose(first, np.array([0.5, -0.5]) / (0.5 + STD_EPSILON))
    np.testing.assert_array_equal(second, np.zeros(6))
    np.testing.assert_allclose(third, -first)


@pytest.mark.parametrize("std", ["none", "group", "batch"])
@given(reward=st.floats(-1e6, 1e6), count=st.integers(1, 16))
def test_equal_rewards_of_any_float_give_exactly_zero(std, reward, count):
    """N2."""
    (found,) = group_relative([np.full(count, reward)], std=std)
    assert (found == 0.0).all()
    assert found.shape == (count,)


@pytest.mark.parametrize("std", ["none", "group", "batch"])
def test_eight_tenths_in_float32_give_exactly_zero(std):
    (found,) = group_relative([np.full(8, 0.1, np.float32)], std=std)
    assert (found == 0.0).all()


@pytest.mark.parametrize("std", ["none", "group"])
@given(rewards=REWARDS)
def test_advantages_of_a_group_sum_to_zero(std, rewards):
    (found,) = group_relative([np.array(rewards)], std=std)
    # Rounding of the mean: a few ulp of the largest reward per member, over the least
    # divisor.
    scale = max(map(abs, rewards)) if std == "none" else 1e3 / STD_EPSILON
    assert abs(found.sum()) <= 1e-14 * len(rewards) * scale + 1e-300


@given(rewards=REWARDS, seed=st.integers(0, 99))
def test_order_within_a_group_changes_nothing(rewards, seed):
    rewards = np.array(rewards)
    order = np.random.default_rng(seed).permutation(len(rewards))
    (found,) = group_relative([rewards])
    (moved,) = group_relative([rewards[order]])
    np.testing.assert_allclose(moved, found[order], atol=1e-12 * 1e3)


@given(first=REWARDS, second=REWARDS)
def test_groups_do_not_see_each_other(first, second):
    alone = group_relative([np.array(first)], std="group")[0]
    beside = group_relative([np.array(second), np.array(first)], std="group")[1]
    np.testing.assert_array_equal(beside, alone)


def test_fewer_than_two_valid_members_carry_no_signal():
    assert is_degenerate(np.array([]))
    assert is_degenerate(np.array([1.0]))
    assert is_degenerate(np.array([0.3, 0.3]))
    assert not is_degenerate(np.array([0.0, 1e-12]))
    assert group_relative([np.array([])])[0].shape == (0,)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_no_number_is_refused(bad):
    with pytest.raises(ValueError, match="finite"):
        group_relative([np.array([1.0, bad])])


def test_a_reward_of_higher_rank_is_refused():
    with pytest.raises(ValueError, match="vector"):
        group_relative([np.zeros((2, 1))])


def test_leave_one_out_by_hand():
    # The others' mean: 0, 1/2, 1/2.
    (found,) = group_relative([np.array([1.0, 0.0, 0.0])], leave_one_out=True)
    np.testing.assert_allclose(found, [1.0, -0.5, -0.5])
