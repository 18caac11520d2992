"""Jitted learner programs: a micro-batch's gradient, and one optimizer application."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from aes_hdc.learner.losses import Batch, LossSettings, Sums, loss_sums
from aes_hdc.models.qwen3_vl.model import Qwen3VL
from aes_hdc.policy.distribution import TokenDistribution
from aes_hdc.policy.logprobs import Scores, Tokens, token_scores

Params = Any


class TrainState(NamedTuple):
    """What an update changes: parameters and the optimizer's state."""

    params: Any
    opt_state: Any


@functools.cache
def make_gradient(
    model: Qwen3VL, distribution: TokenDistribution, settings: LossSettings
) -> Callable[[Params, Batch], tuple[Params, Sums]]:
    """Returns jitted gradient(params, batch): d(summed loss)/d(params) and metric sums.

    Sums, not means: micro-batches add up and are divided once by the whole batch's
    number of tokens or rows, so that how a batch is cut changes nothing. Equal
    arguments give the same function, so stages share what was compiled.
    """

    def loss_fn(params: Params, batch: Batch) -> tuple[jax.Array, Sums]:
        scores = token_scores(
            model, params, batch.tokens, distribution, value_flow=batch.value_flow
        )
        return loss_sums(scores, batch, settings)

    @jax.jit
    def gradient(params: Params, batch: Batch) -> tuple[Params, Sums]:
        return jax.grad(loss_fn, has_aux=True)(params, batch)

    return gradient


@functools.cache
def make_score(
    model: Qwen3VL, distribution: TokenDistribution
) -> Callable[[Params, Tokens], Scores]:
    """Returns jitted score(params, tokens), for what is not differentiated."""

    def score(params: Params, tokens: Tokens) -> Scores:
        return token_scores(model, params, tokens, distribution)

    return jax.jit(score)


@functools.cache
def make_accumulate() -> Callable[[Params, Params], Params]:
    """Returns jitted accumulate(total, grads), which adds and donates the total."""

    def accumulate(total: Params, grads: Params) -> Params:
        return jax.tree.map(jnp.add, total, grads)

    return jax.jit(accumulate, donate_argnums=0)


def init_state(optimizer: optax.GradientTransformation, params: Params) -> TrainState:
    """Returns the state before the first update.

    What the optimizer keeps of a parameter lies where the parameter lies.
    """
    committed = jax.tree.map(lambda p: p.sharding if p.committed else None, params)
    _, places = optimizer_shapes(optimizer, params, committed)
    opt_state = jax.jit(optimizer.init, out_shardings=places)(params)
    return TrainState(params, opt_state)


def optimizer_shapes(
    optimizer: optax.GradientTransformation, params: Params, shardings: Any
) -> tuple[Any, Any]:
    """Returns the shapes of the optimizer's state, and where each leaf lies.

    Args:
        optimizer: the optax chain.
        params: arrays or shapes.
        shardings: a tree like `params`; None leaves it to the compiler.
    """
    shapes = jax.eval_shape(optimizer.init, params)
    places = optax.tree.map_params(
        optimizer,
        lambda _, place: place,
        shapes,
        shardings,
        transform_non_params=lambda _: None,
    )
    return shapes, places


@functools.cache
def make_apply(
    optimizer: optax.GradientTransformation, places: tuple[Any, ...] | None = None
) -> Callable[[TrainState, Params, Any], tuple[TrainState, jax.Array, jax.Array]]:
    """Returns jitted apply(state, grads, divisor); it donates the state.

    The update is `grads / divisor`. Where that is not finite the state comes back
    unchanged. Returned beside it are the gradient's norm before clipping and whether it
    was applied.

    Args:
        optimizer: the optax chain.
        places: on a mesh, the shardings of the state's leaves, which it keeps.
    """

    def apply(state: TrainState, grads: Params, divisor: jax.Array):
        grads = jax.tree.map(lambda leaf: leaf / divisor, grads)
        norm = optax.tree.norm(grads)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        new = TrainState(optax.apply_updates(state.params, updates), opt_state)
        is_finite = jnp.isfinite(norm)
        kept = jax.tree.map(lambda a, b: jnp.where(is_finite, a, b), new, state)
        if places is not None:
            kept = jax.lax.with_sharding_constraint(
                kept, jax.tree.unflatten(jax.tree.structure(kept), places)
            )
        return kept, norm, is_finite

    return jax.jit(apply, donate_argnums=0)
