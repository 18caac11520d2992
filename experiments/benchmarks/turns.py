"""What a turn costs late in a conversation: cached keys against reading all again.

    python -m experiments.benchmarks.turns

Thirty-two conversations of ten turns, a picture and a line of text each. "cached" is
the rollout engine: a turn prefills its new message and decodes. "again" decodes alike,
but reads the whole conversation anew before every reply, as an engine without a cache
must.
Both run turn by turn in turn, so that a busy machine slows both.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from aes_hdc.episode import Observation
from aes_hdc.learner.batch import Row, Shape, micro_batches
from aes_hdc.learner.step import make_score
from aes_hdc.rollouts.collect import Request
from aes_hdc.rollouts.model_player import ModelPlayer
from experiments.learning import Policy
from experiments.runtime import load_policy, make_player

NUM_TURNS, ROWS, REPEATS = 10, 32, 5
SLOTS = 640


def main() -> None:
    """Prints a table by turn and the ratio of the tenth turn to the second."""
    policy = load_policy(
        folder="", dtype="float32", frame_px=96, unroll=True, temperature=1.0
    )
    player = make_player(
        policy,
        capacity=ROWS,
        prefill=((ROWS, 64, 0), (ROWS, 64, SLOTS)),
        decode=((ROWS, SLOTS),),
        max_new_tokens=8,
    )
    observations = _observations()
    again = _reader(policy)
    _play(player, policy, observations, again)  # Compiles.
    found = [_play(player, policy, observations, again) for _ in range(REPEATS)]
    cached, read, prefilled, new = (
        np.median(column, axis=0) for column in zip(*found, strict=True)
    )
    print("turn  new tokens  prefilled  cached, ms  again, ms")
    for turn in range(NUM_TURNS):
        print(
            f"{turn + 1:>4}  {new[turn]:>10.0f}  {prefilled[turn]:>9.0f}"
            f"  {1e3 * cached[turn]:>10.1f}  {1e3 * read[turn]:>9.1f}"
        )
    print(
        f"turn 10 to turn 2: cached {cached[9] / cached[1]:.2f},"
        f" again {read[9] / read[1]:.2f}; all ten turns: again / cached"
        f" {read.sum() / cached.sum():.2f}"
    )


def _observations() -> list[list[Observation]]:
    """By turn and row, a picture of noise and a line."""
    rng = np.random.default_rng(0)
    return [
        [
            Observation(
                "goal: all off\nsay press row column",
                rng.integers(0, 256, (96, 96, 3)).astype(np.uint8),
            )
            for _ in range(ROWS)
        ]
        for _ in range(NUM_TURNS)
    ]


def _reader(policy: Policy) -> Callable[[ModelPlayer], float]:
    """Returns a function that reads all conversations anew and says how long it took.

    Shapes of every 64 tokens: it pads no more than the engine does.
    """
    score = make_score(policy.model, policy.distribution)
    shapes = [
        Shape(ROWS, slots, 8 * NUM_TURNS, ROWS * NUM_TURNS, policy.chat.patch_shape)
        for slots in range(64, SLOTS + 65, 64)
    ]

    def read(player: ModelPlayer) -> float:
        rows = [Row.spread(player.conversation(i), 0.0) for i in range(ROWS)]
        longest = max(len(row.conversation) for row in rows)
        pictures = sum(len(row.conversation.pictures) for row in rows)
        shape = next(s for s in shapes if s.slots >= longest)
        shape = Shape(ROWS, shape.slots, shape.actions, pictures, shape.patches)
        ((_, batch),) = micro_batches(rows, [shape])
        started = time.perf_counter()
        jax.block_until_ready(score(policy.params, batch.tokens))
        return time.perf_counter() - started

    return read


def _play(
    player: ModelPlayer,
    policy: Policy,
    observations: list[list[Observation]],
    again: Callable[[ModelPlayer], float],
) -> tuple[list[float], list[float], list[int], list[int]]:
    """Plays ten turns, whatever the model says.

    Returns:
        By turn, seconds with the cache, seconds of reading anew and decoding, tokens
        prefilled, and tokens that were new.
    """
    player.start(policy.params, 0, "benchmark")
    cached, read, prefilled, new = [], [], [], []
    tokens = 0
    for turn, shown in enumerate(observations):
        requests: list[Any] = [
            Request(i, None, turn, observation, None, None)  # type: ignore[arg-type]
            for i, observation in enumerate(shown)
        ]
        before, sampled = player.counts["prefilled"], player.counts["sampled"]
        started = time.perf_counter()
        player.act(requests)
        cached.append(time.perf_counter() - started)
        decode = player.seconds.read()["decode"]
        read.append(again(player) + decode)
        prefilled.append(player.counts["prefilled"] - before)
        written = sum(len(player.conversation(i)) for i in range(ROWS))
        # New are the message and the last token of the reply before it.
        just = player.counts["sampled"] - sampled
        new.append(written - tokens - just + (ROWS if turn else 0))
        tokens = written
    return cached, read, prefilled, new


if __name__ == "__main__":
    main()
