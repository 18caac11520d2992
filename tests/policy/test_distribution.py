"""What may be sampled, and with which probability."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aes_hdc.policy.distribution import TokenDistribution


def probabilities(logits, **changes):
    logits = jnp.asarray(logits, jnp.float32)
    return np.exp(TokenDistribution(**changes).log_softmax(logits))


HALVES = np.log([0.5, 0.25, 0.125, 0.125])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [0.5, 0.25, 0.125, 0.125]),
        ({"temperature": 0.5}, np.array([16, 4, 1, 1]) / 22),
        ({"forbidden": (0,)}, [0, 0.5, 0.25, 0.25]),
        ({"top_k": 1}, [1, 0, 0, 0]),
        ({"top_k": 2}, [2 / 3, 1 / 3, 0, 0]),
        ({"top_k": 3}, [0.5, 0.25, 0.125, 0.125]),  # The fourth ties with the third.
        ({"top_k": 9}, [0.5, 0.25, 0.125, 0.125]),
        ({"top_p": 0.3}, [1, 0, 0, 0]),
        ({"top_p": 0.6}, [2 / 3, 1 / 3, 0, 0]),  # A half is not enough.
        ({"min_p": 0.4}, [2 / 3, 1 / 3, 0, 0]),
        ({"min_p": 0.6}, [1, 0, 0, 0]),
        ({"top_k": 2, "min_p": 0.6}, [1, 0, 0, 0]),
        ({"forbidden": (0,), "top_k": 1}, [0, 1, 0, 0]),
        ({"temperature": 0.5, "top_p": 0.75}, [0.8, 0.2, 0, 0]),  # 16/22 is short.
    ],
    ids=str,
)
def test_by_hand(changes, expected):
    np.testing.assert_allclose(probabilities(HALVES, **changes), expected, atol=1e-6)


LOGITS = st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=12)


@settings(deadline=None, max_examples=60)
@given(
    logits=LOGITS,
    top_k=st.integers(0, 13),
    top_p=st.floats(0.01, 1.0),
    min_p=st.floats(0.0, 0.99),
)
def test_what_is_left_is_the_top_and_adds_up_to_one(logits, top_k, top_p, min_p):
    found = probabilities(logits, top_k=top_k, top_p=top_p, min_p=min_p)
    assert found.sum() == pytest.approx(1.0, abs=1e-5)
    kept = found > 0
    values = np.asarray(logits, np.float32)
    assert kept[values.argmax()]
    # Nothing that is left out was more probable than what is left.
    if (~kept).any():
        assert values[~kept].max() <= values[kept].min()
    # What is left keeps its proportions.
    whole = probabilities(logits)
    shares = found[kept] / found[kept].sum()
    np.testing.assert_allclose(shares, whole[kept] / whole[kept].sum(), atol=1e-5)


def test_full_is_the_same_at_the_same_temperature():
    truncated = TokenDistribution((3,), 0.7, top_k=5, top_p=0.9, min_p=0.1)
    assert truncated.full() == TokenDistribution((3,), 0.7)


def test_samples_come_from_what_is_left():
    distribution = TokenDistribution(top_p=0.6)
    logprobs = distribution.log_softmax(jnp.asarray(HALVES, jnp.float32))
    keys = jax.random.split(jax.random.key(0), 500)
    drawn = jax.vmap(lambda key: jax.random.categorical(key, logprobs))(keys)
    assert set(np.asarray(drawn).tolist()) == {0, 1}
    # Two thirds, within four standard errors.
    assert np.mean(np.asarray(drawn) == 0) == pytest.approx(2 / 3, abs=0.085)
