"""Policy gradients of every pool environment at the base model, as sketches."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from aes_hdc import storage, streams
from aes_hdc.curriculum.settings import Settings
from aes_hdc.episode import SPLITS, Task
from aes_hdc.learner.advantages import group_relative, is_degenerate
from aes_hdc.learner.batch import Row
from aes_hdc.learner.gradients import make_sketch
from aes_hdc.rollouts.model_player import ModelPlayer
from aes_hdc.selection import conflict, record
from experiments.groups import Group, gather_groups
from experiments.learning import Learner
from experiments.progress import Progress
from experiments.suite import Suite
from experiments.trajectory_sets import play_suite


def draw_groups(
    suite: Suite, env_id: str, *, seed: int, num_groups: int, window: int | None
) -> list[Task]:
    """Draws one mixture for every environment: h uniform, s uniform on 0..delta_d.

    The harness levels are dealt out in turn, so each block of groups holds each of them
    equally often.
    """
    rng = streams.generator(seed, "gradients", env_id)
    width = Settings(window=window).width(suite.targets[env_id])
    top = min(width, suite.targets[env_id])
    return [
        Task(
            env_id,
            int(rng.integers(len(SPLITS["train"]))),
            int(rng.integers(top + 1)),
            suite.ladder[group % len(suite.ladder)],
        )
        for group in range(num_groups)
    ]


def measure(
    suite: Suite,
    player: ModelPlayer,
    learner: Learner,
    folder: Path,
    *,
    seed: int,
    blocks: int,
    groups_per_block: int,
    group_size: int,
    sketch_size: int,
    window: int | None,
) -> list[str]:
    """Writes gradients.json; environments already measured are not measured again.

    A group's gradient is that of sum(A log pi) over its sampled tokens, divided by rows
    and row length: the learner's own at ratio 1, without KL or entropy.

    Args:
        suite: the environments.
        player: of the base model.
        learner: holds the base model.
        folder: of the stage.
        seed: the run's.
        blocks: M, independent blocks an environment, >= 3.
        groups_per_block: whole groups in each.
        group_size: episodes a group.
        sketch_size: S, a prime.
        window: scale levels above the first, None for the curriculum's default.

    Returns:
        The artefacts' names.
    """
    sketch = make_sketch(sketch_size)
    num_groups = blocks * groups_per_block
    progress = Progress("gradients", len(suite.pool))
    for number, env_id in enumerate(suite.pool):
        path = folder / f"{env_id}.npz"
        if path.exists():
            continue
        tasks = draw_groups(
            suite, env_id, seed=seed, num_groups=num_groups, window=window
        )
        members = [task for task in tasks for _ in range(group_size)]
        player.start(learner.params, seed, "gradients", env_id)
        episodes = play_suite(suite, members, player)
        groups = gather_groups(episodes, player.conversation, group_size)
        degenerate = np.array([is_degenerate(group.rewards) for group in groups])
        storage.write_npz(
            path,
            sketches=_sketches(groups, learner, sketch, sketch_size),
            degenerate=degenerate,
            harness=np.array([suite.ladder.index(task.harness) for task in tasks]),
            success=np.array([episode.success for episode in episodes]),
        )
        progress.step(
            number + 1,
            env=env_id,
            success=float(np.mean([episode.success for episode in episodes])),
            informative=f"{num_groups - degenerate.sum()}/{num_groups}",
        )
    storage.write_json(folder / "gradients.json", _statistics(suite, folder, blocks))
    return ["gradients.json"]


def _sketches(
    groups: Sequence[Group],
    learner: Learner,
    sketch: Callable[[Any], jax.Array],
    size: int,
) -> np.ndarray:
    """Sketches the gradient of each group, [G, S] float32; 0 where it is degenerate.

    A group is one small program or few: as many run side by side as the learner has
    workers.
    """

    def work(group: Group) -> np.ndarray:
        grads = None
        if not is_degenerate(group.rewards):
            (advantages,) = group_relative([group.rewards])
            pairs = zip(group.conversations, advantages, strict=True)
            grads, _ = learner.gradient([Row.spread(*pair) for pair in pairs])
        if grads is None:
            return np.zeros(size, np.float32)
        divisor = len(group.rewards) * learner.row_tokens
        return -np.asarray(sketch(grads)) / divisor

    with ThreadPoolExecutor(learner.workers) as pool:
        return np.stack([*pool.map(work, groups)])


def _statistics(suite: Suite, folder: Path, blocks: int) -> dict:
    """Reads all sketches and measures lengths and angles, in all and by harness."""
    tables = [storage.read_npz(folder / f"{env_id}.npz") for env_id in suite.pool]
    sketches = np.stack([table["sketches"] for table in tables]).astype(np.float64)
    degenerate = np.stack([table["degenerate"] for table in tables])
    harness = tables[0]["harness"]
    num_envs, num_groups, size = sketches.shape
    by_block = sketches.reshape(num_envs, blocks, -1, size).mean(2)
    whole = conflict.measure(by_block, np.full(num_envs, num_groups), degenerate.sum(1))
    by_harness = {}
    for level, rung in enumerate(suite.ladder):
        rows = np.flatnonzero(harness == level)
        if len(rows) >= 3:
            by_harness[rung.label] = conflict.measure(
                sketches[:, rows],
                np.full(num_envs, len(rows)),
                degenerate[:, rows].sum(1),
            )
    unmeasured = [e for e, ok in zip(suite.pool, whole.measured, strict=True) if not ok]
    print(f"gradients unmeasured: {', '.join(unmeasured) or 'none'}")
    return record.gradients_to_json(
        suite.pool,
        whole,
        np.full(num_envs, num_groups),
        degenerate.sum(1),
        by_harness,
    )
