"""Sketches: linear, unbiased within the stated variance, and true to conflicts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aes_hdc.learner.gradients import make_sketch

SIZE = 101  # A prime, far fewer than the 1 400 entries.


def tree(seed):
    """A gradient of three leaves, one smaller than the sketch."""
    rng = np.random.default_rng(seed)
    shapes = {"a": (20, 30), "b": {"c": (7,), "d": (4, 10, 20)}}
    return jax.tree.map(
        lambda shape: rng.normal(size=shape).astype(np.float32),
        shapes,
        is_leaf=lambda x: isinstance(x, tuple),
    )


def dot(first, second):
    """Inner product of two trees, float64."""
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return sum(float(np.vdot(a.astype(np.float64), b)) for a, b in pairs)


def test_sketch_is_linear():
    sketch = make_sketch(SIZE)
    g, h = tree(0), tree(1)
    both = jax.tree.map(lambda a, b: 2 * a - 3 * b, g, h)
    np.testing.assert_allclose(
        sketch(both), 2 * sketch(g) - 3 * sketch(h), atol=1e-4
    )  # Float32 sums of about 14 terms.


def test_every_entry_counts_once_with_a_sign():
    sketch = make_sketch(SIZE)
    zeros = jax.tree.map(np.zeros_like, tree(0))
    for index in (0, 100, 101, 599):
        one = {**zeros, "a": np.eye(1, 600, index, np.float32).reshape(20, 30)}
        found = np.asarray(sketch(one))
        assert np.flatnonzero(found).tolist() == [index % SIZE]
        assert abs(found[index % SIZE]) == 1.0


def test_signs_are_fair_and_differ_between_leaves_and_seeds():
    zeros = {"a": np.zeros((1, SIZE), np.float32), "b": np.zeros(SIZE, np.float32)}
    ones = np.ones(SIZE, np.float32)
    rows = np.stack(
        [
            make_sketch(SIZE, seed)(zeros | {name: ones.reshape(zeros[name].shape)})
            for seed in range(4)
            for name in zeros
        ]
    )
    assert set(np.unique(rows)) == {-1.0, 1.0}
    # 808 fair signs: a mean beyond 0.14 has probability 1e-4; the same for each pair
    # of 101, at 0.45.
    assert abs(rows.mean()) < 0.14
    pairs = (rows @ rows.T / SIZE)[np.triu_indices(len(rows), 1)]
    assert np.abs(pairs).max() < 0.45


def test_inner_products_are_unbiased_within_the_stated_variance():
    seeds = 200
    g, h = tree(0), tree(1)
    h = jax.tree.map(lambda a, b: 0.5 * a + b, g, h)  # A true cosine near 0.45.
    exact = dot(g, h)
    bound = (dot(g, g) * dot(h, h) + exact**2) / SIZE
    found = []
    with jax.disable_jit():  # Every seed would compile a program of its own.
        for seed in range(seeds):
            sketch = make_sketch(SIZE, seed)
            first, second = (np.asarray(sketch(t), np.float64) for t in (g, h))
            found.append(first @ second)
    # Four standard errors of the mean; the variance of 200 draws errs by 10 %.
    assert abs(np.mean(found) - exact) < 4 * np.sqrt(bound / seeds)
    assert 0.5 * bound < np.var(found) < 1.4 * bound


def test_cosines_of_three_tasks_in_closed_form():
    """N6: losses |x - t|^2 / 2 at x = 0 have gradients -t."""
    size = 16381
    goals = {"right": (1.0, 0.0), "left": (-1.0, 0.0), "slant": (0.6, 0.8)}
    sketch = make_sketch(size)

    def loss(params, goal):
        return 0.5 * jnp.sum((params["x"] - goal) ** 2)

    params = {"x": jnp.zeros(2)}
    sketches = {
        name: np.asarray(sketch(jax.grad(loss)(params, jnp.array(goal))), np.float64)
        for name, goal in goals.items()
    }

    def cosine(a, b):
        a, b = sketches[a], sketches[b]
        return a @ b / np.sqrt((a @ a) * (b @ b))

    # Two entries share no bucket of 16 381, so nothing is lost but float32 rounding.
    assert cosine("right", "left") == pytest.approx(-1.0, abs=1e-6)
    assert cosine("right", "slant") == pytest.approx(0.6, abs=1e-6)
    assert cosine("left", "slant") == pytest.approx(-0.6, abs=1e-6)


def test_sketches_of_other_seeds_do_not_compare():
    g = tree(0)
    first, second = (np.asarray(make_sketch(SIZE, seed)(g)) for seed in (0, 1))
    cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    assert abs(cosine) < 0.4  # 1 under one seed; four times 1 / sqrt(101) otherwise.
