"""Our side of `experiments.benchmarks.peers`: rollout engine and learner as they are.

The first argument is a JSON file with the case; "go" on standard input asks for one
update, and a line of JSON answers. With --profile it makes a few updates by itself and
prints where their time goes.
"""

import argparse
import dataclasses
import json
import os
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from aes_hdc.clock import Stopwatch
from aes_hdc.episode import Observation
from aes_hdc.learner.batch import Shape
from aes_hdc.learner.losses import LossSettings
from aes_hdc.learner.optimizer import make_optimizer
from aes_hdc.policy.distribution import TokenDistribution
from aes_hdc.rollouts.collect import Reply, Request
from aes_hdc.rollouts.model_player import ModelPlayer
from experiments.base_model import count_parameters
from experiments.groups import Group
from experiments.learning import Learner, Policy
from experiments.runtime import load_policy, make_player


def main(arguments: Sequence[str]) -> None:
    """Makes as many updates as are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case")
    parser.add_argument("--profile", type=int, default=0, help="updates to look at")
    values = parser.parse_args(arguments)
    case = json.loads(Path(values.case).read_text())
    side = Side(case)
    if values.profile:
        print(side.profile(values.profile))
        return
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    packages = ("jax", "flax", "optax")
    hello = {
        "versions": {name: version(name) for name in packages},
        "prompt_tokens": side.prompt_tokens,
        "parameters": count_parameters(side.learner.params),
    }
    answers.write(json.dumps(hello) + "\n")
    while sys.stdin.readline():
        cpu, wall = time.process_time(), time.perf_counter()
        tokens, deviation = side.step()
        told = {
            "cpu": time.process_time() - cpu,
            "wall": time.perf_counter() - wall,
            "tokens": tokens,
            "reward_std": deviation,
        }
        answers.write(json.dumps(told) + "\n")


class Side:
    """A policy, its player and its learner, and the prompts of one case.

    Attributes:
        learner: holds the parameters.
        player: samples from them.
    """

    learner: Learner
    player: ModelPlayer

    def __init__(self, case: dict[str, Any]) -> None:
        """Loads the folder; nothing compiles before the first step.

        The programs are as tight as the case: messages of one length, replies of one
        length, and a picture behind no opening.
        """
        tokens, new, rows = case["prompt_tokens"], case["new_tokens"], case["rows"]
        self._group, self._count = case["group_size"], 0
        policy = _load(case)
        self.player = make_player(
            policy,
            capacity=rows,
            prefill=((rows // self._group, tokens, 0, self._group),),
            # The second is never called: it says how long a conversation may get.
            decode=((rows, tokens), (rows, tokens + new)),
            max_new_tokens=new,
        )
        shape = Shape(
            rows=rows,
            slots=new + 1,
            actions=new,
            pictures=0,
            patches=policy.chat.patch_shape,
            openings=rows // self._group,
            opening_slots=tokens - 1,
        )
        self.learner = Learner(
            policy=policy,
            optimizer=make_optimizer(learning_rate=case["learning_rate"]),
            settings=LossSettings(),
            shapes=[shape],
            aggregation="constant",
            row_tokens=new,
        )
        frames = np.load(case["frames"]) if case["frames"] else [None] * rows
        shown = [*zip(case["prompts"], frames, strict=False)]
        observations = [Observation(*shown[row // self._group]) for row in range(rows)]
        self._requests: list[Any] = [
            Request(row, None, 0, observation, None, None)  # type: ignore[arg-type]
            for row, observation in enumerate(observations)
        ]

    @property
    def prompt_tokens(self) -> int:
        """Of the first prompt, as the player reads it."""
        chat, observation = self.learner.policy.chat, self._requests[0].observation
        frame = observation.frame
        grids = [] if frame is None else [chat.patches(frame)[1]]
        return len(chat.message(observation, grids, first=True))

    def play(self, stopwatch: Stopwatch | None = None) -> Sequence[Reply]:
        """Samples all replies."""
        self._count += 1
        self.player.start(
            self.learner.params, 0, "peers", self._count, stopwatch=stopwatch
        )
        replies = self.player.act(self._requests)
        return [replies[row] for row in range(len(self._requests))]

    def groups(self, replies: Sequence[Reply]) -> list[Group]:
        """Gathers what was played; the reward depends on every letter of a reply."""
        rewards = [zlib.crc32(reply.text.encode()) / 2**32 for reply in replies]
        return [
            Group.of_returns(
                [self.player.conversation(i) for i in range(at, at + self._group)],
                rewards[at : at + self._group],
            )
            for at in range(0, len(replies), self._group)
        ]

    def step(self) -> tuple[int, float]:
        """Plays and learns; returns sampled tokens and the rewards' deviation."""
        groups = self.groups(self.play())
        self.learner.update(groups)
        deviation = np.mean([group.rewards.std() for group in groups])
        return self.player.counts["sampled"], float(deviation)

    def profile(self, updates: int) -> str:
        """Returns median milliseconds of CPU by part, the device's and the host's."""
        parts: dict[str, list[float]] = defaultdict(list)
        spans = _watch(self.learner, parts)
        for _ in range(2):
            self.step()
        parts.clear()
        for _ in range(updates):
            began = time.process_time()
            watch = Stopwatch()
            replies = self.play(watch)
            played = time.process_time()
            groups = self.groups(replies)
            self.learner.update(groups)
            ended = time.process_time()
            read = watch.read()
            for name in ("picture", "prefill", "decode"):
                parts[name].append(read.get(name, 0.0))
            parts["rollout, all"].append(played - began)
            parts["update, all"].append(ended - played)
            parts["step, all"].append(ended - began)
        lines = [
            f"{name:<16}{1e3 * np.median(found):>9.1f} ms"
            for name, found in parts.items()
        ]
        return "\n".join((*lines, f"programs watched: {', '.join(spans)}"))


def _watch(learner: Learner, parts: dict[str, list[float]]) -> list[str]:
    """Puts a clock around the learner's programs; returns their names."""

    def timed(name: str, program: Any) -> Any:
        def call(*arguments: Any) -> Any:
            began = time.process_time()
            found = jax.block_until_ready(program(*arguments))
            parts[name].append(time.process_time() - began)
            return found

        return call

    names = ["_gradient", "_apply"]
    for name in names:
        setattr(learner, name, timed(name[1:], getattr(learner, name)))
    return [name[1:] for name in names]


def _load(case: dict[str, Any]) -> Policy:
    """Loads the policy; no reply may end before its last token."""
    policy = load_policy(
        folder=case["folder"],
        dtype="float32",
        frame_px=case["frame_px"],
        unroll=True,
        temperature=1.0,
    )
    chat = policy.chat
    distribution = TokenDistribution((*chat.forbidden_ids, *chat.end_ids))
    return dataclasses.replace(policy, distribution=distribution)


if __name__ == "__main__":
    main(sys.argv[1:])
