from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aes_hdc.models.qwen3_vl.model import Qwen3VL, encode_shown, init_params
from aes_hdc.models.qwen3_vl.text import init_cache
from aes_hdc.models.qwen3_vl.weights import load_folder
from experiments.parity import Case

# The programs run once on little data, so optimizing them takes longer than it saves.
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@pytest.fixture(scope="module", autouse=True)
def _full_precision():
    with jax.default_matmul_precision("highest"):
        yield


@pytest.fixture(scope="module")
def case(golden, checkpoint_a):
    case = Case(golden / "case_a_two_images.npz", checkpoint_a[0])
    return case.inputs(case.shape)


def loss(model, params, x):
    variables = {"params": params}
    vision = model.apply(variables, x.patches, x.grids, method="encode_images")
    text = (x.ids, x.positions, x.order, vision, x.vision_index)
    return jnp.sum(model.apply(variables, *text)[0] ** 2)


@pytest.fixture(scope="module")
def gradient(checkpoint_a, case):
    config, params = checkpoint_a
    return jit(jax.grad(partial(loss, Qwen3VL(config))))(params, case)


@pytest.mark.parametrize(
    "options",
    [{"remat": "full"}, {"remat": "dots", "unroll": True}],
    ids=str,
)
def test_loops_and_recomputation_change_no_number(
    checkpoint_a, case, gradient, options
):
    config, params = checkpoint_a
    model = Qwen3VL(config, **options)
    other = jit(jax.grad(partial(loss, model)))(params, case)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(other), strict=True):
        # Float32 rounding; the largest entries are of order 100.
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)


@pytest.fixture(scope="module")
def vision(checkpoint_a, case):
    config, params = checkpoint_a
    model = Qwen3VL(config)
    encode = partial(model.apply, method="encode_images")
    return jit(encode)({"params": params}, case.patches, case.grids)


def test_chunks_through_the_cache_equal_one_pass(checkpoint_a, case, vision):
    """Also differentiably, with a hole between the chunks and leftovers behind them."""
    config, params = checkpoint_a
    model, cut, hole, total = Qwen3VL(config), 20, 3, case.ids.shape[1]

    def run(params, part, *cache):
        return model.apply(
            {"params": params},
            case.ids[:, part],
            case.positions[:, :, part],
            case.order[:, part],
            vision,
            case.vision_index[:, part],
            *cache,
        )

    def whole(params):
        hidden = run(params, slice(None))[0][:, cut:]
        return jnp.sum(hidden**2), hidden

    def chunked(params):
        cache = init_cache(config, 1, total + hole, jnp.float32)
        _, cache = run(params, slice(0, cut), cache, 0)
        # What a slot held before is forgotten when a chunk is written there.
        after = cut + hole
        cache = cache._replace(
            k=cache.k.at[:, :, :, after:].set(1.0),
            order=cache.order.at[:, after:].set(0),
        )
        hidden, _ = run(params, slice(cut, None), cache, after)
        return jnp.sum(hidden**2), hidden

    want, got = (
        jit(jax.value_and_grad(f, has_aux=True))(params) for f in (whole, chunked)
    )
    np.testing.assert_allclose(want[0][1], got[0][1], atol=1e-4)  # values up to 5
    for a, b in zip(jax.tree.leaves(want[1]), jax.tree.leaves(got[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)  # values up to 100


def test_text_alone_needs_no_pictures(checkpoint_a, case, vision):
    config, params = checkpoint_a
    run = jit(partial(Qwen3VL(config).apply, {"params": params}))
    text = (case.ids, case.positions, case.order)
    nothing = np.full_like(case.vision_index, -1)
    alone, _ = run(*text)
    beside, _ = run(*text, vision, nothing)
    np.testing.assert_allclose(alone, beside, atol=1e-5)  # float32 rounding
    with pytest.raises(ValueError, match="given together"):
        run(*text, None, nothing)


def test_vision_tower_is_read_only_where_a_picture_is_shown(checkpoint_a, case, vision):
    config, params = checkpoint_a
    model = Qwen3VL(config)

    @jit
    def run(params, grids):
        def total(params):
            features = encode_shown(model, {"params": params}, case.patches, grids)
            return sum(leaf.sum() for leaf in jax.tree.leaves(features)), features

        (_, features), gradient = jax.value_and_grad(total, has_aux=True)(params)
        return features, gradient["vision"]

    features, gradient = run(params, case.grids)
    for got, want in zip(
        jax.tree.leaves(features), jax.tree.leaves(vision), strict=True
    ):
        np.testing.assert_allclose(got, want, atol=1e-4)  # values up to 5
    assert any(np.asarray(leaf).any() for leaf in jax.tree.leaves(gradient))
    # Parameters that are read would show: nothing that meets a NaN is zero.
    unread = params | {"vision": jax.tree.map(lambda x: x * np.nan, params["vision"])}
    for leaf in jax.tree.leaves(run(unread, np.zeros_like(case.grids))):
        assert not np.asarray(leaf).any()


def test_bfloat16_keeps_float32_logits_close_to_the_exact_ones(golden):
    """Rounding to 8 bits is 0.05 on average in the reference, with logits up to 12."""
    config, params = load_folder(golden / "ckpt_b")
    case = Case(golden / "case_b_one_image.npz", config)
    x = case.inputs(case.shape)
    model = Qwen3VL(config, dtype=jnp.bfloat16)

    @jit
    def logits(params):
        variables = {"params": params}
        vision = model.apply(variables, x.patches, x.grids, method="encode_images")
        text = (x.ids, x.positions, x.order, vision, x.vision_index)
        hidden = model.apply(variables, *text)[0]
        return model.apply(variables, hidden, method="logits")

    out = logits(params)
    assert out.dtype == jnp.float32
    assert np.abs(np.asarray(out) - case.golden["logits"]).mean() < 0.1


def test_fresh_parameters_have_the_shapes_of_loaded_ones(checkpoint_a):
    config, params = checkpoint_a
    fresh = jit(partial(init_params, Qwen3VL(config)))(
        jax.random.key(0, impl="rbg")  # Compiles faster than the default.
    )
    assert jax.tree.map(jnp.shape, fresh) == jax.tree.map(jnp.shape, params)
    # Outputs have the scale of inputs: a kernel's deviation is 1/sqrt(inputs) = 1/8.
    deviation = float(fresh["text"]["layers"]["q"]["kernel"].std())
    assert deviation == pytest.approx(1 / 8, rel=0.05)
