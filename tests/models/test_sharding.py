import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from aes_hdc.errors import UserError
from aes_hdc.models import sharding
from aes_hdc.models.qwen3_vl import weights
from aes_hdc.models.qwen3_vl.model import SHARDING_RULES, Qwen3VL
from experiments.parity import Case, Programs, Shape


def test_a_mesh_axis_shards_the_first_dimension_that_asks_for_it():
    activation = sharding.partition_spec(("batch", "length", "embed"))
    assert activation == PartitionSpec(("data", "fsdp"), None, None)
    kernel = sharding.partition_spec(("embed", "heads"))
    assert kernel == PartitionSpec("fsdp", "tp")


def test_unknown_logical_axis_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'width' is not one of .*'embed'"):
        sharding.partition_spec(("width",))


def test_minus_one_takes_the_devices_that_are_left():
    assert dict(sharding.make_mesh(fsdp=-1, tp=2).shape) == {
        "data": 1,
        "fsdp": jax.device_count() // 2,
        "tp": 2,
    }


@pytest.mark.parametrize("sizes", [(-1, -1, 1), (0, 1, 1), (1, 1, 1000)])
def test_impossible_meshes_are_refused(sizes):
    with pytest.raises(UserError, match="mesh data="):
        sharding.make_mesh(*sizes)


def test_constraints_vanish_on_one_device():
    x = jnp.ones((4, 4))
    assert sharding.constrain(x, "batch", "embed") is x
    with jax.set_mesh(sharding.make_mesh()):
        assert sharding.constrain(x, "batch", "embed") is x


def test_the_first_matching_rule_decides_and_leading_axes_stay_whole():
    params = {"a": {"kernel": jax.ShapeDtypeStruct((3, 4, 6), jnp.float32)}}
    rules = ((r"a/kernel$", ("embed", "mlp")), (r"(a|b)/kernel$", ()))
    with pytest.raises(ValueError, match="match no parameter"):
        sharding.parameter_shardings(params, sharding.make_mesh(1, 2, 2), rules)
    placed = sharding.parameter_shardings(
        params, sharding.make_mesh(1, 2, 2), rules[:1]
    )
    assert placed["a"]["kernel"].spec == PartitionSpec(None, "fsdp", "tp")


def test_errors_name_the_parameter_and_the_rule():
    params = {"a": {"kernel": jax.ShapeDtypeStruct((3, 4), jnp.float32)}}
    mesh = sharding.make_mesh(1, 2, 1)
    with pytest.raises(UserError, match=r"a/kernel \(3, 4\).*'kernel\$'.* 3;"):
        sharding.parameter_shardings(params, mesh, [("kernel$", ("embed", "mlp"))])
    with pytest.raises(ValueError, match="a/kernel matches no sharding rule"):
        sharding.parameter_shardings(params, mesh, [])


def run(golden, mesh, program_name):
    """Runs a program of the parity check under a mesh; returns its result and text."""
    config, params = weights.load_folder(golden / "ckpt_a", mesh=mesh)
    case = Case(golden / "case_a_left_pad_mixed.npz", config)
    x = case.inputs(Shape(rows=8, tokens=15, pictures=8, patches=16))
    program = getattr(Programs(config, Qwen3VL(config)), program_name)
    with jax.set_mesh(mesh), jax.default_matmul_precision("highest"):
        # Run once: optimizing the code would take longer than it saves.
        options = {"xla_backend_optimization_level": 0}
        compiled = program.lower(params, x).compile(options)
        return compiled(params, x), compiled.as_text()


@pytest.mark.multidevice
def test_logits_are_the_same_on_eight_devices(golden):
    alone, _ = run(golden, sharding.make_mesh(), "forward")
    cut, text = run(golden, sharding.make_mesh(1, 4, 2), "forward")
    assert not cut["logits"].is_fully_replicated
    # A wrong layout shows as a regrouping of activations between devices.
    assert "all-to-all" not in text
    # Row 1 has no padding. Sums in another order; values up to 12.
    np.testing.assert_allclose(alone["logits"][1], cut["logits"][1], atol=1e-4)


@pytest.mark.multidevice
def test_gradients_are_the_same_on_eight_devices(golden):
    alone, _ = run(golden, sharding.make_mesh(), "gradient")
    cut, _ = run(golden, sharding.make_mesh(2, 2, 2), "gradient")
    for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(cut), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)  # values below 1


@pytest.mark.parametrize("name", ["ckpt_a", "ckpt_b"])
def test_every_rule_of_the_model_is_used(golden, name):
    config = weights.read_config(golden / name)
    mesh = sharding.make_mesh(1, 2, 2)
    placed = sharding.parameter_shardings(
        weights.param_shapes(config), mesh, SHARDING_RULES
    )
    assert placed["text"]["layers"]["o"]["kernel"].spec == PartitionSpec(
        None, "tp", "fsdp"
    )
