import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from aes_hdc.errors import UserError
from aes_hdc.models.qwen3_vl import weights


def equal(a, b):
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        x.dtype == y.dtype and bool((x == y).all()) for x, y in leaves
    )


@pytest.fixture
def copy(golden, tmp_path):
    """Returns a function that writes checkpoint A with other tensors."""
    tensors = safetensors.numpy.load_file(golden / "ckpt_a" / "model.safetensors")

    def write(change):
        config = (golden / "ckpt_a" / "config.json").read_bytes()
        (tmp_path / "config.json").write_bytes(config)
        changed = change(dict(tensors))
        safetensors.numpy.save_file(changed, tmp_path / "model.safetensors")
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("name", "dtype"), [("ckpt_a", jnp.float32), ("ckpt_b", jnp.bfloat16)]
)
def test_saving_gives_back_every_tensor(golden, tmp_path, name, dtype):
    config, params = weights.load_folder(golden / name, dtype=dtype)
    weights.save_folder(tmp_path, config, params, dtype=dtype)
    ours = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    theirs = safetensors.numpy.load_file(golden / name / "model.safetensors")
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        assert ours[key].dtype == value.dtype
        np.testing.assert_array_equal(ours[key], value)
    again, reloaded = weights.load_folder(tmp_path, dtype=dtype)
    assert again == config
    assert equal(reloaded, params)


def test_several_files_are_one_checkpoint(checkpoint_a, golden, tmp_path):
    config, params = checkpoint_a
    options = {"dtype": jnp.float32, "tokenizer_folder": golden}
    weights.save_folder(tmp_path, config, params, **options)
    weights.save_folder(tmp_path, config, params, max_file_bytes=300_000, **options)
    assert len([*tmp_path.glob("model-*-of-*.safetensors")]) == 4
    assert not (tmp_path / "model.safetensors").exists()
    assert (tmp_path / "tokenizer.json").exists()
    assert equal(weights.load_folder(tmp_path)[1], params)
    next(tmp_path.glob("model-00002*")).unlink()
    with pytest.raises(UserError, match=r"model-00002-of-00004.*no such file"):
        weights.load_folder(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("model.", ""),
        ("model.", "model.model."),
        ("model.language_model.", "language_model.model."),
        ("model.language_model.", "model."),
    ],
)
def test_other_prefixes_are_understood(copy, checkpoint_a, old, new):
    folder = copy(lambda t: {k.replace(old, new, 1): v for k, v in t.items()})
    assert equal(weights.load_folder(folder)[1], checkpoint_a[1])


def test_a_repeated_tied_head_is_accepted(copy, checkpoint_a):
    table = "model.language_model.embed_tokens.weight"
    folder = copy(lambda t: t | {"lm_head.weight": t[table].copy()})
    assert equal(weights.load_folder(folder)[1], checkpoint_a[1])


def test_misfits_are_all_listed(copy):
    def change(tensors):
        del tensors["model.language_model.norm.weight"]
        tensors["model.visual.extra"] = np.zeros(3, np.float32)
        name = "model.visual.merger.linear_fc1.bias"
        tensors[name] = np.zeros(3, np.float32)
        return tensors

    with pytest.raises(UserError) as caught:
        weights.load_folder(copy(change))
    for part in (
        "missing: model.language_model.norm.weight",
        "unexpected: model.visual.extra",
        "mis-shaped: model.visual.merger.linear_fc1.bias [3] instead of [128]",
    ):
        assert part in str(caught.value)


def test_broken_files_are_named(copy):
    folder = copy(dict)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"model\.safetensors: not a safetensors file"):
        weights.load_folder(folder)
    path.unlink()
    with pytest.raises(UserError, match="no such file"):
        weights.load_folder(folder)


def test_an_index_cannot_point_outside_the_folder(copy):
    folder = copy(dict)
    (folder / "model.safetensors").rename(folder.parent / "elsewhere.safetensors")
    index = {"weight_map": {"a": "../elsewhere.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match="no such file"):
        weights.load_folder(folder)
