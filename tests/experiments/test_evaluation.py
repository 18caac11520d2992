"""Evaluation: pairs stay pairs."""

import numpy as np
import pytest

from experiments.evaluation import _means, _paired

KEY = ("lights_out", "none", 0)


def line(seed, success, label="wrong"):
    return {
        "env_id": KEY[0],
        "harness": KEY[1],
        "level": KEY[2],
        "seed": seed,
        "success": success,
        "label": label,
    }


def test_samples_of_an_instance_are_averaged_and_broken_ones_left_out():
    lines = [line(1, True), line(1, False), line(2, True), line(2, False, "env_error")]
    assert _means(lines) == {KEY: {1: 0.5, 2: 1.0}}


def test_pass_at_two_of_three_is_one_minus_both_missing():
    lines = [line(1, True), line(1, False), line(1, False), line(2, False)]
    means = _means(lines, pass_at=2)
    assert means[KEY][1] == pytest.approx(2 / 3)  # 1 - C(2, 2) / C(3, 2)
    assert means[KEY][2] == 0.0


def test_an_instance_that_broke_on_one_side_leaves_both():
    before = {KEY: {1: 0.0, 2: 1.0, 3: 0.0}, ("x", "none", 0): {1: 1.0}}
    after = {KEY: {3: 0.5, 1: 1.0}, ("y", "none", 0): {1: 1.0}}
    paired = _paired(before, after)
    assert paired["before"].keys() == paired["after"].keys() == {KEY}
    np.testing.assert_array_equal(paired["before"][KEY], [0.0, 0.0])
    np.testing.assert_array_equal(paired["after"][KEY], [1.0, 0.5])
