"""From config sections to objects: what does not fit is refused before it runs."""

import numpy as np
import pytest

from aes_hdc import storage
from aes_hdc.errors import UserError
from configs import common
from experiments.runtime import load_policy, make_learner, save_policy


def sections(**learner):
    config = common.tiny_model_config()
    config.learner.update(learner)
    return config.learner.to_dict(), config.rollout.to_dict()


@pytest.mark.parametrize(
    "last", [(8, 575, 40, 40), (8, 576, 39, 40), (8, 576, 40, 4)], ids=str
)
def test_last_shape_must_hold_the_longest_episode(fresh_policy, last):
    make_learner(fresh_policy, *sections(shapes=((8, 576, 40, 40),)), 5)
    with pytest.raises(UserError, match=r"learner\.shapes"):
        make_learner(fresh_policy, *sections(shapes=((8, 64, 8, 8), last)), 5)


@pytest.mark.parametrize("place", ["dtype", "torch_dtype", "text_config", "nowhere"])
def test_saved_folder_loads_to_the_same_bits(tiny_policy, tmp_path, place):
    folder = tmp_path / "saved"
    save_policy(tiny_policy, tiny_policy.params, folder)
    config = storage.read_json(folder / "config.json")
    name = config.pop("dtype")  # Public folders name it in other places.
    if place == "text_config":
        config["text_config"]["dtype"] = name
    elif place != "nowhere":
        config[place] = name
    storage.write_json(folder / "config.json", config)
    options = {"dtype": "float32", "frame_px": 96, "unroll": True, "temperature": 1.0}
    policy = load_policy(folder=str(folder), **options)
    save_policy(policy, policy.params, tmp_path / "again")
    again = load_policy(folder=str(tmp_path / "again"), **options)
    import jax

    jax.tree.map(np.testing.assert_array_equal, again.params, tiny_policy.params)
    assert again.model == tiny_policy.model
    assert again.distribution == tiny_policy.distribution
