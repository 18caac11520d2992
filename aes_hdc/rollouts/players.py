"""Policies that need no model: the oracle, a noisy oracle, and random legal play."""

from collections.abc import Mapping, Sequence

from aes_hdc import streams
from aes_hdc.rollouts.collect import Reply, Request


class OraclePlayer:
    """Plays the environment's own solution, or a random legal action now and then.

    A turn's choice is a function of (seed, task, place in the list, turn), so an
    episode does not depend on which others are played beside it.

    Attributes:
        name: "oracle", "noisy_oracle" or "random".
    """

    def __init__(
        self, *, noise: float = 0.0, seed: int = 0, capacity: int = 64
    ) -> None:
        """Makes a player that acts at random with probability `noise` in each turn.

        Args:
            noise: in [0, 1]; 1 never asks the oracle.
            seed: of the choices.
            capacity: episodes open at once.
        """
        if not 0 <= noise <= 1:
            raise ValueError(f"noise {noise!r} is no probability; give 0 <= noise <= 1")
        self.name = {0.0: "oracle", 1.0: "random"}.get(noise, "noisy_oracle")
        self.capacity = capacity
        self._noise, self._seed = noise, seed

    def act(self, requests: Sequence[Request]) -> Mapping[int, Reply]:
        """Answers every request."""
        return {request.index: Reply(self._reply(request)) for request in requests}

    def _reply(self, request: Request) -> str:
        """The text of one turn."""
        task, env, state = request.task, request.env, request.state
        names = (task.env_id, task.seed, task.level, request.index, request.turn)
        rng = streams.generator(self._seed, "oracle", *names)
        is_random = rng.random() < self._noise
        reply = None if is_random else env.oracle_reply(state)
        return env.random_reply(state, rng) if reply is None else reply
