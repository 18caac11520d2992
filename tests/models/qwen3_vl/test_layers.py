import jax.numpy as jnp
import numpy as np
import pytest

from aes_hdc.models.qwen3_vl import layers, text, vision
from aes_hdc.models.qwen3_vl.config import VARIANTS


def test_layer_norm_adds_one_millionth_to_the_variance():
    # Deviations of 1e-3 have a variance equal to the epsilon: 1/sqrt(2) is left.
    x = jnp.array([[-1e-3, 1e-3]], jnp.float32)
    module = layers.LayerNorm()
    params = {"scale": jnp.array([1.0, 2.0]), "bias": jnp.array([0.0, 10.0])}
    out = module.apply({"params": params}, x)
    want = [[-(0.5**0.5), 2 * 0.5**0.5 + 10]]
    np.testing.assert_allclose(out, want, rtol=1e-5)  # an eps of 1e-5 gives 0.30


def test_rms_norm_adds_epsilon_to_the_mean_square():
    x = jnp.array([[1e-3, 1e-3]], jnp.float32)
    module = layers.RMSNorm(1e-6)
    out = module.apply({"params": {"scale": jnp.array([1.0, 3.0])}}, x)
    np.testing.assert_allclose(out, [[0.5**0.5, 3 * 0.5**0.5]], rtol=1e-5)


def test_rotation_turns_the_halves_of_a_vector():
    x = jnp.array([1.0, 2.0, 0.0, 0.0])
    quarter = jnp.array([np.pi / 2, 0.0])
    out = layers.rotate(x, jnp.cos(quarter), jnp.sin(quarter))
    np.testing.assert_allclose(out, [0.0, 2.0, 1.0, 0.0], atol=1e-6)


def test_rotary_axes_are_interleaved_up_to_their_sections():
    config = VARIANTS["2b"].text
    positions = jnp.array([1, 10, 100]).reshape(3, 1, 1)
    angles = np.asarray(text.rope_angles(config, positions))[0, 0]
    turns = angles / layers.inverse_frequencies(config.head_dim, config.rope_theta)
    height, width = range(1, 60, 3), range(2, 60, 3)
    want = [10 if j in height else 100 if j in width else 1 for j in range(64)]
    np.testing.assert_allclose(turns, want, rtol=1e-5)


def test_patches_come_in_blocks():
    grids = jnp.array([[4, 2], [2, 4], [0, 0]])
    y, x, valid = vision.patch_coordinates(grids, 8, merge=2)
    assert y[0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert x[0].tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    assert y[1].tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert x[1].tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    assert valid.sum(axis=1).tolist() == [8, 8, 0]


def test_learned_positions_are_blended_with_aligned_ends():
    weights = vision.interpolation(jnp.array([[0, 1, 2]]), jnp.array([[3]]), side=4)
    want = [[1, 0, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(weights[0], want, atol=1e-6)
    single = vision.interpolation(jnp.array([[0]]), jnp.array([[1]]), side=4)
    assert single[0, 0].tolist() == [1, 0, 0, 0]


def test_an_unknown_remat_policy_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'all' is not None or in .*'full'"):
        layers.stack(layers.LayerNorm, 1, remat="all", unroll=1)
