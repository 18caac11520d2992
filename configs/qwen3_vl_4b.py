"""Qwen3-VL-4B-Instruct on a TPU slice of sixteen chips, all parameters trained.

    python -m experiments.main --config=configs/qwen3_vl_4b.py --workdir=DIR \
        --config.model.folder=PATH/Qwen3-VL-4B-Instruct
    python -m experiments.plan --config=configs/qwen3_vl_4b.py --topology=v5e:4x4

`:chips=v6e` for v6e:4x4. `:smoke` is the same path on toy sizes, for tests.
"""

import ml_collections as mlc

from configs import common


def get_config(arg: str = "") -> mlc.ConfigDict:
    """Returns the config; `arg` may be `smoke` and `chips=v6e`."""
    options = common.parse_arg(arg, smoke=False, chips="v5e")
    config = common.tiny_model_config()
    if options.smoke:
        common.shrink(config)
        return config
    common.use_qwen3_vl(config, "4B")
    common.one_of("chips", options.chips, ("v5e", "v6e"))
    config.model.mesh = (1, 16, 1)
    return config
