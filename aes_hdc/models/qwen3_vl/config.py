"""Sizes of a Qwen3-VL model, read from and written to Hugging Face config files."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aes_hdc.errors import UserError


@dataclass(frozen=True)
class TextConfig:
    """Sizes of the text decoder; the fields keep the names of the public files.

    Attributes:
        vocab_size: rows of the token table, padding rows included.
        hidden_size: width D of the residual stream.
        intermediate_size: width F of the gated MLP.
        num_hidden_layers: decoder layers.
        num_attention_heads: query heads H.
        num_key_value_heads: key and value heads K, a divisor of H.
        head_dim: width of a head; H * head_dim may differ from D.
        rope_theta: base of the rotary frequencies.
        mrope_section: frequencies of the axes (time, height, width); the first is
            unused.
        rms_norm_eps: added to the mean square.
        max_position_embeddings: the longest context the weights were made for.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rope_theta: float = 5_000_000.0
    mrope_section: tuple[int, int, int] = (24, 20, 20)
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 262_144

    def __post_init__(self) -> None:
        """Checks the sizes against each other."""
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads {self.num_attention_heads} is not a multiple of "
                f"num_key_value_heads {self.num_key_value_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim {self.head_dim} is odd; rotary needs pairs")


@dataclass(frozen=True)
class VisionConfig:
    """Sizes of the vision tower; the fields keep the names of the public files.

    Attributes:
        depth: transformer blocks.
        hidden_size: width C of a patch.
        intermediate_size: width of the block MLP.
        num_heads: attention heads.
        out_hidden_size: width of an image token, equal to the text width D.
        patch_size: side of a patch, in pixels.
        num_position_embeddings: entries of the square table of learned positions.
        deepstack_visual_indexes: increasing indices of the blocks whose outputs are
            also fed to the first text layers, one layer each.
        spatial_merge_size: side of the square of patches merged into one token.
        temporal_patch_size: time slots of a patch; a still picture fills all alike.
        in_channels: colour channels.
    """

    depth: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    out_hidden_size: int
    patch_size: int = 16
    num_position_embeddings: int = 2304
    deepstack_visual_indexes: tuple[int, ...] = (5, 11, 17)
    spatial_merge_size: int = 2
    temporal_patch_size: int = 2
    in_channels: int = 3

    def __post_init__(self) -> None:
        """Checks the sizes against each other."""
        taps = self.deepstack_visual_indexes
        if list(taps) != sorted(set(taps)) or any(
            not 0 <= i < self.depth for i in taps
        ):
            raise ValueError(
                f"deepstack_visual_indexes {list(taps)} must increase and lie in "
                f"0..{self.depth - 1}"
            )
        if self.hidden_size % (4 * self.num_heads):
            raise ValueError(
                f"vision hidden_size {self.hidden_size} must be a multiple of "
                f"4 * num_heads = {4 * self.num_heads}; rotary needs it"
            )
        if self.position_side**2 != self.num_position_embeddings:
            raise ValueError(
                f"num_position_embeddings {self.num_position_embeddings} is no square"
            )

    @property
    def position_side(self) -> int:
        """Entries along one side of the table of learned positions."""
        return round(self.num_position_embeddings**0.5)

    @property
    def patch_values(self) -> int:
        """Values of one patch of a still picture, in_channels * patch_size^2."""
        return self.in_channels * self.patch_size**2

    @property
    def merged(self) -> int:
        """Patches merged into one image token."""
        return self.spatial_merge_size**2


@dataclass(frozen=True)
class Config:
    """One Qwen3-VL model.

    Attributes:
        text: the decoder.
        vision: the tower.
        tie_word_embeddings: whether the token table is also the output head.
        image_token_id: placeholder of one image token.
        video_token_id: placeholder of one video token; never produced here.
        vision_start_token_id: token before an image.
        vision_end_token_id: token after an image.
    """

    text: TextConfig
    vision: VisionConfig
    tie_word_embeddings: bool
    image_token_id: int = 151_655
    video_token_id: int = 151_656
    vision_start_token_id: int = 151_652
    vision_end_token_id: int = 151_653

    def __post_init__(self) -> None:
        """Checks the sizes against each other."""
        if self.vision.out_hidden_size != self.text.hidden_size:
            raise ValueError(
                f"vision out_hidden_size {self.vision.out_hidden_size} differs from "
                f"the text hidden_size {self.text.hidden_size}"
            )
        if self.num_deepstack > self.text.num_hidden_layers:
            raise ValueError(
                f"{self.num_deepstack} deepstack features need as many text layers, "
                f"but there are {self.text.num_hidden_layers}"
            )

    @property
    def num_deepstack(self) -> int:
        """Text layers after which image features are added."""
        return len(self.vision.deepstack_visual_indexes)

    def to_json(self, dtype: str = "float32") -> dict[str, Any]:
        """Returns the content of a config.json in the layout of transformers 5.

        Args:
            dtype: the type of the stored weights, as a name.
        """
        text, vision = dataclasses.asdict(self.text), dataclasses.asdict(self.vision)
        text["rope_parameters"] = {
            "rope_type": "default",
            "rope_theta": text.pop("rope_theta"),
            "mrope_section": list(text.pop("mrope_section")),
            "mrope_interleaved": True,
        }
        text |= {"model_type": "qwen3_vl_text", "hidden_act": "silu"}
        text |= {"attention_bias": False, "attention_dropout": 0.0}
        vision["deepstack_visual_indexes"] = list(self.vision.deepstack_visual_indexes)
        vision |= {"model_type": "qwen3_vl_vision", "hidden_act": "gelu_pytorch_tanh"}
        top = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)[2:]}
        return top | {
            "architectures": ["Qwen3VLForConditionalGeneration"],
            "model_type": "qwen3_vl",
            "dtype": dtype,
            "text_config": text,
            "vision_config": vision,
        }


def from_json(data: Mapping[str, Any], where: str) -> Config:
    """Reads the content of a config.json in the public or the transformers 5 layout.

    Args:
        data: the parsed file.
        where: the file's name, for messages.

    Raises:
        UserError: if keys are missing, or ask for something this model does not have.
    """
    missing: list[str] = []
    text, vision = (
        dict(data.get("text_config", {})),
        dict(data.get("vision_config", {})),
    )
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    text = {"rope_theta": rope.get("rope_theta")} | text | {k: rope[k] for k in rope}
    _refuse(where, "text_config", text, _TEXT_FIXED)
    _refuse(where, "vision_config", vision, _VISION_FIXED)
    top = dict(data)
    top.setdefault("tie_word_embeddings", text.get("tie_word_embeddings"))
    text_fields = _pick(TextConfig, text, "text_config.", missing)
    vision_fields = _pick(VisionConfig, vision, "vision_config.", missing)
    top_fields = _pick(Config, top, "", missing, skip=("text", "vision"))
    if missing:
        raise UserError(
            f"{where}: missing {', '.join(missing)}; a Qwen3-VL config.json has them"
        )
    try:
        return Config(
            text=TextConfig(**text_fields),
            vision=VisionConfig(**vision_fields),
            **top_fields,
        )
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error


def read_config(folder: str | Path) -> Config:
    """Reads `config.json` of a checkpoint folder.

    Raises:
        UserError: if the file is absent, not JSON, or not a Qwen3-VL configuration.
    """
    path = Path(folder) / "config.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; give a Qwen3-VL folder") from error
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error})") from error
    return from_json(data, str(path))


def known_config(folder: str | Path) -> Config:
    """Reads a folder's config; of a public model the name alone will do.

    Args:
        folder: a checkpoint folder, or a path that ends in a name such as
            Qwen3-VL-4B-Instruct.

    Raises:
        UserError: if there is no such folder and the name is not a known one.
    """
    folder = Path(folder)
    if folder.is_dir():
        return read_config(folder)
    for variant, config in VARIANTS.items():
        if folder.name.lower() == f"qwen3-vl-{variant}-instruct":
            return config
    names = ", ".join(f"Qwen3-VL-{variant.upper()}-Instruct" for variant in VARIANTS)
    raise UserError(f"{folder}: no such folder, and its name is none of {names}")


# What the forward pass takes for granted; a file that says otherwise is another model.
_TEXT_FIXED = {"hidden_act": "silu", "attention_bias": False, "rope_type": "default"}
_VISION_FIXED = {"hidden_act": "gelu_pytorch_tanh"}


def _refuse(
    where: str, section: str, have: Mapping[str, Any], want: Mapping[str, Any]
) -> None:
    """Raises UserError at the first fixed key that has another value."""
    for key, value in want.items():
        if have.get(key, value) != value:
            raise UserError(
                f"{where}: {section}.{key} is {have[key]!r}; only {value!r} is "
                "supported"
            )


def _pick(
    kind: type,
    have: Mapping[str, Any],
    prefix: str,
    missing: list[str],
    skip: tuple = (),
) -> dict[str, Any]:
    """Returns the fields of `kind` found in `have`; `missing` gets the absent ones."""
    found = {}
    for field in dataclasses.fields(kind):
        if field.name in skip:
            continue
        value = have.get(field.name)
        if value is None:
            missing.append(prefix + field.name)
        found[field.name] = tuple(value) if isinstance(value, list) else value
    return found


VARIANTS = {
    "2b": Config(
        TextConfig(151_936, 2048, 6144, 28, 16, 8, 128),
        VisionConfig(24, 1024, 4096, 16, out_hidden_size=2048),
        tie_word_embeddings=True,
    ),
    "4b": Config(
        TextConfig(151_936, 2560, 9728, 36, 32, 8, 128),
        VisionConfig(24, 1024, 4096, 16, out_hidden_size=2560),
        tie_word_embeddings=True,
    ),
    "8b": Config(
        TextConfig(151_936, 4096, 12288, 36, 32, 8, 128),
        VisionConfig(
            27,
            1152,
            4304,
            16,
            out_hidden_size=4096,
            deepstack_visual_indexes=(8, 16, 24),
        ),
        tie_word_embeddings=False,
    ),
}
