"""Gradient conflict from noisy sketches: norms and cosines with their noise taken out.

The mean of noisy gradients is longer than the gradient, so plain cosines shrink toward
0 where the noise is strong. Products of independent blocks have no such bias.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

MAX_SPLITS = 100  # Half splits averaged; eight blocks have 35.


@dataclass(frozen=True, slots=True)
class GradientStatistics:
    """What blocks of per-environment gradients say about lengths and angles.

    Attributes:
        norm_sq: [E] float64, unbiased estimate of the squared gradient norm; may be
            negative.
        norm_se: [E] float64, its jackknife standard error.
        reliability: [E] float64, mean cosine between the gradients of two halves of the
            blocks; NaN where a half is zero.
        measured: [E] bool, whether the gradient stands out of its noise.
        cosine: [E, E] float64 in [-1, 1], free of attenuation; NaN where not measured.
        cosine_se: [E, E] float64, jackknife standard errors; NaN likewise.
    """

    norm_sq: np.ndarray
    norm_se: np.ndarray
    reliability: np.ndarray
    measured: np.ndarray
    cosine: np.ndarray
    cosine_se: np.ndarray


def measure(
    sketches: np.ndarray,
    num_groups: np.ndarray,
    num_degenerate: np.ndarray,
    *,
    min_ratio: float = 2.0,
    floor: float = 0.01,
) -> GradientStatistics:
    """Computes norms, cosines, standard errors and reliabilities in float64.

    With blocks s_m: U = (|sum s_m|^2 - sum |s_m|^2) / (M (M - 1)), and cos = <mean s_e,
    mean s_f> / sqrt(U_e U_f). Standard errors delete one block at a time, of both
    environments at once; for U they err upward, by up to half. An environment is
    unmeasured where every group was degenerate, U <= 0 or U < min_ratio errors.

    Args:
        sketches: [E, M, S] float, gradients of M independent blocks of whole groups,
            all of equal weight, M >= 3.
        num_groups: [E] int, groups behind the sketches.
        num_degenerate: [E] int, those of them in which all rewards were equal.
        min_ratio: how many standard errors U must reach.
        floor: share of |mean s|^2 below which U may not divide.

    Raises:
        ValueError: if there are too few blocks or a sketch is not finite.
    """
    sketches = np.asarray(sketches, np.float64)
    num_envs, num_blocks, _ = sketches.shape
    if num_blocks < 3:
        raise ValueError(
            f"{num_blocks} blocks an environment; a jackknife needs 3 or more"
        )
    if not np.isfinite(sketches).all():
        raise ValueError("gradient sketches must be finite")
    flat = sketches.reshape(num_envs * num_blocks, -1)
    gram = (flat @ flat.T).reshape(num_envs, num_blocks, num_envs, num_blocks)
    norm_sq, cosine = _norms_and_cosines(gram, floor)
    deleted = [
        _norms_and_cosines(np.delete(np.delete(gram, m, axis=1), m, axis=3), floor)
        for m in range(num_blocks)
    ]
    norm_se = _jackknife_se(np.array([norms for norms, _ in deleted]))
    cosine_se = _jackknife_se(np.array([cosines for _, cosines in deleted]))
    alive = np.asarray(num_groups) > np.asarray(num_degenerate)
    measured = alive & (norm_sq > 0) & (norm_sq >= min_ratio * norm_se)
    known = measured[:, None] & measured[None, :]
    np.fill_diagonal(cosine, 1.0)
    np.fill_diagonal(cosine_se, 0.0)
    return GradientStatistics(
        norm_sq=norm_sq,
        norm_se=norm_se,
        reliability=_reliability(gram),
        measured=measured,
        cosine=np.where(known, np.clip(cosine, -1, 1), np.nan),
        cosine_se=np.where(known, cosine_se, np.nan),
    )


def _norms_and_cosines(gram: np.ndarray, floor: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns U [E] and the cosines [E, E] from products of blocks, [E, M, E, M]."""
    num_blocks = gram.shape[1]
    products = gram.sum(axis=(1, 3))  # <sum s_e, sum s_f>
    own = np.einsum("emem->e", gram)
    square = np.diagonal(products)
    norm_sq = (square - own) / (num_blocks * (num_blocks - 1))
    length_sq = np.maximum(norm_sq, floor * square / num_blocks**2)
    scale = np.sqrt(length_sq[:, None] * length_sq[None, :]) * num_blocks**2
    cosine = np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)
    return norm_sq, cosine


def _jackknife_se(deleted: np.ndarray) -> np.ndarray:
    """Returns the standard error from estimates with one block deleted, [M, ...]."""
    num_blocks = len(deleted)
    return np.sqrt((num_blocks - 1) * deleted.var(axis=0))


def _reliability(gram: np.ndarray) -> np.ndarray:
    """Returns the mean cosine between halves of the blocks, [E]."""
    num_envs, num_blocks = gram.shape[:2]
    blocks = np.stack([gram[e, :, e, :] for e in range(num_envs)])
    half = num_blocks // 2
    # Half of the splits repeat the others with the sides swapped where M is even.
    splits = [
        s for s in combinations(range(num_blocks), half) if s[0] == 0 or num_blocks % 2
    ]
    if len(splits) > MAX_SPLITS:
        keep = np.random.default_rng(0).choice(len(splits), MAX_SPLITS, replace=False)
        splits = [splits[i] for i in sorted(keep)]
    total = np.zeros(num_envs)
    for split in splits:
        left = np.isin(np.arange(num_blocks), split).astype(np.float64)
        right = 1 - left
        across = np.einsum("emn,m,n->e", blocks, left, right)
        within = np.einsum("emn,m,n->e", blocks, left, left)
        within *= np.einsum("emn,m,n->e", blocks, right, right)
        size = np.sqrt(np.maximum(within, 0))
        total += np.divide(across, size, out=np.full(num_envs, np.nan), where=size > 0)
    return total / len(splits)
