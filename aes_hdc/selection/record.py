"""The files of selection: gradients.json in and out, selection.json out."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from aes_hdc.errors import UserError
from aes_hdc.selection import baselines
from aes_hdc.selection.aes import Pick
from aes_hdc.selection.conflict import GradientStatistics

SCHEMA = 1


def _plain(values: np.ndarray) -> list[Any]:
    """Returns nested lists of Python numbers, None in place of NaN."""
    filled = np.asarray(values).astype(object)
    filled[np.isnan(np.asarray(values, np.float64))] = None
    return filled.tolist()


def gradients_to_json(
    env_ids: Sequence[str],
    statistics: GradientStatistics,
    num_groups: np.ndarray,
    num_degenerate: np.ndarray,
    by_harness: Mapping[str, GradientStatistics],
) -> dict[str, Any]:
    """Returns the content of gradients.json.

    Args:
        env_ids: [E] names, in the order of the arrays.
        statistics: over the whole harness mixture.
        num_groups: [E] int.
        num_degenerate: [E] int.
        by_harness: statistics of each harness level alone, by its label.
    """
    return {
        "schema": SCHEMA,
        "env_ids": list(env_ids),
        "measured": [bool(value) for value in statistics.measured],
        "norm_sq": _plain(statistics.norm_sq),
        "norm_se": _plain(statistics.norm_se),
        "reliability": _plain(statistics.reliability),
        "groups": [int(value) for value in num_groups],
        "degenerate": [int(value) for value in num_degenerate],
        "cosine": _plain(statistics.cosine),
        "cosine_se": _plain(statistics.cosine_se),
        "by_harness": {
            label: {"cosine": _plain(part.cosine)} for label, part in by_harness.items()
        },
    }


def cosines_from_json(
    data: Mapping[str, Any], env_ids: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Reads the cosines of some environments, in the given order.

    Args:
        data: the content of gradients.json.
        env_ids: [E] names wanted.

    Returns:
        The cosines and their standard errors, [E, E] float64, NaN where not measured.

    Raises:
        UserError: if the file has another schema or lacks an environment.
    """
    if data.get("schema") != SCHEMA:
        raise UserError(
            f"gradients.json has schema {data.get('schema')!r}; this version reads "
            f"{SCHEMA}: measure the gradients again"
        )
    missing = sorted(set(env_ids) - set(data["env_ids"]))
    if missing:
        raise UserError(f"gradients.json lacks {missing}; measure the gradients again")
    rows = [data["env_ids"].index(env_id) for env_id in env_ids]
    pick = np.ix_(rows, rows)
    cosine, error = (np.array(data[key], np.float64) for key in ("cosine", "cosine_se"))
    if cosine.shape != error.shape or cosine.shape != 2 * (len(data["env_ids"]),):
        raise UserError(f"gradients.json: cosine is {cosine.shape}, not one row a name")
    return cosine[pick], error[pick]


def selection_to_json(
    env_ids: Sequence[str],
    abilities: Sequence[str],
    core: np.ndarray,
    picks: Sequence[Pick],
    similarity: np.ndarray,
    cosine: np.ndarray,
    settings: Mapping[str, Any],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Returns the content of selection.json.

    Args:
        env_ids: [E] names of the pool.
        abilities: [A] names.
        core: [E, A] bool.
        picks: what `aes.select` returned.
        similarity: [E, E] float.
        cosine: [E, E] float, NaN where not measured.
        settings: the settings of the selection, plain values.
        rng: draws the random orders of the comparison curve.
    """
    core = np.asarray(core, bool)
    is_core = [bool(value) for value in np.any(core, axis=0)]
    chosen = [pick.env_id for pick in picks]
    order = [list(env_ids).index(env_id) for env_id in chosen]
    return {
        "schema": SCHEMA,
        "env_ids": list(env_ids),
        "core_abilities": [
            a for a, used in zip(abilities, is_core, strict=True) if used
        ],
        "picks": [asdict(pick) for pick in picks],
        "left_out": [env_id for env_id in env_ids if env_id not in set(chosen)],
        "similarity": _plain(similarity),
        "conflict_cosine": _plain(cosine),
        "settings": dict(settings),
        "coverage_curve": {
            "aes": baselines.coverage_curve(order, core).tolist(),
            "random": baselines.random_curve(core, rng).tolist(),
        },
    }
