"""Ability-aware Environment Selection: greedy by coverage, redundancy and conflict."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

TIE_DECIMALS = 12  # Gains this close are equal; the id decides.


@dataclass(frozen=True, slots=True)
class Pick:
    """One chosen environment with the terms of its gain at the time.

    Attributes:
        env_id: the environment.
        gain: the weighted sum of the three terms; may be negative.
        new_coverage: ability weight it added, >= 0.
        redundancy: its highest profile similarity to an earlier pick, in [0, 1].
        conflict: its strongest gradient opposition to an earlier pick, in [0, 1].
        covered: core abilities covered so far, with this pick.
    """

    env_id: str
    gain: float
    new_coverage: float
    redundancy: float
    conflict: float
    covered: int


def ability_weights(
    core: np.ndarray,
    soft: np.ndarray,
    *,
    core_weight: float = 1.0,
    soft_weight: float = 0.3,
) -> np.ndarray:
    """Returns c_e(a): the core weight, the soft weight or 0.

    Args:
        core: [E, A] bool, whether a is core in e.
        soft: [E, A] bool, whether a is soft in e; disjoint from `core`.
        core_weight: weight of a core ability, at least `soft_weight`.
        soft_weight: weight of a soft ability, >= 0.

    Returns:
        [E, A] float64.
    """
    if not 0 <= soft_weight <= core_weight:
        raise ValueError(
            f"soft_weight {soft_weight!r} must lie in 0..core_weight {core_weight!r}"
        )
    return np.where(core, core_weight, np.where(soft, soft_weight, 0.0))


def similarity(
    prevalence: np.ndarray,
    transitions: np.ndarray,
    *,
    ability_share: float = 0.5,
    use_idf: bool = True,
) -> np.ndarray:
    """Returns how alike the profiles are.

    sim = a cos(prevalence) + (1 - a) cos(transitions). Prevalences are weighted by
    idf(a) = 1 + ln((1 + E) / (1 + df_a)), which stays positive where every environment
    has the ability. Without edges on both sides the ability cosine stands alone;
    without edges on one side the transition cosine is 0.

    Args:
        prevalence: [E, A] float >= 0, frequency of each ability.
        transitions: [E, A, A] float >= 0, frequency of each edge.
        ability_share: a, in [0, 1].
        use_idf: whether rare abilities weigh more.

    Returns:
        [E, E] float64 in [0, 1], symmetric; the diagonal is 1 for profiles that are not
        empty.
    """
    prevalence = np.asarray(prevalence, np.float64)
    edges = np.asarray(transitions, np.float64).reshape(len(prevalence), -1)
    if use_idf:
        carriers = np.count_nonzero(prevalence, axis=0)
        prevalence = prevalence * (1 + np.log((1 + len(prevalence)) / (1 + carriers)))
    by_ability, by_edge = _cosines(prevalence), _cosines(edges)
    has_edges = np.any(edges, axis=1)[:, None]
    mixed = ability_share * by_ability + (1 - ability_share) * by_edge
    neither = ~has_edges & ~has_edges.T
    return np.clip(np.where(neither, by_ability, mixed), 0, 1)


def _cosines(rows: np.ndarray) -> np.ndarray:
    """Returns the cosines of all pairs of rows; 0 with an empty row."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    return unit @ unit.T


def opposition(
    cosine: np.ndarray, cosine_se: np.ndarray, *, conflict_z: float = 2.0
) -> np.ndarray:
    """Returns the pairwise conflict max(0, -(cos + z se)).

    The maximum over many noisy pairs is large without any conflict, hence the margin of
    z standard errors; z = 0 is the literal definition. An unmeasured pair takes the
    median of the measured ones; with none measured nothing can be told apart, and all
    are 0.

    Args:
        cosine: [E, E] float in [-1, 1], gradient cosines; NaN where not measured.
        cosine_se: [E, E] float >= 0, their standard errors; read where measured.
        conflict_z: standard errors of margin, >= 0.

    Returns:
        [E, E] float64 in [0, 1].
    """
    bound = np.asarray(cosine, np.float64)
    if conflict_z:
        bound = bound + conflict_z * np.asarray(cosine_se, np.float64)
    conflict = np.clip(-bound, 0, 1)
    pairs = conflict[~np.eye(len(conflict), dtype=bool)]
    known = pairs[~np.isnan(pairs)]
    return np.where(
        np.isnan(conflict), np.median(known) if known.size else 0.0, conflict
    )


def select(
    env_ids: Sequence[str],
    weights: np.ndarray,
    core: np.ndarray,
    similarity: np.ndarray,
    conflict: np.ndarray,
    *,
    coverage_weight: float = 1.0,
    redundancy_weight: float = 0.3,
    conflict_weight: float = 0.3,
    soft_covers: bool = False,
    require_new_core: bool = False,
    num_picks: int | None = None,
) -> list[Pick]:
    """Picks environments by highest gain until every core ability is covered.

    Gain(e | S) = l1 NewCoverage - l2 Redundancy - l3 Conflict, where NewCoverage is
    sum_a max(0, c_e(a) - max_S c(a)) and the other two are maxima over S. Gains are
    compared at 12 decimals; ties go to the lower id. A gain never rises as S grows.

    Args:
        env_ids: [E] names of the candidates, distinct.
        weights: [E, A] float >= 0, c_e(a); see `ability_weights`.
        core: [E, A] bool, whether a is core in e.
        similarity: [E, E] float in [0, 1].
        conflict: [E, E] float in [0, 1]; see `opposition`.
        coverage_weight: l1, price of one unit of newly covered weight.
        redundancy_weight: l2, price of similarity 1 to a pick.
        conflict_weight: l3, price of full opposition to a pick.
        soft_covers: whether a core ability counts as covered by a soft carrier too.
        require_new_core: whether only environments that cover another core ability are
            candidates.
        num_picks: takes this many instead of stopping at full coverage.

    Returns:
        Picks in order, each with its gain and its three terms.
    """
    env_ids = list(env_ids)
    if len(set(env_ids)) != len(env_ids):
        raise ValueError(f"environment ids repeat: {sorted(env_ids)}")
    if (np.asarray(weights) < 0).any():
        raise ValueError("ability weights must not be negative")
    core = np.asarray(core, bool)
    needed = core.any(axis=0)
    covers = ((np.asarray(weights) > 0) if soft_covers else core) & needed
    best, covered = np.zeros(core.shape[1]), np.zeros(core.shape[1], bool)
    redundancy, opposed = np.zeros(len(env_ids)), np.zeros(len(env_ids))
    left, picks = set(range(len(env_ids))), list[Pick]()
    while left:
        is_done = len(picks) == num_picks
        if num_picks is None:
            is_done = covered.sum() == needed.sum()
        if is_done:
            break
        candidates = left
        if require_new_core:
            candidates = {e for e in left if (covers[e] & ~covered).any()}
            if not candidates:
                break
        coverage = np.maximum(0, weights - best).sum(axis=1)
        gain = (
            coverage_weight * coverage
            - redundancy_weight * redundancy
            - conflict_weight * opposed
        )
        chosen = min(
            candidates,
            key=lambda e: (-round(float(gain[e]), TIE_DECIMALS), env_ids[e]),
        )
        best, covered = np.maximum(best, weights[chosen]), covered | covers[chosen]
        picks.append(
            Pick(
                env_ids[chosen],
                float(gain[chosen]),
                float(coverage[chosen]),
                float(redundancy[chosen]),
                float(opposed[chosen]),
                int(covered.sum()),
            )
        )
        redundancy = np.maximum(redundancy, similarity[:, chosen])
        opposed = np.maximum(opposed, conflict[:, chosen])
        left.remove(chosen)
    return picks
