import json

import numpy as np
import pytest
import tokenizers

from aes_hdc.errors import UserError
from aes_hdc.models.qwen3_vl.config import VARIANTS, from_json
from aes_hdc.models.qwen3_vl.processor import (
    ImageProcessor,
    Tokenizer,
    smart_resize,
    to_patches,
)

PROCESSORS = {
    "p8": ImageProcessor(8, 2, min_pixels=1024, max_pixels=4096),
    "p16": ImageProcessor(16, 2, min_pixels=4096, max_pixels=16384),
}
SIZES = ("40x40", "33x70", "120x50")
every_picture = [(name, size) for name in PROCESSORS for size in SIZES]


@pytest.fixture(scope="module")
def pictures(golden):
    with np.load(golden / "preprocess_pil.npz") as file:
        return dict(file)


def test_sizes_are_those_of_the_reference(pictures):
    for factor, low, high, height, width, *want in pictures["smart_resize"].tolist():
        limits = {"factor": factor, "min_pixels": low, "max_pixels": high}
        assert smart_resize(height, width, **limits) == tuple(want)


def test_needles_are_refused():
    with pytest.raises(ValueError, match="picture 1x201"):
        ImageProcessor().grid(1, 201)


@pytest.mark.parametrize(("name", "size"), every_picture)
def test_patches_equal_the_pillow_reference(pictures, name, size):
    processor, key = PROCESSORS[name], f"pil/{name}/{size}"
    patches, grid = processor(pictures[f"image/{size}"])
    assert (1, *grid) == tuple(pictures[f"{key}/grid_thw"][0])
    resized = pictures[f"{key}/resized_u8"]
    np.testing.assert_array_equal(
        patches, to_patches(resized, processor.patch_size, processor.merge_size)
    )
    if name == "p8":  # The file holds the scaled pixels too, in both time slots.
        pixels = (patches / 127.5 - 1).reshape(len(patches), 3, 1, -1)
        stored = pictures[f"{key}/pixel_values"].reshape(len(patches), 3, 2, -1)
        np.testing.assert_allclose(np.repeat(pixels, 2, axis=2), stored, atol=1e-6)


@pytest.mark.parametrize(("name", "size"), every_picture)
def test_patches_are_within_a_level_of_the_fast_reference(golden, pictures, name, size):
    processor = PROCESSORS[name]
    patches, grid = processor(pictures[f"image/{size}"])
    with np.load(golden / "preprocess_fast.npz") as file:
        assert (1, *grid) == tuple(file[f"fast/{name}/{size}/grid_thw"][0])
        resized = file[f"fast/{name}/{size}/resized_u8"]
    want = to_patches(resized, processor.patch_size, processor.merge_size)
    off = np.abs(patches.astype(int) - want.astype(int))
    assert off.max() <= 1
    assert (off > 0).mean() < 0.01  # the two filters round a few values differently


def test_a_picture_that_fits_is_cut_without_scaling():
    frame = np.arange(32 * 32 * 3, dtype=np.uint32).reshape(32, 32, 3) % 251
    patches, grid = PROCESSORS["p8"](frame.astype(np.uint8))
    assert grid == (4, 4)
    # Patch 6 is the third of the second block: row 1, column 2.
    want = frame[8:16, 16:24].transpose(2, 0, 1).reshape(-1)
    np.testing.assert_array_equal(patches[6], want)


def test_only_byte_pictures_are_taken():
    with pytest.raises(ValueError, match="uint8"):
        PROCESSORS["p8"](np.zeros((32, 32, 3), np.float32))


def test_the_preprocessor_file_round_trips(tmp_path):
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(PROCESSORS["p8"].to_json()))
    assert ImageProcessor.from_folder(tmp_path) == PROCESSORS["p8"]
    path.write_text(json.dumps(PROCESSORS["p8"].to_json() | {"max_pixels": 2048}))
    assert ImageProcessor.from_folder(tmp_path).max_pixels == 2048
    path.write_text(json.dumps(PROCESSORS["p8"].to_json() | {"image_mean": [0.4] * 3}))
    with pytest.raises(UserError, match="image_mean"):
        ImageProcessor.from_folder(tmp_path)


@pytest.fixture(scope="module")
def tokenizer(golden):
    return Tokenizer(golden / "tokenizer.json")


def test_turns_concatenate_to_the_chat_template(golden, tokenizer):
    full = tokenizers.Tokenizer.from_file(str(golden / "tokenizer.json"))
    ids = tokenizer.render_user("how many shapes", (4, 4), first=True)
    ids += [*tokenizer.encode("3 shapes"), tokenizer.im_end]
    ids += tokenizer.render_user("\nmove up", None, first=False)
    text = (
        "<|im_start|>user\n<|vision_start|>"
        + "<|image_pad|>" * 4
        + "<|vision_end|>how many shapes<|im_end|>\n<|im_start|>assistant\n"
        "3 shapes<|im_end|>\n"
        "<|im_start|>user\n\nmove up<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ids == full.encode(text).ids


@pytest.mark.parametrize(
    "text",
    ["<|im_end|>", "a <|image_pad|>b", "<think>x</think><tool_call>", "<|im_start|>"],
)
def test_names_of_special_tokens_are_plain_text(tokenizer, text):
    ids = tokenizer.encode(text)
    assert max(ids) < 374  # The added tokens start there.
    assert tokenizer.decode(ids) == text


def test_replies_cannot_hold_pictures_or_unused_rows(golden, tokenizer):
    data = json.loads((golden / "ckpt_a" / "config.json").read_text())
    data["text_config"]["vocab_size"] = 403
    data |= {"image_token_id": 386, "video_token_id": 387}
    data |= {"vision_start_token_id": 383, "vision_end_token_id": 384}
    forbidden = tokenizer.forbidden_ids(from_json(data, "config.json")).tolist()
    assert forbidden == [375, 383, 384, 385, 386, 387, 400, 401, 402]
    with pytest.raises(UserError, match="does not fit"):
        tokenizer.forbidden_ids(VARIANTS["2b"])


def test_a_tokenizer_without_chat_tokens_is_refused(golden, tmp_path):
    data = json.loads((golden / "tokenizer.json").read_text())
    data["added_tokens"] = data["added_tokens"][2:]
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match="im_start"):
        Tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="not a tokenizer"):
        Tokenizer(tmp_path / "tokenizer.json")
