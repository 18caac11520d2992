"""The same method over environments nobody here wrote: ladders of the minigrid package.

    pip install "aes_hdc[minigrid]"
    python -m experiments.main --config=configs/minigrid.py --workdir=DIR

Nine ladders form the pool and two the OOD panel. The embedded model never saw them,
so the harness ladder starts with the state in words. `:smoke` is the same path on toy
sizes.
"""

import ml_collections as mlc

from configs import common

POOL = (
    "minigrid_empty",
    "minigrid_fetch",
    "minigrid_go_to_door",
    "minigrid_go_to_object",
    "minigrid_lava_crossing",
    "minigrid_lava_gap",
    "minigrid_memory",
    "minigrid_multi_room",
    "minigrid_simple_crossing",
)
OOD = ("minigrid_dynamic_obstacles", "minigrid_put_near")


def get_config(arg: str = "") -> mlc.ConfigDict:
    """Returns the config; `arg` may be `smoke`."""
    options = common.parse_arg(arg, smoke=False)
    config = common.tiny_model_config()
    if options.smoke:
        common.shrink(config)
    config.environments.suite = "minigrid"
    config.environments.pool = POOL[:3] if options.smoke else POOL
    config.environments.ood = OOD[:1] if options.smoke else OOD
    # Of the help that the embedded model knows, these lines fit longest into a context.
    config.environments.ladder = ("state+hint", "state", "none")
    config.environments.max_turns = 8
    config.collect.harness = "state+hint"
    config.learner.shapes = (
        (8, 64, 8, 8),
        (8, 128, 32, 24),
        (4, 256, 40, 20),
        (2, 576, 64, 16),
    )
    config.evaluation.harnesses = {"none": 16, "state": 16, "state+hint": 32}
    if options.smoke:
        config.evaluation.harnesses = {"none": 4}
    return config
