"""One update: credit, micro-batches, accumulated gradients, optimizer steps."""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from aes_hdc import streams
from aes_hdc.episode import Conversation
from aes_hdc.errors import UserError
from aes_hdc.learner.batch import Row, Shape, micro_batches
from aes_hdc.learner.losses import Batch, LossSettings
from aes_hdc.learner.step import (
    TrainState,
    init_state,
    make_accumulate,
    make_apply,
    make_gradient,
    make_score,
)
from aes_hdc.models.qwen3_vl.model import Qwen3VL
from aes_hdc.models.sharding import on_mesh, row_shardings
from aes_hdc.policy.distribution import TokenDistribution
from aes_hdc.policy.logprobs import init_value_head
from aes_hdc.rollouts.chat import Chat
from experiments.algorithms import Algorithm, Grpo, Scored
from experiments.checks import gap_metrics, write_batch
from experiments.groups import Group

Metrics = dict[str, Any]

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
        mesh: what the parameters are spread over; None for one device.
    """

    model: Qwen3VL
    params: Any
    chat: Chat
    distribution: TokenDistribution
    folder: Path
    mesh: Mesh | None = None


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
        algorithm: gives credit.
        num_epochs: times an update goes through what was played.
        num_minibatches: optimizer steps an epoch.
        critic_warmup: updates in which the value's gradient does not reach the core.
        workers: micro-batches computed at a time; above 1 for small models on a CPU.
        dump_folder: where a batch is written that is not finite.
        state: parameters and optimizer state; a step donates it.
        num_rejected: steps in a row that were not finite.
    """

    policy: Policy
    optimizer: optax.GradientTransformation
    settings: LossSettings
    shapes: Sequence[Shape]
    aggregation: Literal["constant", "token", "sequence"]
    row_tokens: int
    algorithm: Algorithm = field(default_factory=Grpo)
    num_epochs: int = 1
    num_minibatches: int = 1
    critic_warmup: int = 0
    workers: int = 1
    dump_folder: Path | None = None
    state: TrainState = field(init=False)
    num_rejected: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Builds the programs; nothing compiles before its first call."""
        settings = dataclasses.replace(
            self.settings, by_row=self.aggregation == "sequence"
        )
        model, distribution = self.policy.model, self.policy.distribution.full()
        mesh = self.policy.mesh
        self._gradient = on_mesh(mesh, make_gradient(model, distribution, settings))
        # One for life: memory that a thread has used stays with it.
        self._threads = ThreadPoolExecutor(self.workers)
        self._accumulate = on_mesh(mesh, make_accumulate())
        self._score = on_mesh(mesh, make_score(model, distribution))
        params = self.policy.params
        if self.settings.kl_coef:  # The first step donates what the state holds.
            params = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))(params)
        if self.algorithm.needs_values:
            width = model.config.text.hidden_size
            head = init_value_head(width)
            if mesh is not None:
                head = jax.device_put(head, NamedSharding(mesh, PartitionSpec()))
            params = {**params, "value": head}
        self.state = init_state(self.optimizer, params)
        places = tuple(leaf.sharding for leaf in jax.tree.leaves(self.state))
        apply = make_apply(self.optimizer, None if mesh is None else places)
        self._apply = on_mesh(mesh, apply)

    @property
    def _truncates(self) -> bool:
        """Whether sampling leaves improbable tokens out."""
        return self.policy.distribution != self.policy.distribution.full()

    @property
    def params(self) -> Any:
        """The model's parameters, without a value head."""
        return {k: v for k, v in self.state.params.items() if k != "value"}

    def gradient(self, rows: Sequence[Row], value_flow: float = 1.0) -> tuple[Any, Any]:
        """Sums gradients and metrics over micro-batches.

        Args:
            rows: what was played; rows without a sampled token carry nothing.
            value_flow: share of the value's gradient that reaches the core.

        Returns:
            Gradients of the summed loss (None where no row has a token) and metric
            sums; those by row as [rows] arrays.
        """
        kept = [i for i, row in enumerate(rows) if len(row.advantages)]
        batches = micro_batches([rows[i] for i in kept], self.shapes)
        total: Any = None
        sums: Metrics = {}
        for places, (grads, part) in self._each(
            lambda batch: self._gradient(self.state.params, batch),
            (
                (places, batch._replace(value_flow=np.float32(value_flow)))
                for places, batch in batches
            ),
        ):
            total = grads if total is None else self._accumulate(total, grads)
            for name, array in jax.device_get(part).items():
                if name.endswith("_by_row"):
                    column = sums.setdefault(name, np.zeros(len(rows)))
                    column[[kept[place] for place in places]] = array[: len(places)]
                elif name.endswith("_max"):
                    sums[name] = np.maximum(sums.get(name, 0.0), float(array))
                else:
                    sums[name] = sums.get(name, 0.0) + float(array)
        return total, sums

    def _each(
        self,
        program: Callable[[Batch], Any],
        batches: Iterable[tuple[list[int], Batch]],
    ) -> Iterator[tuple[list[int], Any]]:
        """Yields the places of each micro-batch and what a program makes of it.

        A small program leaves cores idle: with several workers, programs run side by
        side.
        """

        def work(item: tuple[list[int], Batch]) -> tuple[list[int], Any]:
            places, batch = item
            mesh = self.policy.mesh
            if mesh is not None:
                batch = jax.device_put(batch, row_shardings(batch, mesh))
            return places, jax.block_until_ready(program(batch))

        if self.workers == 1:
            yield from map(work, batches)
        else:
            yield from self._threads.map(work, batches)

    def score(
        self, params: Any, conversations: Sequence[Conversation]
    ) -> Sequence[Scored]:
        """Scores conversations under parameters, each of which has a sampled token."""
        rows = [Row.spread(conversation, 0.0) for conversation in conversations]
        scored: list[Any] = [None] * len(rows)
        for places, device in self._each(
            lambda batch: self._score(params, batch.tokens),
            micro_batches(rows, self.shapes),
        ):
            found = jax.device_get(device)
            for row, place in enumerate(places):
                count = len(rows[place].advantages)
                scored[place] = Scored(
                    found.logprobs[row, :count].astype(np.float64),
                    found.values[row, :count].astype(np.float64),
                    float(found.final_value[row]),
                )
        return scored

    def step(self, grads: Any, divisor: float) -> tuple[float, bool]:
        """Applies summed gradients; returns their norm and whether it was finite."""
        self.state, norm, is_applied = self._apply(
            self.state, grads, np.asarray(divisor, np.float32)
        )
        return float(norm), bool(is_applied)

    def divisor(self, num_rows: int, num_tokens: float) -> float:
        """What the summed loss of so many rows is divided by."""
        if self.aggregation == "token":
            return max(num_tokens, 1.0)
        is_constant = self.aggregation == "constant"
        return float(num_rows * (self.row_tokens if is_constant else 1))

    def update(
        self, groups: Sequence[Group], *, seed: int = 0, step: int = 0
    ) -> Metrics:
        """Learns from groups of rollouts.

        Args:
            groups: what was played.
            seed: the run's; minibatches are drawn from it where there are several.
            step: number of the update, from 0.

        Returns:
            Means over action tokens of the last minibatch's metrics, the gap between
            sampled and recomputed log-probabilities in the first, in all and by
            environment, the gradient's norm, and what the algorithm says.
        """
        broken = [g for g in groups if not np.isfinite(g.rewards).all()]
        if broken:
            self._reject([Row.spread(c, np.nan) for c in broken[0].conversations])
            return {"skipped_updates": 1.0, "degenerate_fraction": 0.0}
        params = self.state.params
        parts, found = self.algorithm.rows(groups, lambda c: self.score(params, c))
        parts = self._with_scores(parts)
        metrics: Metrics = {**found, "skipped_updates": 0.0}
        flow = float(step >= self.critic_warmup)
        rng = streams.generator(seed, "minibatches", step)
        for epoch in range(self.num_epochs):
            order = np.arange(len(parts))
            if self.num_epochs * self.num_minibatches > 1:
                order = rng.permutation(len(parts))
            for number, chosen in enumerate(
                np.array_split(order, self.num_minibatches)
            ):
                rows = [row for index in chosen for row in parts[index]]
                is_first = epoch == number == 0
                told = self._minibatch(rows, flow, is_first=is_first)
                told["skipped_updates"] = metrics["skipped_updates"] + told.get(
                    "skipped_updates", 0.0
                )
                metrics |= told
        return metrics

    def _with_scores(self, parts: list[list[Row]]) -> list[list[Row]]:
        """Adds the scores that the loss asks for, under the policy that played."""
        wants_old = (
            self.settings.importance_cap or self.num_epochs > 1 or self._truncates
        )
        rows = [row for part in parts for row in part if len(row.advantages)]
        if wants_old and any(row.old_logprobs is None for row in rows):
            parts = self._scored(parts, self.state.params, Row.with_old)
        if self.settings.kl_coef:
            parts = self._scored(parts, self.policy.params, Row.with_reference)
        return parts

    def _scored(
        self,
        parts: list[list[Row]],
        params: Any,
        add: Callable[[Row, np.ndarray], Row],
    ) -> list[list[Row]]:
        """Scores every row that has a sampled token."""
        scored = [row for part in parts for row in part if len(row.advantages)]
        found = iter(self.score(params, [row.conversation for row in scored]))
        return [
            [
                add(row, next(found).logprobs) if len(row.advantages) else row
                for row in part
            ]
            for part in parts
        ]

    def imitate(
        self, conversations: Sequence[Conversation], weights: Sequence[float]
    ) -> Metrics:
        """Makes one step toward the replies of demonstrations, each with its weight."""
        rows = [
            Row.spread(conversation, weight)
            for conversation, weight in zip(conversations, weights, strict=True)
        ]
        return self._minibatch(rows, 0.0, is_first=False)

    def _minibatch(
        self, rows: Sequence[Row], value_flow: float, *, is_first: bool
    ) -> Metrics:
        """One optimizer step."""
        grads, sums = self.gradient(rows, value_flow)
        if grads is None:
            return {}
        divisor = self.divisor(len(rows), sums["tokens"])
        norm, is_applied = np.nan, False
        if np.isfinite(sums["loss"]):
            norm, is_applied = self.step(grads, divisor)
        if not is_applied:
            self._reject(rows)
            return {"skipped_updates": 1.0}
        self.num_rejected = 0
        metrics: Metrics = {"loss": sums["loss"] / divisor, "grad_norm": norm}
        if is_first:
            # Sampling that leaves tokens out differs by intention.
            is_32 = self.policy.model.dtype == jnp.float32
            limit = MAX_GAP if is_32 else MAX_GAP_16
            metrics |= gap_metrics(
                rows, sums, limit=np.inf if self._truncates else limit
            )
        tokens = max(sums["tokens"], 1.0)
        metrics |= {
            name: value / tokens
            for name, value in sums.items()
            if name not in ("loss", "tokens") and "logprob_gap" not in name
        }
        return metrics | {"skipped_updates": 0.0}

    def _reject(self, rows: Sequence[Row]) -> None:
        """Counts a batch that was not finite, and keeps it for a replay.

        Raises:
            UserError: at the third in a row.
        """
        self.num_rejected += 1
        where = ""
        if self.dump_folder is not None:
            path = self.dump_folder / f"not_finite_{self.num_rejected}.npz"
            write_batch(path, rows)
            where = f"; the batch is in {path}"
        logging.warning("not finite: the step is left out%s", where)
        if self.num_rejected >= MAX_REJECTED:
            raise UserError(
                f"reward, loss or gradient not finite in {MAX_REJECTED} steps in a"
                f" row{where}; the last checkpoint is good: lower"
                " learner.optimizer.learning_rate and carry on"
            )
