"""Pictures to patches and chats to token ids, on the host."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from PIL import Image

from aes_hdc.errors import UserError
from aes_hdc.models.qwen3_vl.config import Config

_MAX_ASPECT = 200


def smart_resize(
    height: int, width: int, *, factor: int, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    """Chooses the size to which a picture is scaled before it is cut into patches.

    Sides become multiples of `factor` and the area is brought into the limits, keeping
    the aspect as far as that allows. Very thin pictures may stay above the upper limit.

    Args:
        height: pixels.
        width: pixels.
        factor: patch size times merge size, pixels.
        min_pixels: lower limit of the area.
        max_pixels: upper limit of the area.

    Raises:
        ValueError: if one side is over 200 times the other.
    """
    if max(height, width) > _MAX_ASPECT * min(height, width):
        raise ValueError(
            f"picture {height}x{width}: one side is over {_MAX_ASPECT} times the "
            "other; crop it"
        )
    new_height = round(height / factor) * factor
    new_width = round(width / factor) * factor
    if new_height * new_width > max_pixels:
        beta = math.sqrt(height * width / max_pixels)
        new_height = max(factor, math.floor(height / beta / factor) * factor)
        new_width = max(factor, math.floor(width / beta / factor) * factor)
    elif new_height * new_width < min_pixels:
        beta = math.sqrt(min_pixels / (height * width))
        new_height = math.ceil(height * beta / factor) * factor
        new_width = math.ceil(width * beta / factor) * factor
    return new_height, new_width


def to_patches(pixels: np.ndarray, patch: int, merge: int) -> np.ndarray:
    """Cuts a picture into patches, block after block of merge x merge.

    Args:
        pixels: [height, width, 3] uint8; sides are multiples of patch * merge.
        patch: side of a patch, pixels.
        merge: side of a block, patches.

    Returns:
        [P, 3 * patch^2] uint8, each row by channel, y, x.
    """
    height, width, channels = pixels.shape
    block = patch * merge
    x = pixels.reshape(height // block, merge, patch, width // block, merge, patch, -1)
    x = x.transpose(0, 3, 1, 4, 6, 2, 5)
    return np.ascontiguousarray(x).reshape(-1, channels * patch**2)


@dataclass(frozen=True)
class ImageProcessor:
    """Scales pictures by Pillow's bicubic filter and cuts them into patches.

    Attributes:
        patch_size: side of a patch, pixels.
        merge_size: patches per token along each side.
        min_pixels: smaller pictures are enlarged to about this area.
        max_pixels: larger pictures are reduced to at most this area.
    """

    patch_size: int = 16
    merge_size: int = 2
    min_pixels: int = 65_536
    max_pixels: int = 16_777_216

    @staticmethod
    def from_folder(folder: str | Path) -> "ImageProcessor":
        """Reads preprocessor_config.json.

        Raises:
            UserError: if it is absent, or normalises colours in another way.
        """
        path = Path(folder) / "preprocessor_config.json"
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            size = data.get("size", {})
            fields = {
                "patch_size": data["patch_size"],
                "merge_size": data["merge_size"],
                "min_pixels": data.get("min_pixels") or size["shortest_edge"],
                "max_pixels": data.get("max_pixels") or size["longest_edge"],
            }
        except FileNotFoundError as error:
            raise UserError(
                f"{path}: no such file; it gives the picture sizes"
            ) from error
        except ValueError as error:
            raise UserError(f"{path}: not valid JSON ({error})") from error
        except KeyError as error:
            raise UserError(f"{path}: missing {error.args[0]}") from error
        for key in ("image_mean", "image_std"):
            if data.get(key, [0.5] * 3) != [0.5] * 3:
                raise UserError(f"{path}: {key} is {data[key]}; only 0.5 is supported")
        return ImageProcessor(**fields)

    def to_json(self) -> dict[str, Any]:
        """Returns the content of a preprocessor_config.json."""
        return {
            "image_processor_type": "Qwen2VLImageProcessorFast",
            "size": {
                "shortest_edge": self.min_pixels,
                "longest_edge": self.max_pixels,
            },
            "patch_size": self.patch_size,
            "temporal_patch_size": 2,
            "merge_size": self.merge_size,
            "image_mean": [0.5] * 3,
            "image_std": [0.5] * 3,
        }

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Returns the patches along height and width of a picture of this size."""
        new_height, new_width = smart_resize(
            height,
            width,
            factor=self.patch_size * self.merge_size,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
        )
        return new_height // self.patch_size, new_width // self.patch_size

    def __call__(self, frame: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
        """Cuts a picture into patches, scaling it only if its size does not fit.

        Args:
            frame: [height, width, 3] uint8.

        Returns:
            [P, 3 * patch_size^2] uint8 patches and their grid (height, width).

        Raises:
            ValueError: if the frame is not an RGB picture of bytes.
        """
        if frame.ndim != 3 or frame.shape[-1] != 3 or frame.dtype != np.uint8:
            raise ValueError(
                f"frame {frame.shape} {frame.dtype}: must be [height, width, 3] uint8"
            )
        grid = self.grid(*frame.shape[:2])
        height, width = (side * self.patch_size for side in grid)
        if (height, width) != frame.shape[:2]:
            image = Image.fromarray(frame).resize(
                (width, height), Image.Resampling.BICUBIC
            )
            frame = np.asarray(image)
        return to_patches(frame, self.patch_size, self.merge_size), grid


class Tokenizer:
    """Token ids of chats, in which what environments and models write is only text.

    A chat is a sequence of pieces, encoded one by one, so each turn leaves the ids
    before it as they are: a user message, the reply, `turn_break`, the next user
    message.

    Attributes:
        im_start: opens a message.
        im_end: closes it; a reply ends with it.
        end_of_text: pads, and also ends a reply.
        vision_start: stands before a picture.
        vision_end: stands after it.
        image_pad: stands for one picture token.
        vocab_size: one more than the highest id.
        turn_break: ids between the end of a reply and the next message.
    """

    def __init__(self, path: str | Path) -> None:
        """Reads a tokenizer.json.

        Raises:
            UserError: if the file is unreadable or lacks a Qwen3-VL special token.
        """
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
            self._full = tokenizers.Tokenizer.from_str(text)
            self._plain = _without_added_tokens(json.loads(text))
        except FileNotFoundError as error:
            raise UserError(f"{path}: no such file") from error
        except Exception as error:  # The tokenizers library raises nothing narrower.
            raise UserError(f"{path}: not a tokenizer.json ({error})") from error
        self._ids = self._full.get_vocab(with_added_tokens=True)
        self.vocab_size = max(self._ids.values()) + 1
        missing = [name for name in _SPECIAL.values() if name not in self._ids]
        if missing:
            raise UserError(f"{path}: lacks the special tokens {missing}")
        self.im_start = self._ids[_SPECIAL["im_start"]]
        self.im_end = self._ids[_SPECIAL["im_end"]]
        self.end_of_text = self._ids[_SPECIAL["end_of_text"]]
        self.vision_start = self._ids[_SPECIAL["vision_start"]]
        self.vision_end = self._ids[_SPECIAL["vision_end"]]
        self.image_pad = self._ids[_SPECIAL["image_pad"]]
        self.turn_break = self.encode("\n")
        self._assistant = [self.im_start, *self.encode("assistant\n")]

    @property
    def stop_ids(self) -> tuple[int, int]:
        """The ids that end a reply."""
        return self.im_end, self.end_of_text

    def encode(self, text: str) -> list[int]:
        """Encodes text; names of special tokens in it become ordinary characters."""
        return self._plain.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes ids to text without special tokens, replacing broken characters."""
        return self._full.decode([int(i) for i in ids], skip_special_tokens=True)

    def user_message(self, text: str, num_image_tokens: int = 0) -> list[int]:
        """Encodes a user message and the opening of the reply to it.

        Args:
            text: the message, untrusted.
            num_image_tokens: tokens of the picture before the text; 0 for none.
        """
        if not num_image_tokens:
            return [
                self.im_start,
                *self.encode("user\n" + text),
                self.im_end,
                *self.turn_break,
                *self._assistant,
            ]
        return [
            self.im_start,
            *self.encode("user\n"),
            self.vision_start,
            *[self.image_pad] * num_image_tokens,
            self.vision_end,
            *self.encode(text),
            self.im_end,
            *self.turn_break,
            *self._assistant,
        ]

    def render_user(
        self, text: str, grid: tuple[int, int] | None, *, first: bool, merge: int = 2
    ) -> list[int]:
        """Encodes a user turn of a chat, with the break after the previous reply.

        Args:
            text: the message, untrusted.
            grid: patches along height and width of its picture, or None.
            first: whether this is the first message; it has nothing to break from.
            merge: patches per token along each side.
        """
        count = grid[0] * grid[1] // merge**2 if grid else 0
        return [*([] if first else self.turn_break), *self.user_message(text, count)]

    def forbidden_ids(self, config: Config) -> np.ndarray:
        """Lists the ids that a reply must not contain.

        These are the tokens that stand for pictures or open a message, and the rows of
        the model's vocabulary to which no token belongs.

        Args:
            config: the model's sizes and ids.

        Returns:
            Sorted int32 ids.

        Raises:
            UserError: if model and tokenizer disagree about picture tokens or sizes.
        """
        ours = (self.image_pad, self.vision_start, self.vision_end)
        theirs = (
            config.image_token_id,
            config.vision_start_token_id,
            config.vision_end_token_id,
        )
        if ours != theirs or self.vocab_size > config.text.vocab_size:
            raise UserError(
                f"tokenizer with picture tokens {ours} and {self.vocab_size} ids does "
                f"not fit the model's {theirs} and {config.text.vocab_size} rows; take "
                "both from one folder"
            )
        unused = set(range(config.text.vocab_size)) - set(self._ids.values())
        named = {self._ids[name] for name in _FORBIDDEN if name in self._ids}
        every = unused | named | {*theirs, config.video_token_id}
        return np.array(sorted(every), np.int32)


_SPECIAL = {
    "im_start": "<|im_start|>",
    "im_end": "<|im_end|>",
    "end_of_text": "<|endoftext|>",
    "vision_start": "<|vision_start|>",
    "vision_end": "<|vision_end|>",
    "image_pad": "<|image_pad|>",
}
_FORBIDDEN = ("<|im_start|>", "<|vision_pad|>", "<|video_pad|>")


def _without_added_tokens(data: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Builds the same tokenizer without the tokens that match by their whole name."""
    added = {token["content"] for token in data["added_tokens"]}
    vocab = {k: v for k, v in data["model"]["vocab"].items() if k not in added}
    plain = {**data, "added_tokens": [], "model": {**data["model"], "vocab": vocab}}
    return tokenizers.Tokenizer.from_str(json.dumps(plain))
