"""One update: advantages, micro-batches, accumulated gradients, one optimizer step."""

import dataclasses
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
        is_cut: whether each ended because a reply or the context was full, [n] bool;
            None for none of them.
    """

    conversations: Sequence[Conversation]
    rewards: np.ndarray
    is_cut: np.ndarray | None = None


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
            tokens, "sequence" each row's by its own, then by rows.
        row_tokens: action tokens of the longest possible row.
        std: what group-relative advantages are divided by.
        leave_one_out: whether a member stays out of its own baseline.
        mask_cut: whether members that were cut off stay out of the loss; they count in
            their group's mean all the same (DAPO's overlong filtering).
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
    aggregation: Literal["constant", "token", "sequence"]
    row_tokens: int
    std: Literal["none", "group", "batch"] = "none"
    leave_one_out: bool = False
    mask_cut: bool = False
    num_minibatches: int = 1
    workers: int = 1
    dump_folder: Path | None = None
    state: TrainState = field(init=False)
    num_rejected: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Builds the programs; nothing compiles before its first call."""
        settings = dataclasses.replace(
            self.settings, by_row=self.aggregation == "sequence"
        )
        self._gradient = make_gradient(
            self.policy.model, self.policy.distribution, settings
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
        return self._total(self._batches(conversations, advantages))

    def _batches(
        self,
        conversations: Sequence[Conversation],
        advantages: Sequence[np.ndarray | float],
    ) -> Iterator[Batch]:
        """Packs rows that have a token and scores them where the loss asks for it."""
        kept = [i for i, c in enumerate(conversations) if (c.turn >= 0).any()]
        for batch in micro_batches(
            [conversations[i] for i in kept], [advantages[i] for i in kept], self.shapes
        ):
            if self.settings.kl_coef:
                reference = self._score(self.policy.params, batch.tokens)
                batch = batch._replace(reference_logprobs=reference)
            if self.settings.importance_cap:
                old = self._score(self.state.params, batch.tokens)
                batch = batch._replace(old_logprobs=old)
            yield batch

    def _total(self, batches: Iterable[Batch]) -> tuple[Any, Metrics]:
        """Adds up the gradients and metrics of micro-batches."""
        total: Any = None
        sums: Metrics = {}
        for grads, part in self._each(batches):
            total = grads if total is None else self._accumulate(total, grads)
            for name, array in part.items():
                value, before = float(array), sums.get(name, 0.0)
                is_max = name.endswith("_max")
                sums[name] = max(before, value) if is_max else before + value
        return total, sums

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
        return float(rows * (self.row_tokens if self.aggregation == "constant" else 1))

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
        rewards = [group.rewards for group in informative]
        advantages = group_relative(
            rewards, std=self.std, leave_one_out=self.leave_one_out
        )
        parts = np.array_split(np.arange(len(informative)), self.num_minibatches)
        minibatches = []
        for part in parts:
            rows, credit = [], []
            for index in part:
                group = informative[index]
                kept = [*range(len(group.rewards))]
                if self.mask_cut and group.is_cut is not None:
                    kept = np.flatnonzero(~group.is_cut).tolist()
                rows += [group.conversations[i] for i in kept]
                credit += advantages[index][kept].tolist()
            # Scored before the first step, by the policy that played.
            minibatches.append((rows, credit, [*self._batches(rows, credit)]))
        for number, (rows, credit, batches) in enumerate(minibatches):
            found = self._minibatch(rows, credit, batches, is_first=number == 0)
            found["skipped_updates"] = metrics["skipped_updates"] + found.get(
                "skipped_updates", 0.0
            )
            metrics |= found
        return metrics

    def imitate(
        self, conversations: Sequence[Conversation], weights: Sequence[float]
    ) -> Metrics:
        """Makes one step toward the replies of demonstrations, each with its weight."""
        batches = self._batches(conversations, weights)
        return self._minibatch(conversations, weights, batches, is_first=False)

    def _minibatch(
        self,
        rows: Sequence[Conversation],
        credit: Sequence[np.ndarray | float],
        batches: Iterable[Batch],
        *,
        is_first: bool,
    ) -> Metrics:
        """One optimizer step on the batches that the rows were packed into."""
        grads, sums = self._total(batches)
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
