"""Example episodes on disk, with their pictures, for the report's viewer."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from aes_hdc import storage
from aes_hdc.episode import Episode


def write_examples(folder: Path, episodes: Sequence[Episode], *, count: int) -> None:
    """Writes `count` episodes, evenly spread, each a JSON file and its frames.

    Args:
        folder: made if absent.
        episodes: to choose from.
        count: how many.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stride = max(len(episodes) // count, 1)
    for number, episode in enumerate(episodes[::stride][:count]):
        write_episode(folder, f"{number}-{episode.task.env_id}", episode)


def write_episode(folder: Path, name: str, episode: Episode) -> None:
    """Writes one episode as `name.json` and `name-TT.png`."""
    task, turns = episode.task, []
    for index, turn in enumerate(episode.turns):
        frame = None
        if turn.observation.frame is not None:
            frame = f"{name}-{index:02d}.png"
            Image.fromarray(turn.observation.frame).save(folder / frame)
        turns.append(
            {
                "text": turn.observation.text,
                "frame": frame,
                "reply": turn.reply,
                "action": turn.action,
                "feedback": turn.feedback,
                "reward": turn.reward,
                "label": turn.label,
            }
        )
    record = {
        "schema": 1,
        "task": {
            "env_id": task.env_id,
            "seed": task.seed,
            "level": task.level,
            "harness": task.harness.label,
            "picture": task.picture,
            "turns": task.turns,
        },
        "turns": turns,
        "success": episode.success,
        "policy": episode.policy,
    }
    storage.write_json(folder / f"{name}.json", record)
