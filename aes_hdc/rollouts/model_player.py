"""A local model as a player: tokens in are tokens out."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aes_hdc import streams
from aes_hdc.episode import Conversation
from aes_hdc.policy.sampling import Chunk, Pool
from aes_hdc.rollouts.chat import Chat
from aes_hdc.rollouts.collect import Reply, Request
from aes_hdc.rollouts.record import Record


@dataclass
class _Open:
    """An episode's record and its place in a pool; row -1 once it has ended."""

    pool: int
    row: int
    record: Record = field(default_factory=Record)
    cached: int = 0  # Tokens whose keys are in the pool; the rest opens the next chunk.


class ModelPlayer:
    """Samples replies with a KV cache and records every token with its log-probability.

    Open episodes wait in buckets by the length of their next message; a call of the
    jitted turn takes the fullest bucket, so no ended or slow episode holds a batch.
    With several pools as many calls run side by side, which a small model needs to fill
    the cores of a CPU.

    Attributes:
        name: of the policy, for episode records.
        capacity: episodes open at once, the pools' rows.
        num_tokens: tokens prefilled and sampled so far, for throughput.
    """

    def __init__(
        self,
        turn: Any,
        pools: Sequence[Pool],
        chat: Chat,
        *,
        batch_size: int,
        widths: Sequence[int],
        max_new_tokens: int,
        name: str = "model",
    ) -> None:
        """Binds the jitted turn to pools.

        Args:
            turn: made by `policy.sampling.make_turn`.
            pools: of one shape, made by `policy.sampling.init_pool`.
            chat: text and frames to tokens and patches.
            batch_size: conversations a call.
            widths: message lengths that are compiled, ascending.
            max_new_tokens: as given to `make_turn`.
            name: of the policy.
        """
        self.name = name
        self._rows, self._slots = pools[0].k.shape[1] - 1, pools[0].k.shape[3]
        self.capacity = self._rows * len(pools)
        self.num_tokens = 0
        self._turn, self._pools, self._chat = turn, [*pools], chat
        self._batch_size, self._widths = batch_size, tuple(widths)
        self._max_new_tokens = max_new_tokens
        self._params: Any = None
        self._stream: tuple[Any, ...] = ()
        self._open: dict[int, _Open] = {}
        self._free: list[tuple[int, int]] = []  # (pool, row)

    def start(self, params: Any, seed: int, *names: streams.Name) -> None:
        """Forgets all episodes; replies now come from `params` and a random stream.

        Args:
            params: of the model.
            seed: the run's.
            *names: what the stream is for. The samples of episode i are a function of
                (seed, names, i), whatever is played beside it.
        """
        self._params, self._stream = params, (seed, *names)
        self._open = {}
        pools = range(len(self._pools))
        self._free = [(pool, row) for row in range(self._rows) for pool in pools][::-1]

    def conversation(self, index: int) -> Conversation:
        """Returns the tokens of episode `index` of the tasks played since `start`."""
        return self._open[index].record.conversation()

    def act(self, requests: Sequence[Request]) -> Mapping[int, Reply]:
        """Answers those that share a pool's fullest bucket, at most a batch a pool."""
        self._release({request.index for request in requests})
        buckets: list[dict[int, list[Request]]] = [{} for _ in self._pools]
        replies: dict[int, Reply] = {}
        for request in requests:
            opened = self._read(request)
            width = self._width(len(opened.record) - opened.cached)
            room = self._slots - len(opened.record)
            if width is None or room < self._max_new_tokens:
                opened.record.unread()
                replies[request.index] = Reply("", "overflow")
            else:
                buckets[opened.pool].setdefault(width, []).append(request)
        if replies:
            return replies
        calls = [
            (pool, *self._choose(found)) for pool, found in enumerate(buckets) if found
        ]
        with ThreadPoolExecutor(len(calls)) as threads:
            answers = threads.map(lambda call: self._sample(*call), calls)
            for found, tokens in answers:
                replies |= found
                self.num_tokens += tokens
        return replies

    def _choose(
        self, buckets: Mapping[int, list[Request]]
    ) -> tuple[list[Request], int]:
        """A batch of the fullest bucket, filled up from smaller ones, and its width."""
        size = self._batch_size
        width = max(buckets, key=lambda w: (min(len(buckets[w]), size), w))
        chosen = buckets[width][:size]
        for smaller in sorted((w for w in buckets if w < width), reverse=True):
            chosen += buckets[smaller][: size - len(chosen)]
        return chosen, width

    def _release(self, live: set[int]) -> None:
        """Gives the pool rows of ended episodes back."""
        for index, opened in self._open.items():
            if opened.row >= 0 and index not in live:
                self._free.append((opened.pool, opened.row))
                opened.row = -1

    def _width(self, length: int) -> int | None:
        """The smallest compiled width that holds a message."""
        return next((width for width in self._widths if width >= length), None)

    def _read(self, request: Request) -> _Open:
        """Appends the request's message to its record, once a turn."""
        if request.index not in self._open:
            self._open[request.index] = _Open(*self._free.pop())
        opened = self._open[request.index]
        if opened.record.num_turns == request.turn:
            opened.record.read(request.observation, self._chat)
        return opened

    def _sample(
        self, pool: int, chosen: Sequence[Request], width: int
    ) -> tuple[dict[int, Reply], int]:
        """Runs the jitted turn on one pool; returns replies and number of tokens."""
        chunk = self._chunk(chosen, width)
        self._pools[pool], sampled = self._turn(self._params, self._pools[pool], chunk)
        ids, logprobs, lengths, is_cut = (np.asarray(leaf) for leaf in sampled)
        replies = {}
        for row, request in enumerate(chosen):
            opened, count = self._open[request.index], int(lengths[row])
            opened.cached = len(opened.record) + count - 1
            reply = ids[row, :count].tolist()
            opened.record.reply(reply, logprobs[row, :count].tolist())
            label = "length" if is_cut[row] else "running"
            replies[request.index] = Reply(self._chat.decode(reply), label)
        return replies, int(chunk.length.sum() + lengths.sum())

    def _chunk(self, chosen: Sequence[Request], width: int) -> Chunk:
        """Pads the new tokens of the chosen conversations to one array each."""
        batch, patch_shape = self._batch_size, self._chat.patch_shape
        chunk = Chunk(
            ids=np.zeros((batch, width), np.int32),
            positions=np.zeros((3, batch, width), np.int32),
            vision_index=np.full((batch, width), -1, np.int32),
            patches=np.zeros((batch, *patch_shape), np.uint8),
            grids=np.zeros((batch, 2), np.int32),
            rows=np.full(batch, self._rows, np.int32),
            cached=np.zeros(batch, np.int32),
            length=np.zeros(batch, np.int32),
            next_position=np.zeros(batch, np.int32),
            keys=np.zeros((batch, 2), np.uint32),
        )
        for row, request in enumerate(chosen):
            opened = self._open[request.index]
            record, cached = opened.record, opened.cached
            count = len(record) - cached
            chunk.ids[row, :count] = record.ids[cached:]
            # The message's positions, and before them those of the reply it follows.
            recent = np.concatenate(record.positions[-2:], axis=1)
            chunk.positions[:, row, :count] = recent[:, -count:]
            is_shown = np.asarray(record.image[cached:]) >= 0
            place = row * (patch_shape[0] // 4) + np.asarray(
                record.image_token[cached:]
            )
            chunk.vision_index[row, :count] = np.where(is_shown, place, -1)
            if is_shown.any():
                chunk.patches[row], chunk.grids[row] = record.pictures[-1]
            chunk.rows[row], chunk.cached[row] = opened.row, cached
            chunk.length[row] = count
            chunk.next_position[row] = record.next_position
            chunk.keys[row] = streams.key_data(
                *self._stream, request.index, request.turn
            )
        return chunk
