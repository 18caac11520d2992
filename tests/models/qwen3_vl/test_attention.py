import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aes_hdc.models.qwen3_vl.attention import Keys, attention

BATCH, LENGTH, HEADS, KV_HEADS, WIDTH = 2, 5, 6, 2, 4


@pytest.fixture
def inputs():
    rng = np.random.default_rng(0)

    def draw(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    q = draw(BATCH, LENGTH, HEADS, WIDTH)
    keys = draw(BATCH, KV_HEADS, LENGTH, WIDTH), draw(BATCH, KV_HEADS, LENGTH, WIDTH)
    past = draw(BATCH, KV_HEADS, 7, WIDTH), draw(BATCH, KV_HEADS, 7, WIDTH)
    # The first row has holes on both sides, the second a full past.
    past_order = jnp.array([[-1, 0, 1, -1, 2, -1, -1], [0, 1, 2, 3, 4, 5, 6]])
    order = jnp.array([[3, 4, -1, 5, 6], [7, 8, 9, 10, -1]])
    return q, *keys, order, Keys(*past, past_order)


def reference(q, k, v, order, past):
    """One query and one key at a time, in float64."""
    q, k, v, order = (np.asarray(x, np.float64) for x in (q, k, v, order))
    k = np.concatenate([np.asarray(past.k, np.float64), k], axis=2)
    v = np.concatenate([np.asarray(past.v, np.float64), v], axis=2)
    key_order = np.concatenate([np.asarray(past.order), order], axis=1)
    out = np.zeros_like(q)
    for b, t, h in np.ndindex(BATCH, LENGTH, HEADS):
        kv = h // (HEADS // KV_HEADS)
        seen = [s for s, o in enumerate(key_order[b]) if o >= 0 and o <= order[b, t]]
        if seen:
            scores = np.exp(k[b, kv, seen] @ q[b, t, h] / np.sqrt(WIDTH))
            out[b, t, h] = scores @ v[b, kv, seen] / scores.sum()
    return out


@pytest.mark.parametrize("block", [1024, 3])
def test_it_equals_the_definition(inputs, block):
    q, k, v, order, past = inputs
    out = jax.jit(attention, static_argnames="block")(
        q, k, v, order, order, past=past, block=block
    )
    real = np.asarray(order) >= 0
    # Float32 rounding of values of order one.
    np.testing.assert_allclose(
        np.asarray(out)[real], reference(*inputs)[real], atol=1e-5
    )
    assert np.isfinite(np.asarray(out)).all()


def test_blocks_do_not_change_the_gradient(inputs):
    q, k, v, order, past = inputs
    real = (order >= 0)[..., None, None]

    def loss(q, k, v, block):
        out = attention(q, k, v, order, order, past=past, block=block)
        return jnp.sum(jnp.where(real, out, 0) ** 2)

    grad = jax.jit(jax.grad(loss, argnums=(0, 1, 2)), static_argnums=3)
    whole, blocks = grad(q, k, v, 1024), grad(q, k, v, 2)
    for a, b in zip(whole, blocks, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)  # float32 rounding
