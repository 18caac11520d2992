"""What every stage is given."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aes_hdc.learner.metrics import TensorBoard, Wandb, Writer, Writers
from aes_hdc.rollouts.model_player import ModelPlayer
from experiments.learning import Policy
from experiments.runtime import load_policy, make_player
from experiments.suite import Suite


@dataclass(frozen=True)
class Run:
    """A config, a run folder, and the parts that stages make of them.

    Attributes:
        config: the whole config, nested dicts of plain values.
        workdir: the run folder.
        suite: its environments.
    """

    config: dict[str, Any]
    workdir: Path
    suite: Suite

    @property
    def seed(self) -> int:
        """From which every random stream follows."""
        return self.config["seed"]

    def folder(self, stage: str) -> Path:
        """Where a stage's artefacts lie."""
        return self.workdir / stage

    def policy(self, folder: str = "") -> Policy:
        """Loads the config's model, or the one in `folder`."""
        model = self.config["model"] | ({"folder": folder} if folder else {})
        return load_policy(frame_px=self.suite.frame_px, **model)

    def player(
        self, policy: Policy, name: str = "model", **changes: Any
    ) -> ModelPlayer:
        """Makes a player from the rollout section."""
        return make_player(policy, name=name, **(self.config["rollout"] | changes))

    def writers(self, folder: Path) -> Writers:
        """Opens what the logging section asks for, beside the JSON lines."""
        section = self.config["logging"]
        factories: dict[str, Callable[[], Writer]] = {}
        if section["tensorboard"] and importlib.util.find_spec("tensorboardX"):
            factories["tensorboard"] = lambda: TensorBoard(folder / "tensorboard")
        if section["wandb"] != "off":
            factories["wandb"] = lambda: Wandb(folder, section["wandb"], self.config)
        return Writers(factories)
