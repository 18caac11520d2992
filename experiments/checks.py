"""What every update is asked: do sampler and learner agree, is all of it finite."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aes_hdc import storage
from aes_hdc.learner.batch import Row


def gap_metrics(
    rows: Sequence[Row], sums: Mapping[str, Any], *, limit: float
) -> dict[str, Any]:
    """Says how far sampled and recomputed log-probabilities are apart, in nats.

    Args:
        rows: what was learnt from.
        sums: metric sums of the loss, those by row as [rows] arrays.
        limit: a larger gap at any token is warned of.

    Returns:
        Mean and largest gap over all tokens, and both by environment.
    """
    totals, largest = sums["logprob_gap_by_row"], sums["logprob_gap_max_by_row"]
    table: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    for row, total, top in zip(rows, totals, largest, strict=True):
        entry = table.setdefault(row.env_id, [0.0, 0.0])
        counts[row.env_id] = counts.get(row.env_id, 0) + len(row.advantages)
        entry[0], entry[1] = entry[0] + total, max(entry[1], float(top))
    if sums["logprob_gap_max"] > limit:
        worst = max(table, key=lambda env_id: table[env_id][1])
        logging.warning(
            "sampled and recomputed log-probabilities differ by %.3g (%s)",
            sums["logprob_gap_max"],
            worst or "all",
        )
    return {
        "logprob_gap": sums["logprob_gap"] / max(sums["tokens"], 1.0),
        "logprob_gap_max": float(sums["logprob_gap_max"]),
        "logprob_gap_by_env": {
            env_id: [total / max(counts[env_id], 1), top]
            for env_id, (total, top) in sorted(table.items())
        },
    }


def write_batch(path: Path, rows: Sequence[Row]) -> None:
    """Writes what was not finite, for a replay.

    Args:
        path: of an npz file; rows stand one behind the other in it, of the given
            lengths.
        rows: what was to be learnt from.
    """
    conversations = [row.conversation for row in rows]
    storage.write_npz(
        path,
        ids=np.concatenate([c.ids for c in conversations]),
        turn=np.concatenate([c.turn for c in conversations]),
        logprobs=np.concatenate([c.logprobs for c in conversations]),
        length=np.array([len(c) for c in conversations]),
        advantage=np.concatenate([row.advantages for row in rows]),
    )
