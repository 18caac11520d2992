"""Every mesh plays and learns what one device does."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

from aes_hdc.errors import UserError
from aes_hdc.learner.batch import Shape
from aes_hdc.learner.gradients import make_sketch
from aes_hdc.learner.losses import LossSettings
from aes_hdc.learner.optimizer import make_optimizer
from aes_hdc.models.sharding import make_mesh
from experiments.groups import Group
from experiments.learning import Learner
from experiments.runtime import load_policy
from tests.small_folder import make_small_folder

MESHES = [(8, 1, 1), (1, 8, 1), (2, 2, 2), (1, 1, 8)]


@pytest.fixture(scope="module")
def divisible_folder(tmp_path_factory):
    """A model whose heads, widths and vocabulary eight divides."""
    folder = tmp_path_factory.mktemp("divisible") / "model"
    heads = {"num_attention_heads": 16, "num_key_value_heads": 8}
    return make_small_folder(
        folder,
        text={"intermediate_size": 64, **heads},
        vision={"hidden_size": 32, "intermediate_size": 64},
        max_tokens=374,
    )


def played(folder, mesh, make_player, talk, dialogues):
    """What a policy on a mesh says, and what it learns from that."""
    policy = load_policy(
        folder=str(folder),
        dtype="float32",
        frame_px=96,
        unroll=True,
        temperature=1.0,
        mesh=mesh,
    )
    player = make_player(policy, prefill=((8, 64, 192),), decode=((8, 192),))
    found = talk(player, policy.params, dialogues)
    conversations = [conversation for conversation, _ in found.values()]
    rewards = np.linspace(0.0, 1.0, len(conversations))
    learner = Learner(
        policy=policy,
        optimizer=make_optimizer(learning_rate=1e-3, warmup_steps=1),
        settings=LossSettings(),
        shapes=[Shape(8, 192, 18, 24, policy.chat.patch_shape)],
        aggregation="constant",
        row_tokens=18,
    )
    rows = [row for part in _rows(learner, conversations, rewards) for row in part]
    grads, sums = learner.gradient(rows)
    sketch = np.asarray(make_sketch(1021)(grads))
    before = jax.tree.map(lambda leaf: leaf.sharding, learner.state)
    learner.update([Group.of_returns(conversations, rewards)])
    for old, leaf in zip(
        jax.tree.leaves(before), jax.tree.leaves(learner.state), strict=True
    ):
        assert leaf.sharding.is_equivalent_to(old, leaf.ndim)
    return {
        "ids": [conversation.ids.tolist() for conversation in conversations],
        "sums": {name: np.asarray(value) for name, value in sums.items()},
        "grads": jax.device_get(grads),
        "sketch": sketch,
        "params": jax.device_get(learner.params),
        "state": learner.state,
        "logprobs": [conversation.logprobs for conversation in conversations],
    }


def _rows(learner, conversations, rewards):
    group = Group.of_returns(conversations, rewards)
    return learner.algorithm.rows([group], lambda _: None)[0]


@pytest.fixture(scope="module")
def alone(divisible_folder, make_player, talk, dialogues):
    return played(divisible_folder, (1, 1, 1), make_player, talk, dialogues)


@pytest.mark.slow
@pytest.mark.multidevice
@pytest.mark.parametrize("mesh", MESHES)
def test_playing_and_learning_are_those_of_one_device(
    mesh, alone, divisible_folder, make_player, talk, dialogues
):
    found = played(divisible_folder, mesh, make_player, talk, dialogues)
    assert found["ids"] == alone["ids"]
    for name in ("logprobs", "sums", "grads", "sketch", "params"):
        for ours, theirs in zip(
            jax.tree.leaves(found[name]), jax.tree.leaves(alone[name]), strict=True
        ):
            # Sums in another order; the largest sketches are near 10.
            atol = 1e-5 * max(1.0, np.abs(theirs).max())
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol, err_msg=name)


@pytest.mark.slow
@pytest.mark.multidevice
def test_optimizer_state_is_cut_as_the_parameters_are(
    divisible_folder, make_player, talk, dialogues
):
    state = played(divisible_folder, (1, 8, 1), make_player, talk, dialogues)["state"]
    kernel = state.params["text"]["layers"]["gate"]["kernel"]
    assert kernel.addressable_shards[0].data.nbytes == kernel.nbytes // 8
    for name in ("mu", "nu"):
        for kept, leaf in zip(
            jax.tree.leaves(optax.tree.get(state.opt_state, name)),
            jax.tree.leaves(state.params),
            strict=True,
        ):
            assert kept.sharding.is_equivalent_to(leaf.sharding, leaf.ndim)


def test_programs_side_by_side_are_refused_on_a_mesh(tiny_policy, make_player):
    policy = dataclasses.replace(tiny_policy, mesh=make_mesh(2, 1, 1))
    with pytest.raises(UserError, match=r"rollout\.pools=2: on a mesh"):
        make_player(policy, pools=2)
