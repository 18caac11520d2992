"""The same method over environments nobody here wrote: ladders of the minigrid package.

    pip install "aes_hdc[minigrid]"
    python -m experiments.main --config=configs/minigrid.py --workdir=DIR

Nine ladders form the pool and two the OOD panel. The embedded model never saw them,
so the harness ladder starts with all help. `:smoke` is the same path on toy sizes.
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
    config.environments.ladder = ("all", "rules+observation", "none")
    return config
