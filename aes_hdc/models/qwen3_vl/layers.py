"""Building blocks shared by the vision tower and the text decoder."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from aes_hdc.models.sharding import constrain

Dtype = Any

# Standard deviation 1/sqrt(inputs): 0.02, the public value, at a width of 2500, and
# still right for small models.
kernel_init = nn.initializers.variance_scaling(1.0, "fan_in", "normal")
table_init = nn.initializers.variance_scaling(1.0, "fan_out", "normal")

# What the backward pass finds stored, the inputs of each layer aside; the rest is
# computed again.
REMAT_POLICIES = {
    "full": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


class Linear(nn.Module):
    """Applies x W + b to the last axis; every projection of the model is one of these.

    Leading axes are merged before the product, which XLA's CPU backend runs twice as
    fast.

    Attributes:
        features: the output width.
        axis: logical axis of the output.
        use_bias: whether b exists.
        dtype: type of the product.
        param_dtype: type of the parameters.
    """

    features: int
    axis: str
    use_bias: bool = False
    dtype: Dtype = jnp.float32
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = (x.shape[-1], self.features)
        kernel = self.param("kernel", kernel_init, shape, self.param_dtype)
        flat = x.reshape(-1, x.shape[-1]).astype(self.dtype)
        out = flat @ kernel.astype(self.dtype)
        if self.use_bias:
            zeros = nn.initializers.zeros_init()
            bias = self.param("bias", zeros, (self.features,), self.param_dtype)
            out += bias.astype(self.dtype)
        out = out.reshape(*x.shape[:-1], self.features)
        return constrain(out, "batch", *[None] * (x.ndim - 2), self.axis)


class RMSNorm(nn.Module):
    """Divides by the root mean square of the last axis, in float32, then scales."""

    epsilon: float
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        ones = nn.initializers.ones_init()
        scale = self.param("scale", ones, x.shape[-1:], self.param_dtype)
        y = x.astype(jnp.float32)
        y *= jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.epsilon)
        return y.astype(x.dtype) * scale.astype(x.dtype)


class LayerNorm(nn.Module):
    """Centres the last axis and divides by its deviation, in float32; then scales."""

    epsilon: float = 1e-6
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        ones, zeros = nn.initializers.ones_init(), nn.initializers.zeros_init()
        scale = self.param("scale", ones, x.shape[-1:], self.param_dtype)
        bias = self.param("bias", zeros, x.shape[-1:], self.param_dtype)
        y = x.astype(jnp.float32)
        y -= jnp.mean(y, axis=-1, keepdims=True)
        y *= jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.epsilon)
        return (y * scale + bias).astype(x.dtype)


def stack(
    layer: type[nn.Module], length: int, *, remat: str | None, unroll: int | bool
) -> Any:
    """Turns a layer into `length` of them in a scan, parameters stacked on axis 0.

    The layer is called as layer(carry, inputs, shared): `inputs` is a tree with a
    leading layer axis, `shared` is the same for all layers.

    Args:
        layer: a module class.
        length: number of layers, at least 1.
        remat: a key of `REMAT_POLICIES`, or None to store everything.
        unroll: layers per loop step; True writes all of them out, without a loop.
    """
    steps = length if unroll is True else min(int(unroll), length)
    if remat is not None:
        if remat not in REMAT_POLICIES:
            raise ValueError(f"remat {remat!r} is not None or in {[*REMAT_POLICIES]}")
        # Inside a loop nothing can merge the two computations; written out, it could.
        layer = nn.remat(
            layer, policy=REMAT_POLICIES[remat], prevent_cse=steps == length
        )
    return nn.scan(
        layer,
        variable_axes={"params": 0, "intermediates": 0},
        split_rngs={"params": True},
        in_axes=(0, nn.broadcast),
        length=length,
        unroll=steps,
    )


def inverse_frequencies(width: int, theta: float) -> np.ndarray:
    """Returns theta^(-2j/width) for j < width/2, [width/2] float32."""
    exponents = np.arange(0, width, 2, dtype=np.float64) / width
    return (theta**-exponents).astype(np.float32)


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Turns the pairs (x[i], x[i + d/2]) of the last axis by an angle each.

    Args:
        x: [..., d].
        cos: [..., d/2], broadcast against x.
        sin: [..., d/2].
    """
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate(
        [first * cos - second * sin, second * cos + first * sin], axis=-1
    )
