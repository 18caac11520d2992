"""From config sections to the objects that play and learn."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from aes_hdc import storage
from aes_hdc.errors import UserError
from aes_hdc.learner.batch import Shape
from aes_hdc.learner.gae import Gae
from aes_hdc.learner.losses import LossSettings
from aes_hdc.learner.optimizer import make_optimizer
from aes_hdc.models.qwen3_vl.model import Qwen3VL
from aes_hdc.models.qwen3_vl.weights import load_folder, save_folder
from aes_hdc.models.sharding import make_mesh, on_mesh
from aes_hdc.policy.distribution import TokenDistribution
from aes_hdc.policy.sampling import (
    DecodeShape,
    PrefillShape,
    init_pool,
    make_decode,
    make_prefill,
)
from aes_hdc.rollouts.chat import Chat
from aes_hdc.rollouts.model_player import ModelPlayer
from experiments.algorithms import Algorithm, Grpo, Ppo
from experiments.learning import Learner, Policy

EMBEDDED = Path(__file__).parent.parent / "aes_hdc" / "assets" / "tiny_vl"


def load_policy(
    *,
    folder: str,
    dtype: str,
    frame_px: int,
    unroll: bool,
    remat: str = "",
    mesh: Sequence[int] = (1, 1, 1),
    **sampling: Any,
) -> Policy:
    """Loads a Hugging Face folder; an empty name is the embedded tiny model.

    Args:
        folder: with config.json, weights and tokenizer.
        dtype: of activations.
        frame_px: side of the frames that are shown.
        unroll: whether the layer loops are written out.
        remat: what the backward pass computes again: "", "dots" or "full".
        mesh: sizes (data, fsdp, tp); all 1 is one device, without a mesh.
        **sampling: temperature, top_k, top_p and min_p of `TokenDistribution`.
    """
    path = Path(folder) if folder else EMBEDDED
    devices = None if tuple(mesh) == (1, 1, 1) else make_mesh(*mesh)
    config, params = load_folder(path, mesh=devices)
    chat = Chat.from_folder(path, config, frame_px=frame_px)
    model = Qwen3VL(
        config, dtype=jax.numpy.dtype(dtype), unroll=unroll, remat=remat or None
    )
    distribution = TokenDistribution(chat.forbidden_ids, **sampling)
    return Policy(model, params, chat, distribution, path, devices)


def make_player(
    policy: Policy,
    *,
    capacity: int,
    prefill: Sequence[tuple[int, ...]],
    decode: Sequence[tuple[int, int]],
    max_new_tokens: int,
    pools: int = 1,
    greedy: bool = False,
    name: str = "model",
) -> ModelPlayer:
    """Returns a player of the policy's model; `start` gives it parameters.

    Raises:
        UserError: for several pools on a mesh.
    """
    prefill_shapes = [PrefillShape(*shape) for shape in prefill]
    decode_shapes = [DecodeShape(*shape) for shape in decode]
    # Behind the longest conversation there is room for the widest write.
    widest = max(max_new_tokens, *(shape.width for shape in prefill_shapes))
    slots = decode_shapes[-1].span + widest
    model, mesh = policy.model, policy.mesh
    _check_alone("rollout.pools", pools, mesh)
    decode_program = make_decode(
        model,
        policy.distribution,
        max_new_tokens=max_new_tokens,
        end_ids=policy.chat.end_ids,
        greedy=greedy,
    )
    return ModelPlayer(
        on_mesh(mesh, make_prefill(model)),
        on_mesh(mesh, decode_program),
        [init_pool(model, capacity // pools, slots, mesh) for _ in range(pools)],
        policy.chat,
        prefill_shapes=prefill_shapes,
        decode_shapes=decode_shapes,
        max_new_tokens=max_new_tokens,
        name=name,
    )


def make_learner(
    policy: Policy,
    section: Mapping[str, Any],
    rollout: Mapping[str, Any],
    max_turns: int,
    folder: Path | None = None,
) -> Learner:
    """Builds a learner from the learner section; rollout gives the longest reply.

    Args:
        policy: what learns.
        section: `learner` of the config.
        rollout: `rollout` of the config.
        max_turns: turns of the longest episode.
        folder: where batches are written whose gradients are not finite.

    Raises:
        UserError: if the last shape does not hold the longest episode, or for several
            workers on a mesh.
    """
    _check_alone("learner.workers", section["workers"], policy.mesh)
    shapes = learner_shapes(section["shapes"], policy.chat.patch_shape)
    longest = rollout["max_new_tokens"] * max_turns
    needed, last = rollout["decode"][-1][1], shapes[-1]
    has_room = last.slots >= needed and last.pictures >= max_turns
    if last.openings or not has_room or last.actions < longest:
        raise UserError(
            f"learner.shapes: the last shape is {tuple(section['shapes'][-1])}; it"
            f" needs {needed} slots (rollout.decode), {longest} sampled tokens,"
            f" {max_turns} pictures (environments.max_turns) or more, and no openings"
        )
    return Learner(
        policy=policy,
        optimizer=make_optimizer(**section["optimizer"]),
        settings=LossSettings(**section["loss"]),
        shapes=shapes,
        aggregation=section["aggregation"],
        row_tokens=longest,
        algorithm=make_algorithm(section),
        num_epochs=section["num_epochs"],
        num_minibatches=section["num_minibatches"],
        critic_warmup=section["ppo"]["critic_warmup"],
        workers=section["workers"],
        dump_folder=folder,
    )


def learner_shapes(
    shapes: Sequence[Sequence[int]], patches: tuple[int, int]
) -> list[Shape]:
    """Returns the micro-batch shapes of a config.

    Args:
        shapes: rows, slots, sampled tokens a row and pictures of each, and openings and
            their slots where they are shared.
        patches: of a picture, and values of one.
    """
    found = []
    for rows, slots, actions, pictures, *shared in shapes:
        openings, opening_slots = shared or (0, 0)
        found.append(
            Shape(rows, slots, actions, pictures, patches, openings, opening_slots)
        )
    return found


def _check_alone(name: str, count: int, mesh: Mesh | None) -> None:
    """Programs that run side by side would wait for each other's devices for ever."""
    if mesh is not None and count != 1:
        raise UserError(
            f"{name}={count}: on a mesh ({dict(mesh.shape)}) one program runs at a"
            f" time; set {name}=1"
        )


def make_algorithm(section: Mapping[str, Any]) -> Algorithm:
    """Returns what the learner section asks for.

    Raises:
        UserError: if there is no such algorithm, or the value coefficient does not go
            with it.
    """
    name, weight = section["algorithm"], section["loss"]["value_coef"]
    if name not in ("grpo", "ppo", "imitation"):
        raise UserError(f"learner.algorithm={name}: have grpo, ppo, imitation")
    if (name == "ppo") != (weight > 0):
        raise UserError(
            f"learner.loss.value_coef={weight:g}: algorithm {name!r} needs"
            f" {'a positive one, such as 0.5' if name == 'ppo' else '0'}"
        )
    if name == "ppo":
        settings = dict(section["ppo"])
        settings.pop("critic_warmup")
        whiten, bootstrap = settings.pop("whiten"), settings.pop("bootstrap")
        return Ppo(Gae(**settings), whiten, bootstrap)
    settings = dict(section["grpo"])
    return Grpo(**settings)


def save_policy(policy: Policy, params: Any, folder: Path) -> None:
    """Writes a model folder with the policy's tokenizer and these parameters."""
    save_folder(
        folder,
        policy.model.config,
        params,
        tokenizer_folder=policy.folder,
        preprocessor=storage.read_json(policy.folder / "preprocessor_config.json"),
        generation=storage.read_json(policy.folder / "generation_config.json"),
        dtype=jax.numpy.dtype(_stored_dtype(policy.folder)),
    )


def _stored_dtype(folder: Path) -> str:
    """The type of a folder's weights, which public folders name in several places."""
    data = storage.read_json(folder / "config.json")
    for section in (data, data.get("text_config", {})):
        for key in ("dtype", "torch_dtype"):
            if key in section:
                return section[key]
    return "float32"
