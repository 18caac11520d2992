"""TRL's side of `experiments.benchmarks.peers`; runs in an environment of its own.

It imports nothing of this project. The first argument is a JSON file with the case;
"go" on standard input asks for one step of `GRPOTrainer`, and a line of JSON answers.
"""

import json
import os
import sys
import time
import zlib
from importlib.metadata import version
from pathlib import Path
from typing import Any


def main(path: str) -> None:
    """Trains as many steps as are asked for."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # What libraries print goes to the log.
    import torch

    torch.set_num_threads(1)
    case = json.loads(Path(path).read_text())
    trainer = make_trainer(case)
    prompt = sized(trainer)
    packages = ("torch", "transformers", "trl")
    answers.write(
        json.dumps(
            {
                "versions": {name: version(name) for name in packages},
                "prompt_tokens": prompt,
                "parameters": sum(p.numel() for p in trainer.model.parameters()),
            }
        )
        + "\n"
    )
    trainer.add_callback(make_stepper(trainer, case, answers))
    trainer.train()


def make_stepper(trainer: Any, case: dict[str, Any], answers: Any) -> Any:
    """Returns a callback that waits before each step and tells what it took."""
    from transformers import TrainerCallback

    class Stepper(TrainerCallback):
        """Stands around a step: generation, loss, gradient, clip and optimizer."""

        began: tuple[float, float]

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if not sys.stdin.readline():
                os._exit(0)
            self.began = time.process_time(), time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            cpu, wall = time.process_time(), time.perf_counter()
            metrics = {k: v[-1] for k, v in trainer._metrics["train"].items() if v}
            told = {
                "cpu": cpu - self.began[0],
                "wall": wall - self.began[1],
                "tokens": metrics["completions/mean_length"] * case["rows"],
                "reward_std": metrics["reward_std"],
            }
            answers.write(json.dumps(told) + "\n")

    return Stepper()


def make_trainer(case: dict[str, Any]) -> Any:
    """Returns a trainer: one batch of whole groups a step, everything in float32."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForImageTextToText
    from trl import GRPOConfig, GRPOTrainer

    folder, group = case["folder"], case["group_size"]
    rows: dict[str, list[Any]] = {
        "prompt": [[{"role": "user", "content": text}] for text in case["prompts"]]
    }
    if case["frames"]:
        rows["image"] = pictures(case["frames"])
    data = Dataset.from_dict(rows)
    settings = GRPOConfig(
        output_dir=case["scratch"],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        learning_rate=case["learning_rate"],
        lr_scheduler_type="constant",
        per_device_train_batch_size=case["rows"],
        gradient_accumulation_steps=1,
        num_generations=group,
        max_completion_length=case["new_tokens"],
        generation_kwargs={"min_new_tokens": case["new_tokens"]},
        temperature=1.0,
        num_iterations=1,
        beta=0.0,
        max_steps=case["steps"],
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    return GRPOTrainer(
        model=AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=reward,
        args=settings,
        train_dataset=data,
        processing_class=make_processor(folder, shows=bool(case["frames"])),
    )


def make_processor(folder: str, *, shows: bool) -> Any:
    """Returns the tokenizer, or with pictures a processor that needs no torchvision.

    The one that transformers would load also reads videos, for which it insists on
    torchvision. Pictures go through its Pillow backend.
    """
    from transformers import AutoTokenizer, Qwen3VLProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
        Qwen2VLImageProcessorPil,
    )

    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    if not shows:
        return tokenizer
    images = Qwen2VLImageProcessorPil.from_pretrained(folder)

    class NoVideos(Qwen3VLProcessor):
        """Takes the image processor in the place of one for videos."""

        def check_argument_for_proper_class(
            self, argument_name: str, argument: Any
        ) -> Any:
            if argument_name == "video_processor":
                return None
            return super().check_argument_for_proper_class(argument_name, argument)

    template = tokenizer.chat_template
    return NoVideos(images, tokenizer, images, chat_template=template)


def pictures(path: str) -> list[Any]:
    """Reads one picture a prompt."""
    import numpy as np
    from PIL import Image

    return [Image.fromarray(frame) for frame in np.load(path)]


def sized(trainer: Any) -> int:
    """Returns the tokens of the first prompt as the trainer itself reads it."""
    example = dict(trainer.train_dataset[0])
    prompt = example["prompt"]
    if "image" in example:
        from trl.data_utils import prepare_multimodal_messages

        prompt = prepare_multimodal_messages(prompt, images=[example["image"]])
    return len(trainer._tokenize_prompts([prompt])[0][0])


def reward(completions: list[Any], **_: Any) -> list[float]:
    """A number in [0, 1) that depends on every letter of the reply."""
    texts = [completion[0]["content"] for completion in completions]
    return [zlib.crc32(text.encode()) / 2**32 for text in texts]


if __name__ == "__main__":
    main(sys.argv[1])
