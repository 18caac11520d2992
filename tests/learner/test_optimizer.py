"""The optimizer against its formulas."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from aes_hdc.learner.optimizer import make_optimizer


def rates(count, **settings):
    """Learning rates of the first updates, read off Adam's unit steps."""
    optimizer = make_optimizer(learning_rate=0.1, **settings)
    params = {"kernel": jnp.zeros((1, 1))}
    state = optimizer.init(params)
    found = []
    for _ in range(count):
        # With a constant gradient Adam's corrected moments make steps of 1.
        updates, state = optimizer.update({"kernel": jnp.ones((1, 1))}, state, params)
        found.append(-float(updates["kernel"][0, 0]))
    return found


def test_rate_is_constant_by_default():
    assert rates(4) == pytest.approx([0.1] * 4, rel=1e-4)


def test_warmup_rises_linearly_from_zero_and_stays():
    found = rates(5, warmup_steps=2)
    assert found == pytest.approx([0.0, 0.05, 0.1, 0.1, 0.1], rel=1e-4)


def test_cosine_ends_at_a_tenth():
    found = rates(8, warmup_steps=2, decay_steps=6)
    # Half-way through the four steps of the cosine: (1 + 0.1) / 2 of the peak.
    assert found[:3] == pytest.approx([0.0, 0.05, 0.1], rel=1e-4)
    assert found[4] == pytest.approx(0.055, rel=1e-4)
    assert found[6:] == pytest.approx([0.01, 0.01], rel=1e-4)


def test_decay_spares_gains_and_biases_even_when_stacked_over_layers():
    optimizer = make_optimizer(learning_rate=0.1, weight_decay=0.5)
    layer = {
        "norm": {"scale": jnp.ones((3, 4))},
        "fc": {"kernel": jnp.ones((3, 4, 4)), "bias": jnp.ones((3, 4))},
        "embed": {"table": jnp.ones((5, 4))},
    }
    zero = {k: {n: jnp.zeros_like(x) for n, x in v.items()} for k, v in layer.items()}
    updates, _ = optimizer.update(zero, optimizer.init(layer), layer)
    # No gradient: what remains is decay, rate * weight_decay = 0.05 of the value.
    assert np.asarray(updates["fc"]["kernel"]) == pytest.approx(-0.05)
    assert np.asarray(updates["embed"]["table"]) == pytest.approx(-0.05)
    assert (np.asarray(updates["norm"]["scale"]) == 0).all()
    assert (np.asarray(updates["fc"]["bias"]) == 0).all()


def test_gradient_is_clipped_by_its_global_norm():
    optimizer = make_optimizer(learning_rate=1.0, b1=0.0, max_grad_norm=2.0)
    params = {"a": jnp.zeros(1), "b": jnp.zeros(1)}
    grads = {"a": jnp.full(1, 6.0), "b": jnp.full(1, 8.0)}  # Norm 10.
    _, state = optimizer.update(grads, optimizer.init(params), params)
    moment = optax.tree_utils.tree_get(state, "mu")
    assert float(moment["a"][0]) == pytest.approx(1.2)
    assert float(moment["b"][0]) == pytest.approx(1.6)


def test_value_head_has_its_own_rate():
    optimizer = make_optimizer(learning_rate=0.1, value_rate=10.0)
    params = {"text": {"kernel": jnp.zeros(2)}, "value": {"kernel": jnp.zeros(2)}}
    grads = {"text": {"kernel": jnp.ones(2)}, "value": {"kernel": jnp.ones(2)}}
    updates, _ = optimizer.update(grads, optimizer.init(params), params)
    np.testing.assert_allclose(updates["text"]["kernel"], -0.1, rtol=1e-4)
    np.testing.assert_allclose(updates["value"]["kernel"], -1.0, rtol=1e-4)
