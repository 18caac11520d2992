"""Episodes as JSON lines; frames are left out, since seed and level redraw them."""

from collections.abc import Mapping
from typing import Any

from aes_hdc.episode import Episode, Event, Harness, Observation, Task, Turn
from aes_hdc.errors import UserError


def task_to_json(task: Task) -> dict[str, Any]:
    """Returns a task as plain data."""
    return {
        "env_id": task.env_id,
        "seed": task.seed,
        "level": task.level,
        "harness": task.harness.label,
        "picture": task.picture,
        "turns": task.turns,
    }


def task_from_json(data: Mapping[str, Any]) -> Task:
    """Rebuilds a task from `task_to_json`."""
    return Task(**{**data, "harness": Harness.parse(data["harness"])})


def to_json(episode: Episode) -> dict[str, Any]:
    """Returns an episode as plain data, without its frames."""
    return {
        "schema": 1,
        "policy": episode.policy,
        "task": task_to_json(episode.task),
        "turns": [
            {
                "text": turn.observation.text,
                "reply": turn.reply,
                "action": turn.action,
                "feedback": turn.feedback,
                "reward": turn.reward,
                "valid": turn.valid,
                "label": turn.label,
                "events": [[e.kind, e.subject, e.amount] for e in turn.events],
            }
            for turn in episode.turns
        ],
    }


def from_json(data: Mapping[str, Any]) -> Episode:
    """Rebuilds an episode from `to_json`; its observations have no frame.

    Raises:
        UserError: if the record has another schema or lacks a field.
    """
    if data.get("schema") != 1:
        raise UserError(
            f"trajectory of schema {data.get('schema')!r}; collect it again"
        )
    try:
        turns = tuple(
            Turn(
                Observation(turn["text"], None),
                turn["reply"],
                turn["action"],
                turn["feedback"],
                float(turn["reward"]),
                bool(turn["valid"]),
                turn["label"],
                tuple(Event(*event) for event in turn["events"]),
            )
            for turn in data["turns"]
        )
        return Episode(task_from_json(data["task"]), turns, data["policy"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"trajectory record is damaged ({error}); collect it again"
        ) from (error)
