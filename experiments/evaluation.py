"""Panels of unseen instances, played before and after on the same seeds."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aes_hdc import storage, streams, trajectories
from aes_hdc.episode import SPLITS, Episode, Harness, Task
from aes_hdc.errors import UserError
from aes_hdc.evaluation.metrics import compare, panel_success, pass_at_k
from aes_hdc.rollouts.model_player import ModelPlayer
from aes_hdc.rollouts.players import OraclePlayer
from experiments.examples import write_examples
from experiments.progress import Progress
from experiments.suite import Suite
from experiments.trajectory_sets import play_suite

Outcomes = dict[tuple[str, str, int], np.ndarray]  # (env, harness, level) -> [I]
Means = dict[tuple[str, str, int], dict[int, float]]  # ... -> seed -> success


def draw_tasks(
    suite: Suite,
    *,
    seed: int,
    levels: Sequence[int],
    harnesses: Mapping[str, int],
    samples: int,
) -> list[Task]:
    """Lists the instances of both panels; every harness sees the same ones.

    Args:
        suite: the environments.
        seed: the run's.
        levels: scale levels; -1 is the environment's target.
        harnesses: harness label -> instances per environment and level.
        samples: episodes an instance.
    """
    tasks = []
    for env_id in suite.env_ids:
        for level in levels:
            level = suite.targets[env_id] if level < 0 else level
            start = streams.integer(
                seed, "evaluate", env_id, level, high=len(SPLITS["test"]) // 2
            )
            for label, count in harnesses.items():
                harness = Harness.parse(label)
                tasks += [
                    Task(env_id, SPLITS["test"][start + i], level, harness)
                    for i in range(count)
                    for _ in range(samples)
                ]
    return tasks


def evaluate(
    suite: Suite,
    players: Mapping[str, tuple[ModelPlayer, Any]],
    trained: Sequence[str],
    folder: Path,
    *,
    seed: int,
    levels: Sequence[int],
    harnesses: Mapping[str, int],
    samples: int,
    pass_at: int,
    bootstraps: int,
    sampling: str,
) -> list[str]:
    """Writes before.jsonl, after.jsonl, random.jsonl and evaluation.json.

    Random legal play on the same instances says what success is worth.

    Args:
        suite: the environments.
        players: "before" and, unless there is nothing after, "after", with parameters.
        trained: environments that were trained on.
        folder: of the stage.
        seed: the run's; both policies draw from the same stream.
        levels: as for `draw_tasks`.
        harnesses: as for `draw_tasks`; the headline is that of "none".
        samples: as for `draw_tasks`.
        pass_at: k of pass@k, which then stands wherever success would; 1 is success.
        bootstraps: samples of the paired bootstrap over instances.
        sampling: how replies are chosen, in words.

    Returns:
        The artefacts' names.

    Raises:
        UserError: if `pass_at` asks for more samples than are drawn.
    """
    if not 1 <= pass_at <= samples:
        raise UserError(
            f"evaluation.pass_at is {pass_at}; give 1 to evaluation.samples, {samples}"
        )
    tasks = draw_tasks(
        suite, seed=seed, levels=levels, harnesses=harnesses, samples=samples
    )
    means = {}
    progress = Progress("evaluate", len(players))
    for number, (name, (player, params)) in enumerate(players.items()):
        path = folder / f"{name}.jsonl"
        if not path.exists():
            player.start(params, seed, "evaluate")
            episodes = play_suite(suite, tasks, player)
            write_examples(folder / "episodes" / name, episodes, count=24)
            success = _write(path, episodes)
            progress.step(number + 1, policy=name, success=success)
        means[name] = _means(storage.read_jsonl(path), pass_at)
    chance = _play_at_random(
        suite,
        tasks,
        folder / "random.jsonl",
        seed=seed,
        samples=samples,
        pass_at=pass_at,
    )
    outcomes = _paired(means["before"], means.get("after", means["before"]))
    panels = {
        "id": suite.pool,
        "ood": suite.ood,
        "id_trained": [e for e in suite.pool if e in trained],
        "id_untrained": [e for e in suite.pool if trained and e not in trained],
    }
    headline = {
        name: _headline(env_ids, outcomes, chance, bootstraps)
        for name, env_ids in panels.items()
        if env_ids
    }
    table = {
        "schema": 1,
        "panels": {
            name: {"env_ids": list(env_ids), "conditions": _conditions(tasks)}
            for name, env_ids in panels.items()
            if env_ids
        },
        "rows": _rows(suite, outcomes, chance, bootstraps),
        "headline": headline,
        "policies": {
            name: players.get(name, players["before"])[0].name
            for name in ("before", "after")
        },
        "sampling": sampling,
    }
    storage.write_json(folder / "evaluation.json", table)
    for name, line in headline.items():
        print(_text(name, line))
    return ["evaluation.json"]


def _write(path: Path, episodes: Sequence[Episode]) -> float:
    """Writes one line an episode; returns their success."""
    lines = [storage.to_json(_line(episode)) + "\n" for episode in episodes]
    storage.write_text(path, "".join(lines))
    return float(np.mean([episode.success for episode in episodes]))


def _play_at_random(
    suite: Suite,
    tasks: Sequence[Task],
    path: Path,
    *,
    seed: int,
    samples: int,
    pass_at: int,
) -> dict[tuple[str, int], np.ndarray]:
    """Success of random legal play on every instance, [I], by environment and level.

    It reads nothing, so one harness stands for all and no picture is drawn.
    """
    if not path.exists():
        blind = {
            (task.env_id, task.level, task.seed): dataclasses.replace(
                task, harness=Harness.NONE, picture=False
            )
            for task in tasks
        }
        members = [task for task in blind.values() for _ in range(samples)]
        _write(path, play_suite(suite, members, OraclePlayer(noise=1.0, seed=seed)))
    means = _means(storage.read_jsonl(path), pass_at)
    return {
        (env_id, level): np.array([found[instance] for instance in sorted(found)])
        for (env_id, _, level), found in means.items()
    }


def _line(episode: Episode) -> dict[str, Any]:
    """What is kept of an episode."""
    return trajectories.task_to_json(episode.task) | {
        "success": episode.success,
        "label": episode.label,
        "num_turns": len(episode.turns),
    }


def _means(lines: Sequence[Mapping[str, Any]], pass_at: int = 1) -> Means:
    """Success, or pass@k, of every instance, by cell; broken episodes are left out."""
    cells: dict[tuple[str, str, int], dict[int, list[bool]]] = {}
    for line in lines:
        key = (line["env_id"], line["harness"], line["level"])
        if line["label"] != "env_error":
            cells.setdefault(key, {}).setdefault(line["seed"], []).append(
                line["success"]
            )
    return {
        key: {
            seed: pass_at_k(sum(success), len(success), min(pass_at, len(success)))
            for seed, success in found.items()
        }
        for key, found in cells.items()
    }


def _paired(before: Means, after: Means) -> dict[str, Outcomes]:
    """Keeps the instances that both policies have, in one order: pairs stay pairs."""
    outcomes: dict[str, Outcomes] = {"before": {}, "after": {}}
    for key in before.keys() & after.keys():
        seeds = sorted(before[key].keys() & after[key].keys())
        if seeds:
            outcomes["before"][key] = np.array([before[key][seed] for seed in seeds])
            outcomes["after"][key] = np.array([after[key][seed] for seed in seeds])
    return outcomes


def _conditions(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """The harness sets and the levels played under each."""
    found: dict[str, set[int]] = {}
    for task in tasks:
        found.setdefault(task.harness.label, set()).add(task.level)
    return [{"harness": h, "levels": sorted(levels)} for h, levels in found.items()]


def _rows(
    suite: Suite,
    outcomes: Mapping[str, Outcomes],
    chance: Mapping[tuple[str, int], np.ndarray],
    bootstraps: int,
) -> list[dict[str, Any]]:
    """One row a cell: environment, harness and level."""
    rows = []
    for key, before in sorted(outcomes["before"].items()):
        env_id, harness, level = key
        result = compare(
            {env_id: before},
            {env_id: outcomes["after"][key]},
            num_samples=bootstraps,
        )
        random = panel_success({env_id: chance[env_id, level]}, num_samples=bootstraps)
        rows.append(
            {
                "panel": "id" if env_id in suite.pool else "ood",
                "env_id": env_id,
                "harness": harness,
                "level": level,
                "episodes": len(before),
                "before": result.before.mean,
                "after": result.after.mean,
                "after_low": result.after.low,
                "after_high": result.after.high,
                "random": random.mean,
                "random_low": random.low,
                "random_high": random.high,
                "difference": result.difference.mean,
                "low": result.difference.low,
                "high": result.difference.high,
            }
        )
    return rows


def _headline(
    env_ids: Sequence[str],
    outcomes: Mapping[str, Outcomes],
    chance: Mapping[tuple[str, int], np.ndarray],
    bootstraps: int,
) -> dict[str, Any]:
    """The comparison over a panel without harness, all levels together."""

    def panel(cells: Outcomes) -> dict[str, np.ndarray]:
        return {
            env_id: np.concatenate(
                [
                    v
                    for (e, h, _), v in sorted(cells.items())
                    if (e, h) == (env_id, "none")
                ]
            )
            for env_id in env_ids
        }

    random = panel_success(
        panel({(e, "none", level): v for (e, level), v in chance.items()}),
        num_samples=bootstraps,
    )
    return compare(
        panel(outcomes["before"]), panel(outcomes["after"]), num_samples=bootstraps
    ).to_json() | {
        "random": random.mean,
        "random_low": random.low,
        "random_high": random.high,
    }


def _text(name: str, line: Mapping[str, Any]) -> str:
    """A panel's result in one line."""
    gain = line["relative_gain"]
    relative = "" if gain is None else f", relative gain {100 * gain:+.0f}%"
    return (
        f"evaluate {name}: success {line['before']:.3f} -> {line['after']:.3f},"
        f" {100 * line['difference']:+.1f} points"
        f" [{100 * line['difference_low']:+.1f}, {100 * line['difference_high']:+.1f}]"
        f"{relative}; random play {line['random']:.3f}"
    )
