"""A made-up run folder with every artefact that the report reads."""

import numpy as np
import pytest
from PIL import Image

from aes_hdc import storage

POOL = [
    "bar_chart_value", "count_objects", "count_overlapping", "dice_sum", "frozen_lake",
    "lava_crossing", "lights_cycle", "lights_out", "nim_heaps",
]  # fmt: skip
OOD = ["bar_sort_swaps", "map_coloring", "odd_one_out"]
LADDER = ["rules+observation+state+hint", "rules", "none"]
ABILITIES = [
    "grid_localization", "counting", "lookahead_search", "hazard_avoidance",
    "parity_modular_reasoning", "arithmetic", "chart_reading", "goal_tracking",
]  # fmt: skip
PICKS = ["lights_out", "frozen_lake", "bar_chart_value", "dice_sum"]


def write_profile(folder, rng):
    environments = {}
    for env_id in POOL:
        abilities = {
            name: {
                "count": 30,
                "prevalence": round(float(rng.uniform(0.2, 1)), 3),
                "prevalence_by_policy": {"weak": 0.4, "strong": 0.8},
                "lift": 0.3,
                "lift_low": 0.1,
                "status": "core" if rng.random() < 0.5 else "soft",
            }
            for name in rng.choice(ABILITIES, 4, replace=False)
        }
        environments[env_id] = {
            "version": 1,
            "trajectories": 40,
            "instances": 20,
            "evidence": "confounded" if env_id == "nim_heaps" else "ok",
            "success": {"weak": 0.2, "strong": 0.85},
            "abilities": abilities,
            "dropped": {},
            "transitions": [],
        }
    data = {"schema": 1, "abilities": ABILITIES, "environments": environments}
    storage.write_json(folder / "profiles.json", data)


def cosines(rng):
    noise = rng.normal(size=(9, 9)) * 0.3
    cosine = np.clip((noise + noise.T) / 2 + np.eye(9), -1, 1)
    plain = cosine.round(3).tolist()
    for i in range(9):
        plain[i][i] = 1.0
        if i != 8:
            plain[i][8] = plain[8][i] = None
    plain[8][8] = None
    return plain


def write_selection(folder, cosine, rng):
    similarity = rng.uniform(0, 0.7, (9, 9))
    similarity = (similarity + similarity.T) / 2
    np.fill_diagonal(similarity, 1)
    picks = [
        {
            "env_id": name,
            "gain": 2.5 - 0.9 * i,
            "new_coverage": 2.6 - 0.8 * i,
            "redundancy": 0.1 * i,
            "conflict": 0.05 * i,
            "covered": min(8, 3 + 2 * i),
        }
        for i, name in enumerate(PICKS)
    ]
    data = {
        "schema": 1,
        "env_ids": POOL,
        "core_abilities": ABILITIES,
        "picks": picks,
        "left_out": [name for name in POOL if name not in PICKS],
        "similarity": similarity.round(3).tolist(),
        "conflict_cosine": cosine,
        "settings": {"redundancy_weight": 0.3, "conflict_z": 2.0},
        "coverage_curve": {"aes": [3, 5, 7, 8], "random": [2.1, 3.6, 4.7, 5.5, 6.1, 7]},
    }
    storage.write_json(folder / "selection.json", data)


def write_metrics(folder, rng):
    with storage.JsonLog(folder / "metrics.jsonl") as log:
        for step in range(1, 61):
            success = {}
            for i, name in enumerate(PICKS):
                rate = 0.2 + 0.7 * step / (60 + 20 * i)
                won = {k: int(rng.binomial(16, min(rate, 0.95))) for k in LADDER}
                success[name] = {k: {"0": [won[k], 16]} for k in LADDER}
            log.append(
                {
                    "step": step,
                    "wall": 1e9 + step,
                    "config_hash": "c0ffee",
                    "git": "f00",
                    "loss": float(rng.normal() * 0.05),
                    "grad_norm": float(rng.uniform(0.5, 1.5)),
                    "kl": 0.002 * step,
                    "entropy": 1.2 - 0.01 * step,
                    "degenerate_fraction": float(rng.uniform(0.2, 0.6)),
                    "logprob_gap_max": 1e-5,
                    "success": success,
                    "tokens": 2000,
                }
            )
    with storage.JsonLog(folder / "curriculum.jsonl") as log:
        for i, name in enumerate(PICKS):
            states = [(8, "scale", 0, 0, 1), (16, "harness", 1, 0, 0)]
            states += [(24, "scale", 1, 0, 1), (36, "harness", 2, 0, 0)][: 2 - i // 2]
            states += [(52, "finished", 2, 0, 1)] if i == 0 else []
            for step, move, harness, low, high in states:
                log.append(
                    {
                        "step": step + 2 * i,
                        "env_id": name,
                        "move": move,
                        "success": 0.8,
                        "groups": 8,
                        "harness_level": harness,
                        "low": low,
                        "high": high,
                    }
                )


def write_episode(folder, name, env_id, rng, *, success, text="row 1 red blue off"):
    turns = []
    for index in range(2):
        frame = f"{name}-{index:02d}.png"
        board = rng.integers(0, 255, (3, 3, 3)).astype(np.uint8).repeat(32, 0)
        (folder / frame).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(board.repeat(32, 1)).save(folder / frame)
        ended = "success" if success else "turn_limit"
        turns.append(
            {
                "text": text,
                "frame": frame if index == 0 else None,
                "reply": "press 1 2",
                "action": "press 1 2" if index == 0 else "",
                "feedback": "ok",
                "reward": float(success and index),
                "label": ended if index else "running",
            }
        )
    task = {"env_id": env_id, "seed": 7, "level": 0, "harness": "rules"}
    task |= {"picture": True, "turns": "many"}
    record = {"schema": 1, "task": task, "turns": turns, "success": success}
    storage.write_json(folder / f"{name}.json", record | {"policy": "model"})


def write_evaluation(folder, rng):
    rows, headline = [], {}
    panels = {"id": POOL, "ood": OOD}
    conditions = [("none", 0), ("none", 1), ("rules", 0), (LADDER[0], 0)]
    for panel, names in panels.items():
        for env_id in names:
            for harness, level in conditions:
                before = float(rng.uniform(0.05, 0.4))
                gain = float(rng.uniform(-0.1, 0.5)) * (1 if panel == "id" else 0.2)
                rows.append(
                    {
                        "panel": panel,
                        "env_id": env_id,
                        "harness": harness,
                        "level": level,
                        "episodes": 64,
                        "before": before,
                        "after": min(1.0, max(0.0, before + gain)),
                        "difference": gain,
                        "low": gain - 0.08,
                        "high": gain + 0.08,
                        "random": 0.1,
                    }
                )
        headline[panel] = {
            "before": 0.25,
            "before_low": 0.21,
            "before_high": 0.29,
            "after": 0.61 if panel == "id" else 0.27,
            "after_low": 0.56,
            "after_high": 0.65,
            "difference": 0.36 if panel == "id" else 0.02,
            "difference_low": 0.31 if panel == "id" else -0.02,
            "difference_high": 0.41 if panel == "id" else 0.06,
            "random": 0.1,
            "relative_gain": 1.44 if panel == "id" else None,
        }
    data = {
        "schema": 1,
        "panels": {
            panel: {
                "env_ids": names,
                "conditions": [{"harness": "none", "levels": [0, 1]}],
            }
            for panel, names in panels.items()
        },
        "rows": rows,
        "headline": headline,
        "policies": {"before": "tiny_vl", "after": "train/model"},
        "sampling": "temperature 1",
    }
    storage.write_json(folder / "evaluation.json", data)


@pytest.fixture
def run_folder(tmp_path):
    """Every stage has finished, with made-up numbers."""
    workdir, rng = tmp_path / "quickstart", np.random.default_rng(0)
    config = {"seed": 0, "environments": {"ladder": LADDER, "frame_px": 96}}
    storage.write_json(workdir / "config.json", config)
    with storage.JsonLog(workdir / "runs.jsonl") as log:
        log.append({"config_hash": "c0ffee", "git": "f00", "versions": {"jax": "0.10"}})
    write_profile(workdir / "profile", rng)
    cosine = cosines(rng)
    gradients = {
        "schema": 1,
        "env_ids": POOL,
        "measured": [True] * 8 + [False],
        "norm_sq": [1.0] * 9,
        "norm_se": [0.1] * 9,
        "reliability": [0.7] * 8 + [None],
        "groups": [16] * 9,
        "degenerate": [3] * 8 + [16],
        "cosine": cosine,
        "cosine_se": cosine,
        "by_harness": {},
    }
    storage.write_json(workdir / "gradients" / "gradients.json", gradients)
    write_selection(workdir / "select", cosine, rng)
    write_metrics(workdir / "train", rng)
    for i, env_id in enumerate(PICKS):
        folder = workdir / "train" / "episodes" / f"{20 * i:06d}"
        write_episode(folder, f"0-{env_id}", env_id, rng, success=i % 2 == 1)
    write_evaluation(workdir / "evaluate", rng)
    for i, stage in enumerate(("collect", "profile", "select", "train", "evaluate")):
        stamp = {"seconds": 3.5 * 5**i / 4, "finished": 1e9}
        storage.write_json(workdir / stage / "stage.json", stamp)
    return workdir
