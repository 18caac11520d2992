"""Plays tasks to the end: the one loop that steps environments and policies."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from aes_hdc.clock import Stopwatch
from aes_hdc.envs.vector import Vec
from aes_hdc.episode import Episode, Observation, Task, Turn


@dataclass(frozen=True)
class Request:
    """An open episode that waits for a reply.

    Attributes:
        index: the task's place in the list that is played.
        task: what is played.
        turn: turns already played.
        observation: what the policy is shown.
        env: the environment, for policies that may look behind the picture.
        state: its state.
    """

    index: int
    task: Task
    turn: int
    observation: Observation
    env: Any
    state: Any


@dataclass(frozen=True)
class Reply:
    """A policy's answer.

    Attributes:
        text: untrusted.
        label: "running", or "length" and "overflow" where the reply was cut or the
            message did not fit; those end the episode without a step of the
            environment.
    """

    text: str
    label: str = "running"


class Player(Protocol):
    """Anything that plays: a model, an oracle, a remote model."""

    name: str
    capacity: int  # Episodes that may be open at once.

    def act(self, requests: Sequence[Request]) -> Mapping[int, Reply]:
        """Answers some of the requests, at least one, by their index."""
        ...


def play(
    tasks: Sequence[Task],
    player: Player,
    *,
    frame_px: int,
    max_turns: int = 0,
    progress: Callable[[int], None] | None = None,
    stopwatch: Stopwatch | None = None,
) -> list[Episode]:
    """Plays every task once; an ended episode makes room for the next in the list.

    Args:
        tasks: what to play.
        player: who plays.
        frame_px: side of the frames.
        max_turns: an episode that long ends as "turn_limit"; 0 leaves it to the
            environment.
        progress: called with the number of episodes that have ended.
        stopwatch: told the seconds spent in environments, drawing included.

    Returns:
        Episodes in the order of `tasks`.
    """
    watch = stopwatch or Stopwatch()
    vec = Vec(frame_px)
    waiting = deque(enumerate(tasks))
    opened: dict[int, Request] = {}
    turns: list[list[Turn]] = [[] for _ in tasks]
    num_ended = 0

    def end(index: int) -> None:
        nonlocal num_ended
        opened.pop(index, None)
        num_ended += 1
        if progress:
            progress(num_ended)

    while waiting or opened:
        while waiting and len(opened) < player.capacity:
            index, task = waiting.popleft()
            with watch.watch("environment"):
                observation = vec.reset(index, task)
            opened[index] = Request(
                index, task, 0, observation, vec.env(index), vec.state(index)
            )
        for index, reply in player.act([*opened.values()]).items():
            request = opened[index]
            with watch.watch("environment"):
                following, turn = _answer(vec, request, reply)
            if request.turn + 1 == max_turns and turn.label == "running":
                turn = replace(turn, label="turn_limit")
            turns[index].append(turn)
            if turn.label != "running" or following is None:
                end(index)
            else:
                opened[index] = replace(
                    request, turn=request.turn + 1, observation=following
                )
    return [
        Episode(task, tuple(t), player.name)
        for task, t in zip(tasks, turns, strict=True)
    ]


def _answer(
    vec: Vec, request: Request, reply: Reply
) -> tuple[Observation | None, Turn]:
    """Steps one environment and records the turn."""
    if reply.label != "running":
        return None, Turn(
            request.observation, reply.text, "", "", 0.0, False, reply.label
        )
    following, step = vec.step(request.index, reply.text)
    return following, Turn(
        request.observation,
        reply.text,
        step.action,
        step.feedback,
        step.reward,
        step.valid,
        step.label,
        step.events,
    )
