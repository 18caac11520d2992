"""Tunix's side of `experiments.benchmarks.peers`; runs in an environment of its own.

It imports nothing of this project. The first argument is a JSON file with the case;
"go" on standard input asks for one step of `GRPOLearner`, and a line of JSON answers.
The model is Tunix's Qwen3 with the sizes of our text decoder; it shows no pictures.
"""

import json
import os
import sys
import time
import zlib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any


def main(path: str) -> None:
    """Trains as many steps as are asked for."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # What libraries print goes to the log.
    import jax
    from flax import nnx
    from transformers import AutoTokenizer
    from tunix.rl.grpo.grpo_learner import GRPOConfig, GRPOLearner

    case = json.loads(Path(path).read_text())
    tokenizer = AutoTokenizer.from_pretrained(case["folder"])
    prompts = [render(tokenizer, text) for text in case["prompts"]]
    model = make_model(case["sizes"])
    cluster = make_cluster(case, model, tokenizer)
    learner = GRPOLearner(
        rl_cluster=cluster,
        algo_config=GRPOConfig(
            num_generations=case["group_size"], num_iterations=1, beta=0.0
        ),
        reward_fns=reward,
    )
    params = jax.tree.leaves(nnx.state(model, nnx.Param))
    packages = ("google-tunix", "jax", "flax")
    hello = {
        "versions": {name: version(name) for name in packages},
        "prompt_tokens": len(tokenizer.encode(prompts[0])),
        "parameters": sum(leaf.size for leaf in params),
    }
    answers.write(json.dumps(hello) + "\n")
    learner.train(batches(prompts, cluster, answers))


def batches(prompts: list[str], cluster: Any, answers: Any) -> Iterator[dict[str, Any]]:
    """Yields the same prompts again and again, and tells what each step took.

    A step lasts from where the learner gets a batch to where it asks for the next.
    """
    import jax
    import numpy as np
    from flax import nnx

    counts: list[int] = []
    generate = cluster.rollout.generate

    def counted(*args: Any, **kwargs: Any) -> Any:
        found = generate(*args, **kwargs)
        counts.append(sum(len(tokens) for tokens in found.tokens))
        return found

    cluster.rollout.generate = counted
    while sys.stdin.readline():
        counts.clear()
        cpu, wall = time.process_time(), time.perf_counter()
        yield {"prompts": np.array(prompts)}
        # The optimizer may still be at work behind the learner's back.
        jax.block_until_ready(nnx.state(cluster.actor_trainer.model))
        told = {
            "cpu": time.process_time() - cpu,
            "wall": time.perf_counter() - wall,
            "tokens": sum(counts),
            "reward_std": DEVIATIONS[-1],
        }
        answers.write(json.dumps(told) + "\n")
    os._exit(0)


def make_model(sizes: dict[str, int]) -> Any:
    """Returns a decoder of random weights, float32, nothing recomputed."""
    from flax import nnx
    from tunix.models.qwen3.model import ModelConfig, Qwen3

    config = ModelConfig(
        num_layers=sizes["num_hidden_layers"],
        vocab_size=sizes["vocab_size"],
        embed_dim=sizes["hidden_size"],
        hidden_dim=sizes["intermediate_size"],
        num_heads=sizes["num_attention_heads"],
        head_dim=sizes["head_dim"],
        num_kv_heads=sizes["num_key_value_heads"],
        norm_eps=1e-6,
        rope_theta=5_000_000,
        use_tied_embedding=True,
    )
    return Qwen3(config, rngs=nnx.Rngs(0))


def make_cluster(case: dict[str, Any], model: Any, tokenizer: Any) -> Any:
    """Returns actor and rollout on one device; they share their weights."""
    import jax
    import optax
    from tunix.rl import rl_cluster
    from tunix.rl.rollout.base_rollout import RolloutConfig

    mesh = jax.sharding.Mesh([[jax.devices()[0]]], ("fsdp", "tp"))
    role, new = rl_cluster.Role, case["new_tokens"]
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(case["learning_rate"])
    )
    training = rl_cluster.RLTrainingConfig(
        actor_optimizer=optimizer,
        eval_every_n_steps=10**9,
        max_steps=case["steps"] + 1,  # The last step is told when one more begins.
        mini_batch_size=len(case["prompts"]),
        train_micro_batch_size=len(case["prompts"]),
    )
    rollout = RolloutConfig(
        max_tokens_to_generate=new,
        max_prompt_length=case["prompt_tokens"],
        kv_cache_size=case["prompt_tokens"] + new,
        temperature=1.0,
        eos_tokens=[case["sizes"]["vocab_size"]],  # No token has it: replies go on.
    )
    return rl_cluster.RLCluster(
        actor=model,
        tokenizer=tokenizer,
        cluster_config=rl_cluster.ClusterConfig(
            role_to_mesh=dict.fromkeys(
                (role.ACTOR, role.REFERENCE, role.ROLLOUT), mesh
            ),
            training_config=training,
            rollout_config=rollout,
        ),
    )


def render(tokenizer: Any, text: str) -> str:
    """Returns a user message up to where the reply begins."""
    return tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
    )


DEVIATIONS: list[float] = []  # Of the rewards of the last batch.


def reward(prompts: Any, completions: list[str], **_: Any) -> list[float]:
    """A number in [0, 1) that depends on every letter of the reply."""
    import numpy as np

    found = [zlib.crc32(text.encode()) / 2**32 for text in completions]
    DEVIATIONS[:] = [float(np.std(found))]
    return found


if __name__ == "__main__":
    main(sys.argv[1])
