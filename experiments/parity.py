"""Compares a checkpoint folder with golden tensors of the reference implementation.

python -m experiments.parity --folder=CHECKPOINT --golden=DIR [--prefix=case_a]

Prints one line per case and quantity, and exits with status 1 if any is off by more
than its tolerance.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aes_hdc.errors import UserError
from aes_hdc.models.qwen3_vl import weights
from aes_hdc.models.qwen3_vl.config import Config
from aes_hdc.models.qwen3_vl.model import Qwen3VL
from aes_hdc.models.qwen3_vl.positions import rope_positions
from aes_hdc.models.qwen3_vl.text import Cache, init_cache

# The goldens continue greedily past this token, which they never choose.
END_TOKEN = 295


class Row(NamedTuple):
    """One line of the table.

    Attributes:
        case: the golden file.
        quantity: what was compared.
        error: the largest difference; of exact quantities, how many values differ.
        tolerance: the largest that float32 rounding explains.
    """

    case: str
    quantity: str
    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the error is within the tolerance; NaN is not."""
        return self.error <= self.tolerance


class Shape(NamedTuple):
    """Sizes to which all cases of a checkpoint are padded, for one program of each."""

    rows: int
    tokens: int
    pictures: int
    patches: int


class Inputs(NamedTuple):
    """One padded case, or a token of it without pictures, as the model takes it."""

    patches: Any
    grids: Any
    ids: Any
    positions: Any
    order: Any
    vision_index: Any


class Case:
    """One golden file, and its inputs padded to a common shape."""

    def __init__(self, path: Path, config: Config) -> None:
        """Opens the file; arrays are read when they are asked for."""
        self.name = path.stem
        self.config = config
        with np.load(path) as file:
            self.golden: Mapping[str, np.ndarray] = {k: file[k] for k in file.files}
        self.mask = self.golden["attention_mask"].astype(bool)
        grids = self.golden.get("image_grid_thw", np.zeros((0, 3), int))
        self.grids = [(int(h), int(w)) for _, h, w in grids]

    @property
    def shape(self) -> Shape:
        """The smallest shape that holds this case."""
        smallest = self.config.vision.merged  # No array is empty in a case of text.
        patches = max((h * w for h, w in self.grids), default=smallest)
        rows, tokens = self.mask.shape
        return Shape(rows, tokens, max(len(self.grids), 1), patches)

    def positions(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns rotary positions [3, B, T] and each row's next position [B]."""
        out, following, at = np.zeros((3, *self.mask.shape), np.int32), [], 0
        merged = self.config.vision.merged
        for row, mask in enumerate(self.mask):
            ids = self.golden["input_ids"][row, mask]
            todo, grids = int((ids == self.config.image_token_id).sum()), []
            while todo > 0:
                grids.append(self.grids[at])
                todo -= grids[-1][0] * grids[-1][1] // merged
                at += 1
            out[:, row, mask], after = rope_positions(
                ids, grids, self.config.image_token_id
            )
            following.append(after)
        return out, np.array(following, np.int32)

    def inputs(self, shape: Shape) -> Inputs:
        """Pads the case to `shape`; rows and pictures beyond its own are empty."""
        vision, merged = self.config.vision, self.config.vision.merged
        rows, tokens = self.mask.shape
        patches = np.zeros(
            (shape.pictures, shape.patches, vision.patch_values), np.uint8
        )
        grids = np.zeros((shape.pictures, 2), np.int32)
        at = 0
        for i, (height, width) in enumerate(self.grids):
            grids[i] = height, width
            count = height * width
            patches[i, :count] = self.golden["pixel_u8"][at : at + count]
            at += count
        padded = np.zeros((shape.rows, shape.tokens), np.int32)
        ids, order, index = padded.copy(), padded - 1, padded - 1
        ids[:rows, :tokens] = self.golden["input_ids"]
        order[:rows, :tokens][self.mask] = (self.mask.cumsum(axis=1) - 1)[self.mask]
        image = (ids == self.config.image_token_id) & (order >= 0)
        index[image] = self.real_rows(shape.patches, merged)
        positions = np.zeros((3, *padded.shape), np.int32)
        positions[:, :rows, :tokens] = self.positions()[0]
        return Inputs(patches, grids, ids, positions, order, index)

    def real_rows(self, padded: int, merged: int = 1) -> np.ndarray:
        """Returns where the patches are if each picture is padded to `padded` of them.

        With `merged` patches to a row, where the tokens are.
        """
        parts = [
            (i * padded + np.arange(0, height * width, merged)) // merged
            for i, (height, width) in enumerate(self.grids)
        ]
        return np.concatenate([*parts, np.zeros(0, int)]).astype(np.int32)


class Programs:
    """The jitted computations of one model."""

    def __init__(self, config: Config, model: Qwen3VL) -> None:
        """Compiles nothing yet."""
        self.config = config
        self.model = model

    @cached_property
    def forward(self) -> Callable[..., dict[str, jax.Array]]:
        """Returns every intermediate that the goldens hold, from params and Inputs."""

        def run(params: Any, x: Inputs) -> dict[str, jax.Array]:
            apply = partial(
                self.model.apply, {"params": params}, mutable="intermediates"
            )
            vision, seen = apply(x.patches, x.grids, method="encode_images")
            seen = seen["intermediates"]["vision"]
            text = (x.ids, x.positions, x.order, vision, x.vision_index)
            (hidden, _), layers = apply(*text)
            layers = layers["intermediates"]["text"].values()
            logits: Any = self.model.apply({"params": params}, hidden, method="logits")
            return {
                "vision_patch_embed": seen["patch_embed"][0],
                "vision_last_hidden": seen["last_hidden"][0],
                "vision_embeds": vision.tokens,
                "deepstack_features": vision.deepstack,
                "text_layer_inputs": jnp.concatenate([x["input"][0] for x in layers]),
                "final_norm": hidden,
                "logits": logits,
                "token_logprobs": _token_logprobs(logits, x.ids),
            }

        return jax.jit(run)

    @cached_property
    def gradient(self) -> Callable[..., Any]:
        """Returns the gradient of the mean log-probability of the tokens."""

        def mean_logprob(params: Any, x: Inputs) -> jax.Array:
            variables = {"params": params}
            vision = self.model.apply(
                variables, x.patches, x.grids, method="encode_images"
            )
            hidden, _ = self.model.apply(
                variables, x.ids, x.positions, x.order, vision, x.vision_index
            )
            logits: Any = self.model.apply(variables, hidden, method="logits")
            mask = (x.order[:, 1:] >= 0) & (x.order[:, :-1] >= 0)
            return (_token_logprobs(logits, x.ids) * mask).sum() / mask.sum()

        return jax.jit(jax.grad(mean_logprob))

    @cached_property
    def chunk(self) -> Callable[..., Any]:
        """Runs Inputs through the cache, to each row's last logits and the cache."""

        def run(params: Any, x: Inputs, cache: Cache, slot: jax.Array) -> Any:
            variables = {"params": params}
            vision = None
            if x.patches is not None:
                vision = self.model.apply(
                    variables, x.patches, x.grids, method="encode_images"
                )
            hidden, after = self.model.apply(
                variables,
                x.ids,
                x.positions,
                x.order,
                vision,
                x.vision_index,
                cache,
                slot,
            )
            hidden = hidden[jnp.arange(len(hidden)), jnp.argmax(x.order, axis=1)]
            return self.model.apply(variables, hidden, method="logits"), after

        return jax.jit(run)

    def generate(
        self, params: Any, case: Case, shape: Shape, steps: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Continues a case greedily through the cache.

        Returns:
            Tokens [B, steps] and the logits they were chosen by, [B, steps, V].
        """
        x = case.inputs(shape)
        cache = init_cache(self.config, shape.rows, shape.tokens + steps, jnp.float32)
        count = x.order.max(axis=1) + 1
        position = np.zeros(shape.rows, np.int32)
        position[: len(case.mask)] = case.positions()[1]
        slot, tokens, all_logits = 0, [], []
        for step in range(steps):
            logits, cache = self.chunk(params, x, cache, np.int32(slot))
            all_logits.append(np.asarray(logits))
            allowed = all_logits[-1].copy()
            allowed[:, END_TOKEN] = -np.inf
            tokens.append(allowed.argmax(axis=-1).astype(np.int32))
            slot = shape.tokens + step
            positions = np.broadcast_to(position + step, (3, shape.rows))[..., None]
            order = (count + step)[:, None]
            x = Inputs(None, None, tokens[-1][:, None], positions, order, None)
        rows = len(case.mask)
        return np.stack(tokens, 1)[:rows], np.stack(all_logits, 1)[:rows]


def compare(folder: Path, golden: Path, prefix: str = "case_") -> Iterator[Row]:
    """Yields the comparison of a checkpoint with the golden files `PREFIX*.npz`.

    Args:
        folder: a Hugging Face checkpoint folder.
        golden: the folder of golden files.
        prefix: start of the file names.

    Raises:
        UserError: if no file matches.
    """
    config, params = weights.load_folder(folder)
    paths = sorted(golden.glob(f"{prefix}*.npz"))
    if not paths:
        raise UserError(f"{golden}: no file {prefix}*.npz")
    cases = [Case(path, config) for path in paths]
    shape = Shape(
        *(max(sizes) for sizes in zip(*(c.shape for c in cases), strict=True))
    )
    programs = Programs(config, Qwen3VL(config))
    # Anything less than full float32 products exceeds the tolerances on accelerators.
    with jax.default_matmul_precision("highest"):
        for case in cases:
            for quantity, error, tolerance in _compare_case(
                programs, params, case, shape
            ):
                yield Row(case.name, quantity, error, tolerance)


def _compare_case(
    programs: Programs, params: Any, case: Case, shape: Shape
) -> Iterator[tuple[str, float, float]]:
    """Yields (quantity, error, tolerance) of one case."""
    golden = case.golden
    positions, following = case.positions()
    yield "position_ids", _count(positions, golden["position_ids"]), 0
    deltas = following - case.mask.sum(axis=1)
    yield "rope_deltas", _count(deltas, golden["rope_deltas"][:, 0]), 0
    x = case.inputs(shape)
    out = {k: np.asarray(v) for k, v in programs.forward(params, x).items()}
    yield from _compare_vision(out, case, shape)
    for key, tolerance in (
        ("text_layer_inputs", 1e-4),
        ("final_norm", 1e-4),
        ("logits", 1e-4),
    ):
        want = golden[key]
        rows, tokens = case.mask.shape
        have = out[key][..., :rows, :tokens, :]
        yield key, _most(have[..., case.mask, :], want[..., case.mask, :]), tolerance
    scored = golden["logprob_mask"].astype(bool)
    have = out["token_logprobs"][: scored.shape[0], : scored.shape[1]]
    yield "token_logprobs", _most(have[scored], golden["token_logprobs"][scored]), 5e-5
    if "grad_names" in golden:
        grads = weights.to_tensors(case.config, programs.gradient(params, x))
        yield from _compare_gradients(grads, golden)
    if "gen_tokens" in golden:
        steps = golden["gen_tokens"].shape[1]
        tokens, logits = programs.generate(params, case, shape, steps)
        yield "gen_tokens", _count(tokens, golden["gen_tokens"]), 0
        yield "gen_logits", _most(logits, golden["gen_logits"]), 1e-4


def _compare_vision(
    out: Mapping[str, np.ndarray], case: Case, shape: Shape
) -> Iterator[tuple[str, float, float]]:
    """Yields the comparisons of the vision tower, relative to the largest value."""
    if not case.grids:
        return
    patches = case.real_rows(shape.patches)
    tokens = case.real_rows(shape.patches, case.config.vision.merged)
    for key, rows in (
        ("vision_patch_embed", patches),
        ("vision_last_hidden", patches),
        ("vision_embeds", tokens),
        ("deepstack_features", tokens),
    ):
        want = case.golden[key]
        have = out[key].reshape(*want.shape[:-2], -1, want.shape[-1])[..., rows, :]
        yield key, _most(have, want) / max(1.0, float(np.abs(want).max())), 2e-5


def _compare_gradients(
    grads: Mapping[str, np.ndarray], golden: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, float, float]]:
    """Yields the relative errors of all norms and of the stored full gradients."""
    names, want = golden["grad_names"], golden["grad_norms"]
    have = np.array([np.linalg.norm(grads[name].astype(np.float64)) for name in names])
    yield (
        "grad_norms",
        float(np.max(np.abs(have - want) / np.maximum(want, 1e-6))),
        1e-4,
    )
    for key, full in golden.items():
        if key.startswith("grad/"):
            scale = max(float(np.abs(full).max()), 1e-6)
            yield key, _most(grads[key.removeprefix("grad/")], full) / scale, 5e-5


def _token_logprobs(logits: jax.Array, ids: jax.Array) -> jax.Array:
    """Returns the log-probability of each next token, [B, T-1]."""
    logprobs = jax.nn.log_softmax(logits[:, :-1])
    return jnp.take_along_axis(logprobs, ids[:, 1:, None], axis=-1)[..., 0]


def _most(have: np.ndarray, want: np.ndarray) -> float:
    """Returns the largest difference; shapes must agree."""
    assert have.shape == want.shape, (have.shape, want.shape)
    return float(np.abs(have - want).max()) if have.size else 0.0


def _count(have: np.ndarray, want: np.ndarray) -> int:
    """Returns how many values differ."""
    return int((have != want).sum())


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="checkpoint folder")
    parser.add_argument(
        "--golden", type=Path, required=True, help="folder of .npz files"
    )
    parser.add_argument("--prefix", default="case_", help="start of their names")
    args = parser.parse_args(argv)
    failures = 0
    try:
        print(f"{'case':<24}{'quantity':<62}{'error':>10}{'tolerance':>11}")
        for row in compare(args.folder, args.golden, args.prefix):
            mark = "" if row.passed else "  over"
            failures += not row.passed
            print(
                f"{row.case:<24}{row.quantity:<62}{row.error:>10.1e}"
                f"{row.tolerance:>11.0e}{mark}"
            )
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{failures} over tolerance" if failures else "all within tolerance")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
