"""The whole method on a laptop: nine environments, the embedded model, two CPU cores.

    python -m experiments.main --config=configs/quickstart.py --workdir=DIR

Under ten minutes. Profiles and gradients pick some of the nine, GRPO trains on them
under a short curriculum, and the report compares success before and after.
`:algorithm=ppo` trains with PPO; `:smoke` is the same path on toy sizes, for tests.
"""

import ml_collections as mlc

from configs import common


def get_config(arg: str = "") -> mlc.ConfigDict:
    """Returns the config; `arg` may be `smoke` and `algorithm=ppo`."""
    options = common.parse_arg(arg, smoke=False, algorithm="grpo")
    config = common.tiny_model_config()
    config.environments.ladder = ("all", "rules", "none")
    # Few updates: easier gates than the method's 0.6 and 0.7 let every rung be reached.
    config.curriculum.update({"scale_threshold": 0.5, "harness_threshold": 0.5})
    config.learner.num_updates = 100
    if common.one_of("algorithm", options.algorithm, ("grpo", "ppo")) == "ppo":
        common.use_ppo(config)
    if options.smoke:
        common.shrink(config)
    return config
