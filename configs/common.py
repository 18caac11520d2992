"""What config files share: the argument after the colon."""

import difflib
from types import SimpleNamespace

import ml_collections as mlc

from aes_hdc.errors import UserError


def parse_arg(arg: str, **defaults: str | int | float | bool) -> SimpleNamespace:
    """Types a config's argument, as in `--config=FILE:model=2b,smoke`.

    Args:
        arg: `name=value` pairs joined by commas; a bare `name` means true.
        defaults: the known names; each default gives the type of its values.

    Returns:
        The defaults with the given values in their place, as attributes.

    Raises:
        UserError: for an unknown or repeated name, or a value of another type.
    """
    options = dict(defaults)
    given = set()
    for part in filter(None, arg.split(",")):
        name, equals, text = part.partition("=")
        if name not in defaults:
            near = difflib.get_close_matches(name, defaults, n=1)
            hint = f"did you mean {near[0]}; " if near else ""
            raise UserError(
                f"config argument {name!r}: no such argument; {hint}have"
                f" {', '.join(sorted(defaults)) or 'none'}"
            )
        if name in given:
            raise UserError(f"config argument {name!r} is given twice; give it once")
        given.add(name)
        options[name] = _typed(name, text if equals else "true", defaults[name])
    return SimpleNamespace(**options)


def one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    """Returns the value of a config's argument if it is a known one.

    Raises:
        UserError: if it is not.
    """
    if value not in known:
        raise UserError(f"config argument {name}={value}: have {', '.join(known)}")
    return value


def _typed(
    name: str, text: str, default: str | int | float | bool
) -> str | int | float | bool:
    """Reads `text` as the type of `default`."""
    kind = type(default)
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return kind(text)
    except (KeyError, ValueError):
        raise UserError(
            f"config argument {name}={text!r}: give a value of type {kind.__name__}"
        ) from None


def tiny_model_config() -> mlc.ConfigDict:
    """Returns every section with the values that suit the embedded tiny model."""
    config = mlc.ConfigDict({"seed": 0})
    config.environments = {
        "suite": "",  # Our own; "minigrid" loads foreign ones.
        "pool": (),  # Every environment that may be trained on.
        "ood": (),
        "ladder": (
            "all",
            "rules+observation+state",
            "rules+observation",
            "rules",
            "none",
        ),
        "top_level": 1,
        "frame_px": 96,
        "max_turns": 5,
    }
    config.model = {
        "folder": "",  # The embedded one.
        "dtype": "float32",
        "unroll": True,
        "remat": "",  # What is computed again: "", "dots" or "full".
        "mesh": (1, 1, 1),  # Devices along data, fsdp and tp.
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
    }
    config.rollout = {
        "capacity": 128,
        "pools": 2,  # Of the capacity; as many calls run side by side: one core each.
        # Messages a call, tokens of one, tokens before it, conversations it may open.
        "prefill": ((8, 144, 0, 8), (16, 64, 576), (8, 144, 576)),
        "decode": ((32, 576),),  # Replies a call, tokens before one.
        "max_new_tokens": 8,
    }
    config.collect = {"instances": 20, "harness": "rules", "strong_success": 0.7}
    config.profile = {"min_trajectories": 4, "min_instances": 3, "num_bootstraps": 500}
    config.gradients = {
        "blocks": 8,
        "groups_per_block": 3,
        "group_size": 8,
        "sketch_size": 16381,
        "window": mlc.config_dict.placeholder(int),
    }
    config.selection = {
        "rule": "aes",  # Or "random" with as many, or "all".
        "num_picks": 0,  # 0 stops when every core ability is covered.
        "core_weight": 1.0,
        "soft_weight": 0.3,
        "coverage_weight": 1.0,
        "redundancy_weight": 0.3,
        "conflict_weight": 0.3,
        "conflict_z": 2.0,
        "ability_share": 0.5,
        "use_idf": True,
        "soft_covers": False,
        "require_new_core": False,
    }
    config.curriculum = {
        "alpha": 0.5,
        "p_cur": 0.8,
        "scale_threshold": 0.6,
        "harness_threshold": 0.7,
        "scale_groups": 4,
        "harness_groups": 8,
        "start_level": 0,
        "patience": 20,
        "arm": "both",
    }
    config.learner = {
        "algorithm": "grpo",
        "num_updates": 60,
        "num_groups": 12,
        "group_size": 8,
        "num_epochs": 1,
        "num_minibatches": 1,
        "workers": 2,  # Micro-batches side by side: one core each.
        "aggregation": "constant",
        "checkpoint_every": 10,
        "example_every": 20,
        "shapes": (  # rows, slots, sampled tokens a row, pictures in all
            (8, 64, 8, 8),
            (8, 128, 32, 24),
            (4, 256, 40, 20),
            (2, 576, 40, 10),
        ),
    }
    config.learner.grpo = {
        "std": "none",
        "leave_one_out": False,
        "mask_cut": False,
        "credit": "episode",
        "discount": 1.0,
    }
    config.learner.ppo = {
        "level": "bilevel",
        "discount": 0.99,
        "gae_lambda": 0.95,
        "token_discount": 1.0,
        "token_gae_lambda": 1.0,
        "whiten": True,
        "bootstrap": False,
        "critic_warmup": 10,
    }
    config.learner.shaping = {"format_bonus": 0.0, "length_cost": 0.0, "step_cost": 0.0}
    config.learner.loss = {
        "kind": "policy",
        "ratio": "token",
        "clip_low": 0.2,
        "clip_high": 0.28,
        "dual_clip": 3.0,
        "importance_cap": 0.0,
        "kl": "k3",
        "kl_coef": 0.0,
        "entropy_coef": 0.0,
        "value_coef": 0.0,
        "value_clip": 0.2,
    }
    config.learner.optimizer = {
        "learning_rate": 3e-4,
        "warmup_steps": 3,
        "decay_steps": 0,
        "b2": 0.95,
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "value_rate": 1.0,
    }
    # TensorBoard where tensorboardX is installed; wandb: "off", "offline", "online".
    config.logging = {"tensorboard": True, "wandb": "off"}
    config.evaluation = {
        "levels": (0, 1),
        "harnesses": {"none": 32, "rules": 8, "all": 8},
        "samples": 1,  # Episodes an instance.
        "pass_at": 1,  # k of pass@k, at most `samples`; 1 is plain success.
        "greedy": False,
        "bootstraps": 2000,
    }
    return config


def use_ppo(config: mlc.ConfigDict) -> None:
    """Trains with PPO: a value head, minibatches, more instances of fewer episodes.

    The curriculum counts evidence by instance, so groups keep a few members.
    """
    config.learner.algorithm = "ppo"
    config.learner.update({"num_groups": 24, "group_size": 4})
    config.learner.num_minibatches = 4
    config.learner.optimizer.value_rate = 10.0
    config.learner.aggregation = "token"
    config.learner.loss.update({"clip_high": 0.2, "value_coef": 0.5})


def use_qwen3_vl(config: mlc.ConfigDict, size: str) -> None:
    """Trains a public model: bfloat16 products, float32 parameters, layers in loops.

    Frames of 224 pixels are enlarged to 256: 64 tokens each.
    """
    config.environments.frame_px = 224
    config.model.folder = f"Qwen3-VL-{size}-Instruct"
    config.model.update({"dtype": "bfloat16", "unroll": False, "remat": "full"})
    config.rollout.update({"capacity": 127, "pools": 1, "max_new_tokens": 64})
    config.rollout.prefill = ((32, 768, 0, 8), (64, 256, 2048))
    config.rollout.decode = ((128, 2048),)
    config.learner.workers = 1
    config.learner.update({"num_groups": 32, "checkpoint_every": 20})
    config.learner.shapes = ((64, 1024, 128, 64), (32, 2048, 320, 160))
    config.learner.optimizer.update({"learning_rate": 1e-6, "warmup_steps": 5})


def shrink(config: mlc.ConfigDict) -> None:
    """Brings a config to toy sizes: the same path in a minute, with no result."""
    config.environments.pool = ("count_objects", "frozen_lake", "lights_out")
    config.environments.ood = ("odd_one_out",)
    config.rollout.update({"capacity": 16})
    config.collect.instances = 4
    config.profile.min_trajectories = 2
    config.selection.rule = "all"  # So few trajectories show no core ability.
    config.gradients.update({"blocks": 3, "groups_per_block": 1, "group_size": 2})
    config.learner.update({"num_updates": 3, "num_groups": 2, "group_size": 4})
    config.learner.update({"checkpoint_every": 1, "example_every": 1})
    config.evaluation.update({"levels": (0,), "bootstraps": 200})
    config.evaluation.harnesses = {"none": 4}
