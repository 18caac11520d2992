"""The optimizer as one optax chain made from config values."""

import functools
from typing import Any

import jax
import optax


@functools.cache
def make_optimizer(
    *,
    learning_rate: float,
    warmup_steps: int = 0,
    decay_steps: int = 0,
    b1: float = 0.9,
    b2: float = 0.95,
    weight_decay: float = 0.0,
    max_grad_norm: float = 1.0,
    value_rate: float = 1.0,
) -> optax.GradientTransformation:
    """Returns AdamW behind a global-norm clip, with linear warm-up and cosine decay.

    Equal arguments give the same chain, so stages share what was compiled for it.

    Args:
        learning_rate: the peak, > 0.
        warmup_steps: updates of linear rise from 0.
        decay_steps: updates after which a cosine has brought the rate to a tenth of its
            peak; 0 keeps it constant.
        b1: decay of the first moment.
        b2: decay of the second moment.
        weight_decay: decoupled; gains and biases do not decay.
        max_grad_norm: the gradient is scaled down to this global norm.
        value_rate: times the learning rate is that of a value head, which starts from
            nothing.
    """
    rate: optax.ScalarOrSchedule = learning_rate
    if decay_steps:
        rate = optax.warmup_cosine_decay_schedule(
            0.0, learning_rate, warmup_steps, decay_steps, 0.1 * learning_rate
        )
    elif warmup_steps:
        rate = optax.linear_schedule(0.0, learning_rate, warmup_steps)
    chain = [
        optax.clip_by_global_norm(max_grad_norm),
        optax.adamw(rate, b1=b1, b2=b2, weight_decay=weight_decay, mask=_is_matrix),
    ]
    if value_rate != 1:
        chain.append(optax.masked(optax.scale(value_rate), _is_value))
    return optax.chain(*chain)


def _is_matrix(params: Any) -> Any:
    """Marks what decays: all but gains and biases, which may be stacked over layers."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: getattr(path[-1], "key", "") not in ("scale", "bias"), params
    )


def _is_value(params: Any) -> Any:
    """Marks the value head."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: getattr(path[0], "key", "") == "value", params
    )
