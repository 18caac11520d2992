"""The model and the prompts that all sides of `experiments.benchmarks.peers` share."""

from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from aes_hdc import storage
from aes_hdc.models.qwen3_vl.config import Config, TextConfig, VisionConfig
from aes_hdc.models.qwen3_vl.model import Qwen3VL, init_params
from aes_hdc.models.qwen3_vl.processor import ImageProcessor, Tokenizer
from aes_hdc.models.qwen3_vl.weights import save_folder
from experiments.base_model import (
    PLAIN_TOKENS,
    SPECIAL_TOKENS,
    count_parameters,
    tokenizer_config,
    train_tokenizer,
)

VOCABULARY = 4096
PARAMETERS = 8_372_736
FRAME_PX = 128  # 64 patches of 16 pixels, 16 tokens.
NUM_PROMPTS, GROUP_SIZE, NEW_TOKENS = 4, 8, 16

# What our tokenizer writes for one user message, as a template of transformers.
TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\n' -}}"
    "{%- if message.content is string -%}{{- message.content -}}{%- else -%}"
    "{%- for part in message.content -%}"
    "{%- if part.type == 'image' -%}"
    "{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}"
    "{%- elif part.text -%}{{- part.text -}}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}"
    "{{- '<|im_end|>\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)


@dataclass(frozen=True)
class Case:
    """One row of the comparison.

    Attributes:
        tokens: of a prompt, those of its picture and of the chat format included.
        picture: whether each prompt shows one.
    """

    tokens: int
    picture: bool

    @property
    def name(self) -> str:
        """As files and worker arguments spell it."""
        return f"{'picture' if self.picture else 'text'}-{self.tokens}"


def make_folder(folder: Path) -> None:
    """Writes the model of random weights, once.

    Raises:
        ValueError: if it has not the size that it should have.
    """
    if (folder / "model.safetensors").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    plain = VOCABULARY - len(SPECIAL_TOKENS) - len(PLAIN_TOKENS)
    size = train_tokenizer(iter(_texts()), folder / "tokenizer.json", plain)
    ids = {name: plain + place for place, name in enumerate(SPECIAL_TOKENS)}
    config = Config(
        TextConfig(size, 256, 768, 6, 8, 4, 32, mrope_section=(8, 4, 4)),
        VisionConfig(4, 128, 512, 4, 256, 16, 256, (0, 1, 2)),
        tie_word_embeddings=True,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    params = jax.jit(lambda key: init_params(Qwen3VL(config), key))(jax.random.key(0))
    if (size, count_parameters(params)) != (VOCABULARY, PARAMETERS):
        raise ValueError(f"{size} tokens and {count_parameters(params)} parameters")
    ends = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    settings = tokenizer_config() | {"chat_template": TEMPLATE}
    storage.write_json(folder / "tokenizer_config.json", settings)
    storage.write_text(folder / "chat_template.jinja", TEMPLATE)
    save_folder(
        folder,
        config,
        params,
        # So small a lower limit that a picture of 32 pixels stays as it is.
        preprocessor=ImageProcessor(16, min_pixels=32**2).to_json(),
        generation={"eos_token_id": ends, "pad_token_id": ends[1], "do_sample": True},
        dtype=jax.numpy.float32,
    )


def make_prompts(folder: Path, case: Case) -> list[str]:
    """Returns texts whose messages have exactly the case's number of tokens.

    Each digit is a token of its own, so digits fill up any length.
    """
    tokenizer = Tokenizer(folder / "tokenizer.json")
    shown = (FRAME_PX // 32) ** 2 if case.picture else 0
    room = case.tokens - len(tokenizer.user_message("", shown))
    rng = np.random.default_rng(case.tokens)
    texts = ["".join(map(str, r)) for r in rng.integers(0, 10, (NUM_PROMPTS, room))]
    for text in texts:
        assert len(tokenizer.user_message(text, shown)) == case.tokens
    return texts


def make_frames() -> np.ndarray:
    """Returns a picture of noise for each prompt, [prompts, px, px, 3] uint8."""
    rng = np.random.default_rng(0)
    shape = (NUM_PROMPTS, FRAME_PX, FRAME_PX, 3)
    return rng.integers(0, 256, shape).astype(np.uint8)


def _texts() -> list[str]:
    """Made-up words, each often enough to become a token."""
    rng = np.random.default_rng(0)
    letters = np.array([*"abcdefghijklmnopqrstuvwxyz"])
    words = ["".join(rng.choice(letters, rng.integers(3, 7))) for _ in range(6000)]
    return [f"user\nassistant\n {' '.join(words)}"] * 3
