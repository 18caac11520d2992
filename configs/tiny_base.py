"""Makes the embedded base model from nothing, by imitation of the oracle solvers.

    python -m experiments.main --config=configs/tiny_base.py --workdir=DIR

At most 45 minutes on two CPU cores, resumable; it stops by itself once enough
environments are played well with all help and poorly without. Copy `DIR/train/model` to
`aes_hdc/assets/tiny_vl` to embed it.

The less help is shown, the worse the demonstrator plays: a pretrained model has seen
good and bad play, and without help it should leave reinforcement learning something to
do. Nearly half of the lessons tell a picture in words, which teaches to see.
"""

import ml_collections as mlc

from configs import common


def get_config(arg: str = "") -> mlc.ConfigDict:
    """Returns the config; `arg` may be `smoke`."""
    options = common.parse_arg(arg, smoke=False)
    config = common.tiny_model_config()
    config.stages = ("train", "evaluate", "report")
    config.base_model = {"max_tokens": 1500, "text_episodes": 8}
    config.base_model.text = {
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "mrope_section": (8, 4, 4),
        "max_position_embeddings": 1024,
    }
    config.base_model.vision = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 4,
        "num_position_embeddings": 36,
        "deepstack_visual_indexes": (0,),
    }
    config.imitation = {
        # Seeing and reading come first: the shares of the lessons at these updates.
        "knots": (0, 1000, 1500, 2500, 4400),
        # What is shown, shares, weight of a token, success of the player.
        "lessons": (
            ("describe", (0.6, 0.5, 0.25, 0.15, 0.1), 0.3, 1.0),
            ("recite", (0.15, 0.08, 0.02, 0.0, 0.0), 0.3, 1.0),
            ("all", (0.15, 0.25, 0.4, 0.42, 0.42), 1.0, 1.0),
            ("rules+observation+state", (0.03, 0.05, 0.08, 0.06, 0.06), 1.0, 0.9),
            ("rules", (0.02, 0.05, 0.1, 0.12, 0.12), 1.0, 0.4),
            ("none", (0.05, 0.07, 0.15, 0.25, 0.3), 1.0, 0.55),
        ),
        # What takes long to learn is demonstrated more often.
        "emphasis": {
            "bar_chart_value": 1.5,
            "count_objects": 1.5,
            "dice_sum": 1.5,
            "odd_one_out": 1.5,
        },
        "levels": ((0, 0.6), (1, 0.4)),  # scale level, share
        "batch_episodes": 64,
        "measure_every": 400,
        "measure_episodes": 48,
        "with_help": 0.72,
        "without_help": (0.12, 0.38),
        "num_enough": 10,
    }
    config.learner.algorithm = "imitation"
    config.learner.num_updates = 4400
    config.learner.aggregation = "token"
    config.learner.shapes = (  # Long rows are few: half-empty batches cost the most.
        (8, 64, 8, 8),
        (8, 96, 64, 8),  # Descriptions are long answers to short messages.
        (4, 128, 64, 12),
        (4, 192, 64, 20),
        (2, 256, 64, 10),
        (2, 384, 64, 10),
        (1, 576, 64, 5),
    )
    config.learner.loss.kind = "imitation"
    config.learner.optimizer.update({"learning_rate": 3e-3, "warmup_steps": 50})
    config.learner.optimizer.decay_steps = 4400
    if options.smoke:
        common.shrink(config)
        config.learner.shapes = ((4, 192, 64, 20), (1, 576, 64, 5))
        config.imitation.update({"batch_episodes": 8, "measure_every": 2})
        config.imitation.measure_episodes = 2
        config.imitation.lessons = (
            ("describe", (1.0,) * 5, 0.3, 1.0),
            ("recite", (1.0,) * 5, 0.3, 1.0),
            ("all", (1.0,) * 5, 1.0, 0.9),
            ("none", (1.0,) * 5, 1.0, 0.3),
        )
    return config
