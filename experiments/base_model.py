"""A model folder from nothing: a tokenizer of the environments' text, fresh weights."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import tokenizers
from tokenizers import (
    AddedToken,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from aes_hdc import storage, streams
from aes_hdc.episode import SPLITS, Harness, Task
from aes_hdc.models.qwen3_vl.config import Config, TextConfig, VisionConfig
from aes_hdc.models.qwen3_vl.model import Qwen3VL, init_params
from aes_hdc.models.qwen3_vl.processor import ImageProcessor
from aes_hdc.models.qwen3_vl.weights import save_folder
from aes_hdc.rollouts.collect import play
from aes_hdc.rollouts.players import OraclePlayer

# The public tokenizer's special tokens, in the order of their ids.
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
PLAIN_TOKENS = (
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
# How Qwen cuts text before byte-pair merges: words with the space before them, single
# digits, runs of punctuation.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(texts: Iterator[str], path: Path, max_tokens: int) -> int:
    """Trains a byte-level BPE with Qwen's word rule and special tokens.

    Args:
        texts: what the model will read and write; a word seen twice can become a token.
        path: the tokenizer.json to write.
        max_tokens: tokens besides the special ones, at most.

    Returns:
        The number of ids.
    """
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=max_tokens,
        min_frequency=2,
        special_tokens=[],
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(texts, trainer)
    for names, is_special in ((SPECIAL_TOKENS, True), (PLAIN_TOKENS, False)):
        tokenizer.add_tokens(
            [AddedToken(n, special=is_special, normalized=False) for n in names]
        )
    storage.write_text(path, tokenizer.to_str())
    return tokenizer.get_vocab_size()


def environment_texts(
    env_levels: Mapping[str, int], *, seed: int, episodes: int, frame_px: int
) -> Iterator[str]:
    """Yields the messages and replies of oracle episodes with all help.

    Args:
        env_levels: number of levels of every environment.
        seed: of the instances.
        episodes: per environment and level.
        frame_px: side of the frames, for legibility only.
    """
    player = OraclePlayer(noise=0.3, seed=seed)
    for env_id, num_levels in sorted(env_levels.items()):
        for level in range(num_levels):
            seeds = streams.generator(seed, "texts", env_id, level).integers(
                len(SPLITS["train"]), size=episodes
            )
            tasks = [
                Task(env_id, int(s), level, Harness.ALL, picture=False) for s in seeds
            ]
            for episode in play(tasks, player, frame_px=frame_px):
                for turn in episode.turns:
                    yield f"user\n{turn.observation.text}"
                    yield turn.reply
    yield "assistant\n"
    yield "describe"
    yield "describe"


def make_base_folder(
    folder: Path,
    env_levels: Mapping[str, int],
    *,
    seed: int,
    frame_px: int,
    text: Mapping[str, Any],
    vision: Mapping[str, Any],
    max_tokens: int,
    text_episodes: int,
) -> None:
    """Writes a complete model folder with fresh weights.

    Args:
        folder: made if absent.
        env_levels: number of levels of every environment whose text is to be read.
        seed: of weights and texts.
        frame_px: side of the frames; the preprocessor leaves frames of this size alone.
        text: fields of `TextConfig` without vocab_size.
        vision: fields of `VisionConfig` without out_hidden_size.
        max_tokens: tokens besides the special ones, at most.
        text_episodes: episodes per environment and level the tokenizer is trained on.
    """
    texts = environment_texts(
        env_levels, seed=seed, episodes=text_episodes, frame_px=frame_px
    )
    size = train_tokenizer(texts, folder / "tokenizer.json", max_tokens)
    first = size - len(SPECIAL_TOKENS) - len(PLAIN_TOKENS)
    ids = {name: first + place for place, name in enumerate(SPECIAL_TOKENS)}
    config = Config(
        TextConfig(vocab_size=size, **text),
        VisionConfig(out_hidden_size=text["hidden_size"], **vision),
        tie_word_embeddings=True,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    data = jax.numpy.asarray(streams.key_data(seed, "init"))
    params = jax.jit(
        lambda data: init_params(Qwen3VL(config), jax.random.wrap_key_data(data))
    )(data)
    images = ImageProcessor(config.vision.patch_size, min_pixels=frame_px**2)
    end = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    generation = {"eos_token_id": end, "pad_token_id": end[1], "do_sample": True}
    storage.write_json(folder / "tokenizer_config.json", tokenizer_config())
    save_folder(
        folder,
        config,
        params,
        preprocessor=images.to_json(),
        generation=generation,
        dtype=jax.numpy.float32,
    )


def tokenizer_config() -> dict[str, Any]:
    """Returns what transformers needs beside tokenizer.json."""
    return {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "bos_token": None,
        "unk_token": None,
        "model_max_length": 4096,
    }


def count_parameters(params: Any) -> int:
    """Returns the number of values in a parameter tree."""
    leaves: Sequence[Any] = jax.tree.leaves(params)
    return sum(leaf.size for leaf in leaves)
