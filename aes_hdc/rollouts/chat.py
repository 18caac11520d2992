"""Observations and replies as token ids and patches of one model folder."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from aes_hdc.episode import Observation
from aes_hdc.models.qwen3_vl.config import Config
from aes_hdc.models.qwen3_vl.positions import rope_positions
from aes_hdc.models.qwen3_vl.processor import ImageProcessor, Tokenizer


class Chat:
    """The host side of a model: what it reads and writes, as arrays.

    Attributes:
        frame_px: side of the frames it is shown.
        patch_shape: patches of a frame and values of a patch.
        forbidden_ids: tokens that no reply may hold.
        end_ids: tokens that end a reply.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        images: ImageProcessor,
        config: Config,
        *,
        frame_px: int,
    ) -> None:
        """Fixes the size of the frames, and with it the shape of all picture arrays."""
        self.frame_px = frame_px
        self._tokenizer, self._images = tokenizer, images
        self._image_token_id = config.image_token_id
        height, width = images.grid(frame_px, frame_px)
        self.patch_shape = (height * width, config.vision.patch_values)
        self.forbidden_ids = tuple(tokenizer.forbidden_ids(config).tolist())
        self.end_ids = tokenizer.stop_ids

    @classmethod
    def from_folder(cls, folder: Path, config: Config, *, frame_px: int) -> "Chat":
        """Reads tokenizer.json and preprocessor_config.json of a model folder."""
        images = ImageProcessor.from_folder(folder)
        tokenizer = Tokenizer(folder / "tokenizer.json")
        return cls(tokenizer, images, config, frame_px=frame_px)

    def patches(self, frame: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
        """Cuts a frame, [frame_px, frame_px, 3] uint8, into patches and their grid."""
        return self._images(frame)

    def message(
        self, observation: Observation, grids: Sequence[tuple[int, int]], *, first: bool
    ) -> list[int]:
        """Encodes a user message up to where the reply begins."""
        grid = grids[0] if grids else None
        return self._tokenizer.render_user(observation.text, grid, first=first)

    def place(
        self, ids: Sequence[int], grids: Sequence[tuple[int, int]], start: int
    ) -> tuple[np.ndarray, int, np.ndarray]:
        """Finds positions and picture tokens of a message.

        Returns:
            [3, n] int32 M-RoPE positions, the position after them, and [n] bool,
            whether a token stands for part of a picture.
        """
        positions, following = rope_positions(
            ids, grids, self._image_token_id, start=start
        )
        return positions, following, np.asarray(ids) == self._image_token_id

    def reply(self, text: str) -> list[int]:
        """Encodes a reply with its end token, as a model would have written it."""
        return [*self._tokenizer.encode(text), self._tokenizer.im_end]

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes a sampled reply without its end token."""
        return self._tokenizer.decode(ids)
