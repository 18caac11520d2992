"""One update: advantages, micro-batches, accumulated gradients, one optimizer step."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from aes_hdc import storage
from aes_hdc.episode import Conversation
from aes_hdc.errors import UserError
from aes_hdc.learner.advantages import group_relative, is_degenerate
from aes_hdc.learner.batch import Shape, micro_batches
from aes_hdc.learner.losses import Batch, LossSettings, Sums
from aes_hdc.learner.step import (
    TrainState,
    make_accumulate,
    make_apply,
    make_gradient,
    make_init,
    make_score,
)
from aes_hdc.models.qwen3_vl.model import Qwen3VL
from aes_hdc.policy.distribution import TokenDistribution
from aes_hdc.rollouts.chat import Chat

Metrics = dict[str, float]

MAX_REJECTED = 3
# Log-probabilities in nats may differ that much between sampling and learning: rounding
# alone makes 1e-5 in float32.
MAX_GAP, MAX_GAP_16 = 1e-3, 0.1


@dataclass(frozen=True)
class Policy:
    """A model folder in memory.

    Attributes:
        model: the shared core.
        params: as loaded.
        chat: text and frames to tokens and patches.
        distribution: what is sampled and scored.
        folder: where it came from.
    """

    model: Qwen3VL
    params: Any
    chat: Chat
    distribution: TokenDistribution
    folder: Path


@dataclass(frozen=True)
class Group:
    """The rollouts of one instance under one condition.

    Attributes:
        conversations: of the valid members.
        rewards: their returns, [n] float64.
    """

    conversations: Sequence[Conversation]
    rewards: np.ndarray


@dataclass
class Learner:
    """Holds the compiled programs and the state they change.

    Attributes:
        policy: the model.
        optimizer: the optax chain.
        settings: the loss.
        shapes: of micro-batches, from small to large.
        aggregation: "constant" divides the summed loss by rows * `row_tokens` (Dr.
            GRPO: no row weighs more for being short), "token" by the number of action
            tokens.
        row_tokens: action tokens of the longest possible row.
        std: what group-relative advantages are divided by.
        num_minibatches: optimizer steps an update.
        workers: micro-batches computed at a time; above 1 for small models on a CPU.
        dump_folder: where a batch is written whose gradient is not finite.
        state: parameters and optimizer state; a step donates it.
        num_rejected: steps in a row whose gradient was not finite.
    """

    policy: Policy
    optimizer: optax.GradientTransformation
    settings: LossSettings
    shapes: Sequence[Shape]
    aggregation: Literal["constant", "token"]
    row_tokens: int
    std: Literal["none", "group", "batch"] = "none"
    num_minibatches: int = 1
    workers: int = 1
    dump_folder: Path | None = None
    state: TrainState = field(init=False)
    num_rejected: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Builds the programs; nothing compiles before its first call."""
        self._gradient = make_gradient(
            self.policy.model, self.policy.distribution, self.settings
        )
        self._accumulate = make_accumulate()
        self._apply = make_apply(self.optimizer)
        self._score = make_score(self.policy.model, self.policy.distribution)
        params = self.policy.params
        if self.settings.kl_coef:  # The first step donates what the state holds.
            params = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))(params)
        self.state = TrainState(params, make_init(self.optimizer)(params))

    def gradient(
        self,
        conversations: Sequence[Conversation],
        advantages: Sequence[np.ndarray | float],
    ) -> tuple[Any, Metrics]:
        """Sums gradients and metrics over micro-batches.

        Args:
            conversations: the rows; those without a sampled token carry nothing.
            advantages: per row a number, or one per turn.

        Returns:
            Gradients of the summed loss (None where no row has a token) and metric
            sums.
        """
        kept = [i for i, c in enumerate(conversations) if (c.turn >= 0).any()]
        batches = micro_batches(
            [conversations[i] for i in kept], [advantages[i] for i in kept], self.shapes
        )
        if self.settings.kl_coef:
            batches = map(self._referenced, batches)
        total: Any = None
        sums: Metrics = {}
        for grads, part in self._each(batches):
            total = grads if total is None else self._accumulate(total, grads)
            for name, array in part.items():
                value, before = float(array), sums.get(name, 0.0)
                is_max = name.endswith("_max")
                sums[name] = max(before, value) if is_max else before + value
        return total, sums

    def _referenced(self, batch: Batch) -> Batch:
        """Fills in the log-probabilities of the policy that training began with."""
        logprobs = self._score(self.policy.params, batch.tokens)
        return batch._replace(reference_logprobs=logprobs)

    def _each(self, batches: Iterable[Batch]) -> Iterator[tuple[Any, Sums]]:
        """Yields the gradient of each micro-batch, in order.

        A small program leaves cores idle: with several workers, programs run side by
        side.
        """
        if self.workers == 1:
            yield from (self._gradient(self.state.params, batch) for batch in batches)
            return

        def work(batch: Batch) -> tuple[Any, Sums]:
            return jax.block_until_ready(self._gradient(self.state.params, batch))

        with ThreadPoolExecutor(self.workers) as pool:
            yield from pool.map(work, batches)

    def step(self, grads: Any, divisor: float) -> tuple[float, bool]:
        """Applies summed gradients; returns their norm and whether it was finite."""
        self.state, norm, is_applied = self._apply(
            self.state, grads, np.asarray(divisor, np.float32)
        )
        return float(norm), bool(is_applied)

    def _divisor(self, rows: int, sums: Metrics) -> float:
        """What the summed loss is divided by."""
        if self.aggregation == "token":
            return max(sums["tokens"], 1.0)
        return float(rows * self.row_tokens)

    def update(self, groups: Sequence[Group]) -> Metrics:
        """Makes one GRPO update of the informative groups, dropping the degenerate.

        Returns:
            Means over action tokens of the last minibatch's metrics, the largest gap
            between sampled and recomputed log-probability in the first, the gradient's
            norm, and the fraction of degenerate groups.
        """
        informative = [g for g in groups if not is_degenerate(g.rewards)]
        metrics = {
            "degenerate_fraction": 1 - len(informative) / max(len(groups), 1),
            "skipped_updates": 0.0,
        }
        parts = np.array_split(np.arange(len(informative)), self.num_minibatches)
        advantages = group_relative([g.rewards for g in informative], std=self.std)
        for number, part in enumerate(parts):
            rows, credit = [], []
            for index in part:
                rows += informative[index].conversations
                credit += advantages[index].tolist()
            found = self._minibatch(rows, credit, is_first=number == 0)
            found["skipped_updates"] = metrics["skipped_updates"] + found.get(
                "skipped_updates", 0.0
            )
            metrics |= found
        return metrics

    def imitate(
        self, conversations: Sequence[Conversation], weights: Sequence[float]
    ) -> Metrics:
        """Makes one step toward the replies of demonstrations, each with its weight."""
        return self._minibatch(conversations, weights, is_first=False)

    def _minibatch(
        self,
        rows: Sequence[Conversation],
        credit: Sequence[np.ndarray | float],
        *,
        is_first: bool,
    ) -> Metrics:
        """One optimizer step."""
        if not rows:
            return {}
        grads, sums = self.gradient(rows, credit)
        if grads is None:
            return {}
        divisor = self._divisor(len(rows), sums)
        norm, is_applied = self.step(grads, divisor)
        if not is_applied:
            self._reject(rows, credit)
            return {"skipped_updates": 1.0}
        self.num_rejected = 0
        tokens = max(sums.pop("tokens"), 1.0)
        gap_max = sums.pop("logprob_gap_max")
        metrics = {"loss": sums.pop("loss") / divisor, "grad_norm": norm}
        metrics |= {name: value / tokens for name, value in sums.items()}
        if is_first:
            metrics["logprob_gap_max"] = gap_max
            limit = MAX_GAP if self.policy.model.dtype == jnp.float32 else MAX_GAP_16
            if gap_max > limit:
                logging.warning(
                    "sampled and recomputed log-probabilities differ by %.3g", gap_max
                )
        else:
            metrics.pop("logprob_gap")
        return metrics | {"skipped_updates": 0.0}

    def _reject(
        self, rows: Sequence[Conversation], credit: Sequence[np.ndarray | float]
    ) -> None:
        """Counts a gradient that was not finite; the third in a row ends the run."""
        self.num_rejected += 1
        logging.warning("gradient not finite: the step is left out")
        if self.num_rejected < MAX_REJECTED:
            return
        where = ""
        if self.dump_folder is not None:
            path = self.dump_folder / "not_finite.npz"
            storage.write_npz(
                path,
                ids=np.concatenate([row.ids for row in rows]),
                turn=np.concatenate([row.turn for row in rows]),
                logprobs=np.concatenate([row.logprobs for row in rows]),
                length=np.array([len(row) for row in rows]),
                advantage=np.concatenate([np.ravel(value) for value in credit]),
            )
            where = f"; the batch is in {path}"
        raise UserError(
            f"gradient not finite in {MAX_REJECTED} steps in a row{where}; the last"
            " checkpoint is good: lower learner.optimizer.learning_rate and carry on"
        )
