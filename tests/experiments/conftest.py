"""What tests of whole runs share."""

import dataclasses
import zlib

import pytest

from aes_hdc.rollouts import collect


@pytest.fixture(scope="module")
def lucky():
    """Fresh weights solve nothing: every third reply, by its hash, is a success."""
    answer = collect._answer

    def lucky_answer(vec, request, reply):
        following, turn = answer(vec, request, reply)
        if zlib.crc32(turn.reply.encode()) % 3 == 0:
            return None, dataclasses.replace(turn, label="success", reward=1.0)
        return following, turn

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collect, "_answer", lucky_answer)
        yield
