import json

import numpy as np
import pytest

from aes_hdc.errors import UserError
from aes_hdc.selection import aes, conflict, record

IDS = ["a", "b", "c"]


def gradients():
    sketches = np.repeat(np.array([[3.0, 4], [4, 3], [0, 0]])[:, None, :], 4, axis=1)
    counts = np.full(3, 8), np.zeros(3, int)
    statistics = conflict.measure(sketches, *counts)
    return record.gradients_to_json(IDS, statistics, *counts, {"rules": statistics})


def test_gradients_survive_the_file_in_any_order():
    data = json.loads(json.dumps(gradients(), allow_nan=False))
    assert data["measured"] == [True, True, False]
    assert data["cosine"][0][2] is None
    assert data["by_harness"]["rules"]["cosine"] == data["cosine"]
    cosine, error = record.cosines_from_json(data, ["c", "a", "b"])
    assert cosine[1, 2] == pytest.approx(0.96)
    assert np.isnan(cosine[0]).all()
    assert error[1, 2] == pytest.approx(0)


def test_foreign_gradient_files_are_refused():
    with pytest.raises(UserError, match="schema"):
        record.cosines_from_json(gradients() | {"schema": 9}, IDS)
    with pytest.raises(UserError, match="lacks"):
        record.cosines_from_json(gradients(), ["a", "d"])


def test_selection_file_names_picks_and_rest():
    core = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0]], bool)
    zero = np.zeros((3, 3))
    picks = aes.select(IDS, core.astype(float), core, zero, zero)
    got = record.selection_to_json(
        IDS,
        ["x", "y", "z"],
        core,
        picks,
        zero,
        zero * np.nan,
        {"conflict_z": 2.0},
        np.random.default_rng(0),
    )
    got = json.loads(json.dumps(got, allow_nan=False))
    assert got["core_abilities"] == ["x", "y"]
    assert got["left_out"] == ["b", "c"]
    assert got["picks"] == [
        {
            "env_id": "a",
            "gain": 2.0,
            "new_coverage": 2.0,
            "redundancy": 0.0,
            "conflict": 0.0,
            "covered": 2,
        }
    ]
    assert got["conflict_cosine"][0][1] is None
    assert got["coverage_curve"]["aes"] == [2]
    assert len(got["coverage_curve"]["random"]) == 3
