import json
import math

import jax
import pytest

from aes_hdc.errors import UserError
from aes_hdc.models.qwen3_vl import config as configs
from aes_hdc.models.qwen3_vl import names, weights


# Parameters in all, those of the vision tower, and tensors in the published files.
@pytest.mark.parametrize(
    ("variant", "total", "vision", "tensors"),
    [
        ("2b", 2_127_532_032, 406_957_056, 625),
        ("4b", 4_437_815_808, 415_347_712, 713),
        ("8b", 8_767_123_696, 576_388_336, 750),
    ],
)
def test_public_sizes_are_exact(variant, total, vision, tensors):
    config = configs.VARIANTS[variant]
    shapes = weights.param_shapes(config)

    def count(tree):
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))

    assert (count(shapes), count(shapes["vision"])) == (total, vision)
    assert len([*names.tensors(config)]) == tensors


@pytest.mark.parametrize("name", ["ckpt_a", "ckpt_b"])
def test_both_layouts_say_the_same_and_the_newer_one_is_written(golden, name):
    folder = golden / name
    legacy = json.loads((folder / "config_legacy.json").read_text())
    config = configs.read_config(folder)
    assert configs.from_json(legacy, "legacy") == config
    written = json.loads(json.dumps(config.to_json()))
    assert configs.from_json(written, "written") == config
    ours = json.loads((folder / "config.json").read_text())["text_config"]
    assert written["text_config"]["rope_parameters"] == ours["rope_parameters"]


def test_missing_keys_are_all_named(golden):
    data = json.loads((golden / "ckpt_a" / "config.json").read_text())
    del data["text_config"]["hidden_size"], data["vision_config"]["depth"]
    del data["tie_word_embeddings"]
    with pytest.raises(UserError) as caught:
        configs.from_json(data, "here/config.json")
    for part in (
        "here/config.json",
        "text_config.hidden_size",
        "vision_config.depth",
        "tie_word_embeddings",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("text_config", "hidden_act", "gelu"),
        ("text_config", "attention_bias", True),
        ("vision_config", "hidden_act", "gelu"),
        ("vision_config", "deepstack_visual_indexes", [2, 1]),
        ("vision_config", "out_hidden_size", 65),
    ],
)
def test_other_models_are_refused(golden, section, key, value):
    data = json.loads((golden / "ckpt_a" / "config.json").read_text())
    data[section][key] = value
    with pytest.raises(UserError, match=key):
        configs.from_json(data, "config.json")


def test_a_folder_without_a_config_is_the_users_mistake(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        configs.read_config(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        configs.read_config(tmp_path)
