"""A local model as a player: tokens in are tokens out."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from aes_hdc import streams
from aes_hdc.episode import Conversation
from aes_hdc.policy.sampling import Chunk, Pool, PrefillShape, Prompts
from aes_hdc.rollouts.chat import Chat
from aes_hdc.rollouts.collect import Reply, Request
from aes_hdc.rollouts.record import Record


@dataclass(eq=False)
class _Open:
    """An episode's record and its place in a pool; row -1 once it has ended."""

    record: Record
    opening: bytes  # Digest of the first message.
    pool: int
    row: int
    source: int  # The row that holds the tokens so far: its own, or its leader's.
    cached: int = 0  # Tokens whose keys are in the pool; the rest opens the next chunk.

    @property
    def unread(self) -> int:
        """Tokens that wait to be prefilled."""
        return len(self.record) - self.cached


class ModelPlayer:
    """Samples replies with a KV cache and records every token with its log-probability.

    A round prefills the message of every open episode, in few calls of few shapes, and
    decodes all replies; an ended episode makes room before the next round. Episodes
    that begin with the same message, as the members of a group do, share its prefill.
    With several pools as many rounds run side by side, which a small model needs to
    fill the cores of a CPU.

    Attributes:
        name: of the policy, for episode records.
        capacity: episodes open at once, the pools' rows.
        num_tokens: tokens prefilled and sampled so far, for throughput.
    """

    def __init__(
        self,
        prefill: Any,
        decode: Any,
        pools: Sequence[Pool],
        chat: Chat,
        *,
        shapes: Sequence[PrefillShape],
        batch_size: int,
        max_new_tokens: int,
        name: str = "model",
    ) -> None:
        """Binds the jitted programs to pools.

        Args:
            prefill: made by `policy.sampling.make_prefill`.
            decode: made by `policy.sampling.make_decode`.
            pools: of one shape, made by `policy.sampling.init_pool`.
            chat: text and frames to tokens and patches.
            shapes: of prefills, from small to large.
            batch_size: replies a decode.
            max_new_tokens: as given to `make_decode`.
            name: of the policy.
        """
        self.name = name
        self._rows, self._slots = pools[0].k.shape[1] - 1, pools[0].k.shape[3]
        self.capacity = self._rows * len(pools)
        self.num_tokens = 0
        self._prefill, self._decode = prefill, decode
        self._pools, self._chat = [*pools], chat
        self._shapes, self._batch_size = tuple(shapes), batch_size
        self._max_new_tokens = max_new_tokens
        self._params: Any = None
        self._stream: tuple[Any, ...] = ()
        self._episodes: dict[int, _Open] = {}
        self._free: list[list[int]] = []  # Rows, by pool.

    def start(self, params: Any, seed: int, *names: streams.Name) -> None:
        """Forgets all episodes; replies now come from `params` and a random stream.

        Args:
            params: of the model.
            seed: the run's.
            *names: what the stream is for. The samples of episode i are a function of
                (seed, names, i), whatever is played beside it.
        """
        self._params, self._stream = params, (seed, *names)
        self._episodes = {}
        self._free = [[*range(self._rows)][::-1] for _ in self._pools]

    def conversation(self, index: int) -> Conversation:
        """Returns the tokens of episode `index` of the tasks played since `start`."""
        return self._episodes[index].record.conversation()

    def act(self, requests: Sequence[Request]) -> Mapping[int, Reply]:
        """Answers every request."""
        self._release({request.index for request in requests})
        rounds: list[list[tuple[Request, _Open]]] = [[] for _ in self._pools]
        replies: dict[int, Reply] = {}
        homes: dict[bytes, int] = {}  # Pools, by first message.
        for request in requests:
            opened = self._read(request, homes)
            room = self._slots - len(opened.record)
            if self._shape(opened) is None or room < self._max_new_tokens:
                opened.record.unread()
                replies[request.index] = Reply("", "overflow")
            else:
                rounds[opened.pool].append((request, opened))
        with ThreadPoolExecutor(len(rounds)) as threads:
            for found, tokens in threads.map(self._round, range(len(rounds)), rounds):
                replies |= found
                self.num_tokens += tokens
        return replies

    def _release(self, live: set[int]) -> None:
        """Gives the pool rows of ended episodes back."""
        for index, opened in self._episodes.items():
            if opened.row >= 0 and index not in live:
                self._free[opened.pool].append(opened.row)
                opened.row = -1

    def _read(self, request: Request, homes: dict[bytes, int]) -> _Open:
        """Appends the request's message to its record, once a turn.

        Args:
            request: who waits.
            homes: the pool of each first message; episodes that open alike go to one
                pool while it has room.
        """
        opened = self._episodes.get(request.index)
        if opened is not None:
            if opened.record.num_turns == request.turn:
                opened.record.read(request.observation, self._chat)
            return opened
        record = Record()
        record.read(request.observation, self._chat)
        opening = _digest(record)
        pool = homes.get(opening, -1)
        if pool < 0 or not self._free[pool]:
            pool = max(range(len(self._pools)), key=lambda p: len(self._free[p]))
            homes[opening] = pool
        row = self._free[pool].pop()
        opened = self._episodes[request.index] = _Open(record, opening, pool, row, row)
        return opened

    def _shape(self, opened: _Open) -> PrefillShape | None:
        """The smallest compiled shape that holds what is unread."""
        fitting = (s for s in self._shapes if s.holds(opened.unread, opened.cached))
        return next(fitting, None)

    def _round(
        self, pool: int, waiting: Sequence[tuple[Request, _Open]]
    ) -> tuple[dict[int, Reply], int]:
        """Answers all requests of one pool; returns replies and number of tokens."""
        replies, num_tokens = {}, 0
        for shape, chosen in self._calls(_leaders([o for _, o in waiting])):
            self._pools[pool] = self._prefill(
                self._params,
                self._pools[pool],
                self._chunk(chosen, shape),
                span=shape.span,
            )
            num_tokens += sum(opened.unread for opened in chosen)
        for start in range(0, len(waiting), self._batch_size):
            batch = waiting[start : start + self._batch_size]
            self._pools[pool], sampled = self._decode(
                self._params, self._pools[pool], self._prompts(batch)
            )
            ids, logprobs, lengths, is_cut = (np.asarray(leaf) for leaf in sampled)
            for place, (request, opened) in enumerate(batch):
                count = int(lengths[place])
                opened.cached = len(opened.record) + count - 1
                opened.source = opened.row
                reply = ids[place, :count].tolist()
                opened.record.reply(reply, logprobs[place, :count].tolist())
                label = "length" if is_cut[place] else "running"
                replies[request.index] = Reply(self._chat.decode(reply), label)
            num_tokens += int(lengths.sum())
        return replies, num_tokens

    def _calls(
        self, opened: Sequence[_Open]
    ) -> Iterator[tuple[PrefillShape, list[_Open]]]:
        """Deals unread messages out to calls, filled up from smaller shapes."""
        buckets: dict[PrefillShape, list[_Open]] = {s: [] for s in self._shapes}
        for one in opened:
            shape = self._shape(one)
            assert shape is not None
            buckets[shape].append(one)
        for shape in reversed(self._shapes):
            bucket = buckets.pop(shape)
            while bucket:
                chosen, bucket = bucket[: shape.rows], bucket[shape.rows :]
                for smaller in buckets.values():
                    fitting = [o for o in smaller if shape.holds(o.unread, o.cached)]
                    for one in fitting[: shape.rows - len(chosen)]:
                        smaller.remove(one)
                        chosen.append(one)
                yield shape, chosen

    def _chunk(self, chosen: Sequence[_Open], shape: PrefillShape) -> Chunk:
        """Pads the unread tokens of the chosen conversations to one array each."""
        batch, width = shape.rows, shape.width
        patch_shape = self._chat.patch_shape
        chunk = Chunk(
            ids=np.zeros((batch, width), np.int32),
            positions=np.zeros((3, batch, width), np.int32),
            vision_index=np.full((batch, width), -1, np.int32),
            patches=np.zeros((batch, *patch_shape), np.uint8),
            grids=np.zeros((batch, 2), np.int32),
            rows=np.full(batch, self._rows, np.int32),
            cached=np.zeros(batch, np.int32),
            length=np.zeros(batch, np.int32),
        )
        for row, opened in enumerate(chosen):
            record, cached, count = opened.record, opened.cached, opened.unread
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
        return chunk

    def _prompts(self, batch: Sequence[tuple[Request, _Open]]) -> Prompts:
        """Says where the replies of a batch begin."""
        size = self._batch_size
        prompts = Prompts(
            source=np.full(size, self._rows, np.int32),
            rows=np.full(size, self._rows, np.int32),
            length=np.zeros(size, np.int32),
            next_position=np.zeros(size, np.int32),
            keys=np.zeros((size, 2), np.uint32),
        )
        for place, (request, opened) in enumerate(batch):
            prompts.source[place], prompts.rows[place] = opened.source, opened.row
            prompts.length[place] = len(opened.record)
            prompts.next_position[place] = opened.record.next_position
            prompts.keys[place] = streams.key_data(
                *self._stream, request.index, request.turn
            )
        return prompts


def _digest(record: Record) -> bytes:
    """A digest of the tokens and pictures of a record."""
    digest = hashlib.sha256(np.asarray(record.ids, np.int32).tobytes())
    for patches, grid in record.pictures:
        digest.update(grid.tobytes())
        digest.update(patches.tobytes())
    return digest.digest()


def _leaders(opened: Sequence[_Open]) -> list[_Open]:
    """Those to be prefilled: of episodes that open alike, the first for all.

    The others will read its row, and keep their own from the first reply on.
    """
    leaders: dict[bytes, _Open] = {}
    chosen = []
    for one in opened:
        leader = leaders.setdefault(one.opening, one) if not one.cached else one
        if leader is one:
            chosen.append(one)
        else:
            one.source = leader.row
    return chosen
