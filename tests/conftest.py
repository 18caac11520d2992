"""What all tests share: eight virtual CPU devices, and a base that nothing escapes."""

import os

# Before anything imports JAX, so that tests of meshes run and do not skip.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

import dataclasses

import numpy as np
import pytest

from aes_hdc.episode import Episode, Harness, Observation, Task, Turn


@pytest.fixture
def workdir(tmp_path):
    """An empty run folder."""
    return tmp_path


@pytest.fixture
def episode():
    """A solved episode of two turns."""
    frame = np.zeros((96, 96, 3), np.uint8)
    observations = [Observation("goal: all off", frame), Observation("ok", frame)]
    turns = [
        Turn(observations[0], "press 1 1", "press 1 1", "ok", 0.0, True, "running"),
        Turn(observations[1], "press 1 2", "press 1 2", "off", 1.0, True, "success"),
    ]
    task = Task("lights_out", seed=7, level=0, harness=Harness.RULES)
    return Episode(task, turns, policy="model")


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """A model folder of about 70 000 fresh parameters."""
    from tests.small_folder import make_small_folder

    folder = tmp_path_factory.mktemp("tiny") / "model"
    return make_small_folder(folder, text={}, vision={}, max_tokens=400)


@pytest.fixture(scope="session")
def tiny_policy(tiny_folder):
    """The model of `tiny_folder`; a `Learner` of it would donate its parameters."""
    from experiments.runtime import load_policy

    return load_policy(
        folder=str(tiny_folder),
        dtype="float32",
        frame_px=96,
        unroll=True,
        temperature=1.0,
    )


def copied(params):
    """Parameters in buffers of their own, which a learner may donate."""
    import jax

    return jax.tree.map(lambda leaf: jax.device_put(np.array(leaf)), params)


@pytest.fixture
def fresh_policy(tiny_policy):
    """`tiny_policy` with parameters of its own, which a learner may use up."""
    return dataclasses.replace(tiny_policy, params=copied(tiny_policy.params))


@pytest.fixture(scope="session")
def few_words(tiny_policy):
    """`tiny_policy` at temperature 0.8, with ten words and two ends: replies vary.

    Of twelve tokens two end a reply, so rows of one batch end at different steps.
    """
    from aes_hdc.policy.distribution import TokenDistribution

    chat, vocab = tiny_policy.chat, tiny_policy.model.config.text.vocab_size
    allowed = {*range(60, 70), *chat.end_ids}
    forbidden = tuple(sorted({*range(vocab)} - allowed | {*chat.forbidden_ids}))
    return dataclasses.replace(
        tiny_policy, distribution=TokenDistribution(forbidden, temperature=0.8)
    )


@pytest.fixture
def fresh_few_words(few_words):
    """`few_words` with parameters of its own, which a learner may use up."""
    return dataclasses.replace(few_words, params=copied(few_words.params))


PLAYER = {
    "capacity": 5,
    "prefill": ((2, 32, 0, 3), (4, 32, 192), (4, 64, 192)),
    "decode": ((2, 96), (4, 192)),
    "max_new_tokens": 6,
}


@pytest.fixture(scope="session")
def make_player():
    """Makes players of one shape, so that all tests share what was compiled."""
    from experiments import runtime

    def make(policy, **changes):
        return runtime.make_player(policy, **(PLAYER | changes))

    return make


@pytest.fixture(scope="session")
def talk():
    """Plays dialogues of given observations, whatever the model says.

    `talk(player, params, {index: observations}, seed)` returns, by index, the
    conversation and the labels of its turns.
    """
    from aes_hdc.rollouts.collect import Request

    def run(player, params, dialogues, seed=2):
        player.start(params, seed, "test")
        labels = {index: [] for index in dialogues}
        waiting = [*dialogues]
        opened = []
        while waiting or opened:
            while waiting and len(opened) < player.capacity:
                opened.append(waiting.pop(0))
            requests = [
                Request(
                    index,
                    None,
                    len(labels[index]),
                    dialogues[index][len(labels[index])],
                    None,
                    None,
                )
                for index in opened
            ]
            for index, reply in player.act(requests).items():
                labels[index].append(reply.label)
                is_over = len(labels[index]) == len(dialogues[index])
                if is_over or reply.label == "overflow":
                    opened.remove(index)
        return {i: (player.conversation(i), labels[i]) for i in dialogues}

    return run


@pytest.fixture(scope="session")
def pack():
    """`pack(conversations, credits, shapes)` returns their micro-batches."""
    from aes_hdc.learner.batch import Row, micro_batches

    def run(conversations, credits, shapes):
        rows = [Row.spread(*p) for p in zip(conversations, credits, strict=True)]
        return [batch for _, batch in micro_batches(rows, shapes)]

    return run


@pytest.fixture(scope="session")
def dialogues():
    """Five dialogues by index: three turns with pictures, three with none, others."""
    rng = np.random.default_rng(0)
    texts = ["goal count", "ok", "press 1 1 rules count red", "goal", "row 1 2"]

    def observation(number, *, picture):
        shape = (96, 96, 3)
        frame = rng.integers(0, 256, shape).astype(np.uint8) if picture else None
        return Observation(texts[number % len(texts)], frame)

    shown = ([True] * 3, [False] * 3, [True], [False, True, False], [True, False])
    return {
        index: [observation(index + i, picture=p) for i, p in enumerate(pictures)]
        for index, pictures in enumerate(shown)
    }
