"""Success rates with intervals, paired differences and relative gains, in float64."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

MIN_BASE = (
    0.02  # Lower bound of the base mean under which a relative gain says nothing.
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with the ends of its interval.

    Attributes:
        mean: the point estimate.
        low: lower end.
        high: upper end.
    """

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two policies on the same instances.

    Attributes:
        before: success of the base, in [0, 1].
        after: success of the other, in [0, 1].
        difference: after - before, in [-1, 1]; a hundred times this is points.
        relative_gain: after / before - 1, a ratio of means; None where the lower bound
            of `before` is under `MIN_BASE`.
    """

    before: Estimate
    after: Estimate
    difference: Estimate
    relative_gain: float | None

    def to_json(self) -> dict[str, float | None]:
        """Returns the headline entry of evaluation.json."""
        out: dict[str, float | None] = {}
        for name in ("before", "after", "difference"):
            estimate: Estimate = getattr(self, name)
            out |= {
                name: estimate.mean,
                f"{name}_low": estimate.low,
                f"{name}_high": estimate.high,
            }
        return out | {"relative_gain": self.relative_gain}


def success_rate(outcomes: Sequence[bool]) -> float:
    """Returns the share of solved episodes; NaN without any."""
    return (
        float(np.mean(np.asarray(outcomes, np.float64))) if len(outcomes) else math.nan
    )


def wilson_interval(
    successes: int, episodes: int, confidence: float = 0.95
) -> Estimate:
    """Returns a success rate with Wilson's interval, for independent episodes.

    Args:
        successes: solved episodes.
        episodes: all episodes, at least 1.
        confidence: coverage of the interval, in (0, 1).
    """
    if not (episodes > 0 and 0 <= successes <= episodes):
        raise ValueError(f"{successes} successes in {episodes} episodes is no rate")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate, shrink = successes / episodes, 1 + z**2 / episodes
    centre = (rate + z**2 / (2 * episodes)) / shrink
    half = (
        z / shrink * math.sqrt(rate * (1 - rate) / episodes + (z / (2 * episodes)) ** 2)
    )
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == episodes else centre + half
    return Estimate(rate, low, high)


def pass_at_k(successes: int, episodes: int, k: int) -> float:
    """Returns the chance that one of k tries solves, 1 - C(n - c, k) / C(n, k).

    Args:
        successes: c, solved episodes of one instance.
        episodes: n, all of its episodes.
        k: tries, 1..n.
    """
    if not (0 <= successes <= episodes and 1 <= k <= episodes):
        raise ValueError(f"pass@{k} of {successes} in {episodes} episodes is undefined")
    return 1 - math.comb(episodes - successes, k) / math.comb(episodes, k)


def compare(
    before: Mapping[str, np.ndarray],
    after: Mapping[str, np.ndarray],
    *,
    num_samples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Compares two policies over a panel by a paired bootstrap over instances.

    The panel mean is the unweighted mean over environments of the mean over instances.
    Instances are drawn with replacement within each environment, with all their
    episodes and for both policies at once; intervals are percentiles. The relative gain
    is the ratio of panel means, never a mean of ratios.

    Args:
        before: by environment, [I] float in [0, 1], mean success on each instance.
        after: the same instances in the same order under the other policy.
        num_samples: bootstrap samples.
        confidence: coverage of the intervals, in (0, 1).
        seed: of the resampling.

    Raises:
        ValueError: if the two do not hold the same environments and instances.
    """
    if not before or set(before) != set(after):
        raise ValueError(
            f"panels differ or are empty: {sorted(before)} against {sorted(after)}"
        )
    rng = np.random.Generator(np.random.Philox(seed))
    means, samples = np.zeros(2), np.zeros((2, num_samples))
    for env_id in sorted(before):
        pair = np.array([before[env_id], after[env_id]], np.float64)
        if pair.ndim != 2 or not pair.size or not ((pair >= 0) & (pair <= 1)).all():
            raise ValueError(f"{env_id}: success must be [instances] in [0, 1]")
        drawn = rng.integers(pair.shape[1], size=(num_samples, pair.shape[1]))
        means += pair.mean(axis=1) / len(before)
        samples += pair[:, drawn].mean(axis=2) / len(before)
    low, high = _percentiles(samples, confidence)
    change = float(means[1] - means[0])
    change_low, change_high = _percentiles(samples[1] - samples[0], confidence)
    is_defined = low[0] >= MIN_BASE
    return Comparison(
        before=Estimate(float(means[0]), float(low[0]), float(high[0])),
        after=Estimate(float(means[1]), float(low[1]), float(high[1])),
        difference=Estimate(change, float(change_low), float(change_high)),
        relative_gain=float(means[1] / means[0] - 1) if is_defined else None,
    )


def panel_success(
    outcomes: Mapping[str, np.ndarray], *, num_samples: int = 2000
) -> Estimate:
    """Returns one policy's panel mean with its 95% interval, as `compare` has it."""
    return compare(outcomes, outcomes, num_samples=num_samples).before


def _percentiles(samples: np.ndarray, confidence: float) -> np.ndarray:
    """Returns the two ends of the central interval over the last axis."""
    tail = (1 - confidence) / 2
    return np.quantile(samples, [tail, 1 - tail], axis=-1)
