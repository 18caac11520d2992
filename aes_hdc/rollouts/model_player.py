"""A local model as a player: tokens in are tokens out."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

from aes_hdc import streams
from aes_hdc.clock import Stopwatch
from aes_hdc.episode import Conversation, message_digest
from aes_hdc.policy.sampling import DecodeShape, Pool, PrefillShape
from aes_hdc.rollouts import calls
from aes_hdc.rollouts.calls import Open
from aes_hdc.rollouts.chat import Chat
from aes_hdc.rollouts.collect import Reply, Request
from aes_hdc.rollouts.record import Record


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
        counts: tokens prefilled and sampled since `start`.
        seconds: where the time goes: pictures, prefills and decodes.
    """

    def __init__(
        self,
        prefill: Any,
        decode: Any,
        pools: Sequence[Pool],
        chat: Chat,
        *,
        prefill_shapes: Sequence[PrefillShape],
        decode_shapes: Sequence[DecodeShape],
        max_new_tokens: int,
        name: str = "model",
    ) -> None:
        """Binds the jitted programs to pools.

        Args:
            prefill: made by `policy.sampling.make_prefill`.
            decode: made by `policy.sampling.make_decode`.
            pools: of one shape, made by `policy.sampling.init_pool`.
            chat: text and frames to tokens and patches.
            prefill_shapes: from small to large.
            decode_shapes: from small to large; the last one's span is the length of
                the longest conversation.
            max_new_tokens: as given to `make_decode`.
            name: of the policy.
        """
        self.name = name
        self._rows = pools[0].k.shape[1] - 1
        self.capacity = self._rows * len(pools)
        self.counts = {"prefilled": 0, "sampled": 0}
        self.seconds = Stopwatch()
        self._prefill, self._decode = prefill, decode
        self._pools, self._chat = [*pools], chat
        # One for life: memory that a thread has used stays with it.
        self._threads = ThreadPoolExecutor(len(pools))
        self._prefill_shapes = tuple(prefill_shapes)
        self._decode_shapes = tuple(decode_shapes)
        self._max_new_tokens = max_new_tokens
        self._params: Any = None
        self._seed = 0
        self._names: tuple[streams.Name, ...] = ()
        self._episodes: dict[int, Open] = {}
        self._free: list[list[int]] = []  # Rows, by pool.

    def start(
        self,
        params: Any,
        seed: int,
        *names: streams.Name,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        """Forgets all episodes; replies now come from `params` and a random stream.

        Args:
            params: of the model.
            seed: the run's.
            *names: what the stream is for. The samples of episode i are a function of
                (seed, names, i), whatever is played beside it.
            stopwatch: told the seconds spent in pictures, prefills and decodes.
        """
        self.counts = {"prefilled": 0, "sampled": 0}
        self.seconds = stopwatch or Stopwatch()
        self._params, self._seed, self._names = params, seed, names
        self._episodes = {}
        self._free = [[*range(self._rows)][::-1] for _ in self._pools]

    def conversation(self, index: int) -> Conversation:
        """Returns the tokens of episode `index` of the tasks played since `start`."""
        return self._episodes[index].record.conversation()

    def act(self, requests: Sequence[Request]) -> Mapping[int, Reply]:
        """Answers every request."""
        self._release({request.index for request in requests})
        rounds: list[list[Open]] = [[] for _ in self._pools]
        replies: dict[int, Reply] = {}
        homes: dict[bytes, int] = {}  # Pools, by first message.
        for request in requests:
            with self.seconds.watch("picture"):
                opened = self._read(request, homes)
            room = self._decode_shapes[-1].span - len(opened.record)
            fits = calls.fitting(self._prefill_shapes, opened) is not None
            if not fits or room < self._max_new_tokens:
                opened.record.unread()
                replies[request.index] = Reply("", "overflow")
            else:
                rounds[opened.pool].append(opened)
        for found, prefilled, sampled in self._threads.map(
            self._round, range(len(rounds)), rounds
        ):
            replies |= {opened.index: reply for opened, reply in found}
            self.counts["prefilled"] += prefilled
            self.counts["sampled"] += sampled
        return replies

    def _release(self, live: set[int]) -> None:
        """Gives the pool rows of ended episodes back."""
        for index, opened in self._episodes.items():
            if opened.row >= 0 and index not in live:
                self._free[opened.pool].append(opened.row)
                opened.row = -1

    def _read(self, request: Request, homes: dict[bytes, int]) -> Open:
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
        opening = message_digest(record.ids, record.pictures)
        pool = homes.get(opening, -1)
        if pool < 0 or not self._free[pool]:
            pool = max(range(len(self._pools)), key=lambda p: len(self._free[p]))
            homes[opening] = pool
        row = self._free[pool].pop()
        opened = Open(request.index, record, opening, pool, row)
        self._episodes[request.index] = opened
        return opened

    def _round(
        self, pool: int, waiting: Sequence[Open]
    ) -> tuple[list[tuple[Open, Reply]], int, int]:
        """Answers all conversations of one pool.

        Returns:
            The replies, and how many tokens were prefilled and sampled.
        """
        with self.seconds.watch("prefill"):
            prefilled = self._prefill_all(pool, waiting)
        replies, sampled = [], 0
        for shape, chosen in calls.deal_replies(waiting, self._decode_shapes):
            prompts = calls.make_prompts(
                chosen,
                shape,
                scratch=self._rows,
                seed=self._seed,
                names=self._names,
            )
            with self.seconds.watch("decode"):
                self._pools[pool], found = self._decode(
                    self._params, self._pools[pool], prompts, span=shape.span
                )
                ids, logprobs, lengths, is_cut = jax.device_get(found)
            for place, opened in enumerate(chosen):
                count = int(lengths[place])
                opened.cached = len(opened.record) + count - 1
                reply = ids[place, :count].tolist()
                opened.record.reply(reply, logprobs[place, :count].tolist())
                label = "length" if is_cut[place] else "running"
                replies.append((opened, Reply(self._chat.decode(reply), label)))
            sampled += int(lengths.sum())
        return replies, prefilled, sampled

    def _prefill_all(self, pool: int, waiting: Sequence[Open]) -> int:
        """Reads all waiting messages of one pool; returns the number of tokens."""
        prefilled = 0
        for shape, messages in calls.deal_messages(waiting, self._prefill_shapes):
            chunk = calls.make_chunk(
                messages,
                shape,
                patch_shape=self._chat.patch_shape,
                scratch=self._rows,
            )
            self._pools[pool] = self._prefill(
                self._params, self._pools[pool], chunk, span=shape.span
            )
            prefilled += int(chunk.length.sum())
        # Else the decode that follows would be charged with the wait.
        jax.block_until_ready(self._pools[pool].hidden)
        return prefilled
