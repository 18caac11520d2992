"""The embedded model under transformers: same folder, same greedy replies."""

from pathlib import Path

import numpy as np
import pytest

from aes_hdc import envs
from aes_hdc.episode import Harness, Task
from aes_hdc.rollouts.collect import play
from experiments.runtime import EMBEDDED, load_policy, make_player

pytestmark = pytest.mark.parity


def generate(folder: Path, conversation, count: int) -> list[int]:
    """Continues a conversation's first message greedily under torch."""
    import torch
    from transformers import Qwen3VLForConditionalGeneration

    model = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype="float32")
    first = int(np.argmax(conversation.turn >= 0))
    patches, grid = conversation.pictures[0]
    pixels = patches.reshape(len(patches), 3, 1, -1).astype(np.float32) / 127.5 - 1
    pixels = np.repeat(pixels, 2, axis=2).reshape(len(patches), -1)
    ids = torch.tensor(conversation.ids[None, :first].astype(np.int64))
    out = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        mm_token_type_ids=(ids == model.config.image_token_id).int(),
        pixel_values=torch.tensor(pixels),
        image_grid_thw=torch.tensor([[1, *grid.tolist()]]),
        max_new_tokens=count,
        do_sample=False,
    )
    return out[0, first:].tolist()


def test_greedy_replies_equal_those_of_transformers():
    policy = load_policy(
        folder="", dtype="float32", frame_px=96, unroll=True, temperature=1.0
    )
    player = make_player(
        policy,
        capacity=32,
        prefill=((16, 192, 0),),
        decode=((16, 256),),
        max_new_tokens=8,
        greedy=True,
    )
    tasks = [
        Task(spec.id, seed, 0, harness)
        for spec in envs.all_specs()
        for seed in range(2)
        for harness in (Harness.NONE, Harness.ALL)
    ]
    player.start(policy.params, 0)
    play(tasks, player, frame_px=96, max_turns=1)
    for index, task in enumerate(tasks):
        conversation = player.conversation(index)
        ours = conversation.ids[conversation.turn == 0].tolist()
        assert generate(EMBEDDED, conversation, len(ours)) == ours, task
