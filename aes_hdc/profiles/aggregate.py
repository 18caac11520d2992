"""From annotated episodes to ability profiles: frequencies, stability, core or soft."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from aes_hdc.profiles.annotator import Annotated
from aes_hdc.profiles.association import Table, kappa


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where the lines of aggregation are drawn; the defaults are the method's.

    Attributes:
        min_trajectories: an ability found in fewer is rare and dropped.
        min_instances: an ability found on fewer is rare and dropped.
        min_kappa: agreement of two annotation passes under which one is dropped.
        min_prevalence: share of one policy's trajectories a core ability needs.
        min_core_share: share of bootstraps in which a core ability must be core.
        min_success_share: share of successes that makes an ability critical.
        min_successes: successes needed before that share counts.
        min_lift: within-policy success lift that makes an ability critical too.
        min_strong: lowest success of the stronger policy for sound evidence.
        max_strong: highest success of the stronger policy for sound evidence.
        min_weak: lowest success of the weaker policy for sound evidence.
        num_bootstraps: resamples of the instances.
        seed: of the resampling.
    """

    min_trajectories: int = 4
    min_instances: int = 3
    min_kappa: float = 0.4
    min_prevalence: float = 0.5
    min_core_share: float = 0.8
    min_success_share: float = 0.9
    min_successes: int = 5
    min_lift: float = 0.2
    min_strong: float = 0.6
    max_strong: float = 0.9
    min_weak: float = 0.1
    num_bootstraps: int = 500
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Ability:
    """How one ability shows in one environment.

    Attributes:
        count: segments in all trajectories.
        prevalence: share of trajectories that have it, in [0, 1].
        prevalence_by_policy: the same within each policy.
        lift: success with it less success without it, within policies; None where no
            policy has both kinds of trajectory.
        lift_low: lower end of its 95 % interval over instances; None where undefined.
        status: "core" or "soft".
    """

    count: int
    prevalence: float
    prevalence_by_policy: Mapping[str, float]
    lift: float | None
    lift_low: float | None
    status: str


@dataclass(frozen=True, slots=True)
class Profile:
    """The abilities of one environment.

    Attributes:
        version: the environment's version the trajectories come from.
        trajectories: how many there are.
        instances: on how many instances.
        evidence: "ok", or "confounded" where policy and success cannot be told apart.
        success: success rate of each policy, in [0, 1].
        abilities: those kept, by name.
        dropped: why each other one was not.
        transitions: (a, b, count) of neighbouring segments of kept abilities, a != b.
    """

    version: int
    trajectories: int
    instances: int
    evidence: str
    success: Mapping[str, float]
    abilities: Mapping[str, Ability]
    dropped: Mapping[str, str]
    transitions: tuple[tuple[str, str, int], ...]


def build_profiles(
    first: Sequence[Annotated],
    second: Sequence[Annotated] | None,
    versions: Mapping[str, int],
    thresholds: Thresholds,
) -> dict[str, Profile]:
    """Aggregates annotated episodes, one profile an environment, sorted by id.

    Args:
        first: the annotation that counts.
        second: another pass over the same episodes in the same order, for stability;
            None leaves that check out.
        versions: the version of every environment.
        thresholds: where the lines are drawn.

    Raises:
        ValueError: if the passes are not of the same episodes.
    """
    if second is not None and [_key(a) for a in first] != [_key(b) for b in second]:
        raise ValueError("the two annotation passes are not of the same episodes")
    profiles = {}
    for env_id in sorted({annotated.env_id for annotated in first}):
        rows = [i for i, annotated in enumerate(first) if annotated.env_id == env_id]
        mine = [first[i] for i in rows]
        other = mine if second is None else [second[i] for i in rows]
        profiles[env_id] = _profile(mine, other, versions[env_id], thresholds)
    return profiles


def _key(annotated: Annotated) -> tuple[str, tuple[int, int], str, bool]:
    """Returns what two passes over one episode have in common."""
    return annotated.env_id, annotated.instance, annotated.policy, annotated.success


def _profile(
    first: Sequence[Annotated],
    second: Sequence[Annotated],
    version: int,
    lines: Thresholds,
) -> Profile:
    """Aggregates one environment."""
    found = sorted({name for one in (*first, *second) for name in one.abilities})
    dropped, kept = {}, []
    for name in found:
        reason = _why_dropped(name, first, second, lines)
        if reason is None:
            kept.append(name)
        else:
            dropped[name] = reason
    policies = sorted({one.policy for one in first})
    instances = sorted({one.instance for one in first})
    table = Table(
        presence=np.array(
            [[name in one.abilities for name in kept] for one in first], bool
        ),
        success=np.array([one.success for one in first], float),
        policy=np.array([policies.index(one.policy) for one in first]),
        num_policies=len(policies),
    )
    instance = np.array([instances.index(one.instance) for one in first])
    rates = [table.success[table.policy == p].mean() for p in range(len(policies))]
    return Profile(
        version=version,
        trajectories=len(first),
        instances=len(instances),
        evidence=_evidence(rates, lines),
        success=dict(zip(policies, map(float, rates), strict=True)),
        abilities=_abilities(kept, first, table, instance, policies, lines),
        dropped=dropped,
        transitions=_transitions(first, set(kept)),
    )


def _why_dropped(
    name: str,
    first: Sequence[Annotated],
    second: Sequence[Annotated],
    lines: Thresholds,
) -> str | None:
    """Returns why an ability is dropped, or None where it is kept."""
    has = np.array([name in one.abilities for one in first])
    instances = len({one.instance for one in first if name in one.abilities})
    if has.sum() < lines.min_trajectories or instances < lines.min_instances:
        return f"rare: {has.sum()} of {len(first)} trajectories, {instances} instances"
    agreement = kappa(has, np.array([name in one.abilities for one in second]))
    if agreement < lines.min_kappa:
        return f"unstable: kappa {agreement:.2f} between passes"
    return None


def _evidence(rates: Sequence[float], lines: Thresholds) -> str:
    """Returns whether success varies within the policies as the method asks."""
    is_sound = len(rates) > 1 and lines.min_strong <= max(rates) <= lines.max_strong
    return "ok" if is_sound and min(rates) >= lines.min_weak else "confounded"


def _is_core(
    table: Table, weights: np.ndarray, lift_low: np.ndarray, lines: Thresholds
) -> np.ndarray:
    """Whether each ability is prevalent and critical in a weighted sample, [A] bool."""
    prevalent = (table.prevalence(weights) >= lines.min_prevalence).any(axis=0)
    critical = table.success_share(weights) >= lines.min_success_share
    critical &= (weights * table.success).sum() >= lines.min_successes
    lifts = (table.lift(weights) >= lines.min_lift) & (lift_low > 0)
    return prevalent & (critical | lifts)


def _abilities(
    kept: Sequence[str],
    first: Sequence[Annotated],
    table: Table,
    instance: np.ndarray,
    policies: Sequence[str],
    lines: Thresholds,
) -> dict[str, Ability]:
    """Returns the statistics and the status of every kept ability."""
    if not kept:
        return {}
    rng = np.random.default_rng(lines.seed)
    num_instances = int(instance.max()) + 1
    draws = rng.integers(num_instances, size=(lines.num_bootstraps, num_instances))
    samples = [np.bincount(draw, minlength=num_instances)[instance] for draw in draws]
    lifts = np.array([table.lift(weights) for weights in samples])
    lift_low = np.full(len(kept), np.nan)
    usual = np.isfinite(lifts).mean(axis=0) >= 0.5  # else the interval rests on too few
    if usual.any():
        lift_low[usual] = np.nanquantile(lifts[:, usual], 0.025, axis=0)
    share = np.mean([_is_core(table, w, lift_low, lines) for w in samples], axis=0)
    whole = np.ones(len(first))
    core = _is_core(table, whole, lift_low, lines) & (share >= lines.min_core_share)
    lift, by_policy = table.lift(whole), table.prevalence(whole)
    counts = Counter(name for one in first for name in one.abilities)
    return {
        name: Ability(
            count=counts[name],
            prevalence=float(table.presence[:, a].mean()),
            prevalence_by_policy=dict(
                zip(policies, by_policy[:, a].tolist(), strict=True)
            ),
            lift=None if np.isnan(lift[a]) else float(lift[a]),
            lift_low=None if np.isnan(lift_low[a]) else float(lift_low[a]),
            status="core" if core[a] else "soft",
        )
        for a, name in enumerate(kept)
    }


def _transitions(
    annotated: Sequence[Annotated], kept: set[str]
) -> tuple[tuple[str, str, int], ...]:
    """Counts neighbours in the sequences; a repeated ability is one longer segment."""
    counts = Counter(
        (a, b)
        for one in annotated
        for a, b in pairwise(one.abilities)
        if a != b and {a, b} <= kept
    )
    return tuple((a, b, counts[a, b]) for a, b in sorted(counts))
