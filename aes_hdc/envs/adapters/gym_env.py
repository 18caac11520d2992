"""Our environments as `gymnasium.Env`; importing this module registers their ids.

    import gymnasium, aes_hdc.envs.adapters.gym_env
    env = gymnasium.make("aes_hdc/frozen_lake-v1", level=2)

Actions are texts, observations hold the picture and the message of the turn.
"""

import string
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from aes_hdc import envs
from aes_hdc.episode import SPLITS, Harness, Task

NAMESPACE = "aes_hdc"
MAX_REPLY = 1000  # characters
MAX_TEXT = 20_000  # characters
CHARSET = frozenset(string.printable)


class GymEnv(gymnasium.Env[dict[str, Any], str]):
    """One environment at one level, a new instance at each reset.

    The observation is `image`, [frame_px, frame_px, 3] uint8, and `text`, the user
    message of the turn. `info` holds `feedback`, `valid`, `success` and `label`.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        env_id: str,
        level: int = 0,
        frame_px: int = 96,
        *,
        harness: str = "all",
        split: str = "train",
        render_mode: str | None = None,
    ) -> None:
        """Makes the environment.

        Args:
            env_id: an id of `envs.make`.
            level: index into its ladder.
            frame_px: side of the picture, a multiple of 32.
            harness: the help shown, as `Harness.parse` reads it.
            split: which instances are drawn, a key of `SPLITS`.
            render_mode: "rgb_array" or None.

        Raises:
            ValueError: if a value is unknown or the level is not legible at `frame_px`.
        """
        if split not in SPLITS:
            raise ValueError(f"split {split!r} is not one of {[*SPLITS]}")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode {render_mode!r}: only rgb_array is there")
        self._env = envs.make(env_id)
        levels = self._env.spec.levels
        if level not in range(len(levels)):
            raise ValueError(f"level {level!r}: {env_id} has 0 to {len(levels) - 1}")
        if frame_px % 32 or frame_px < levels[level].min_px:
            raise ValueError(
                f"frame_px {frame_px!r}: {env_id} level {level} needs a multiple of 32"
                f" from {levels[level].min_px}"
            )
        self.frame_px, self.render_mode = frame_px, render_mode
        self._seeds = SPLITS[split]
        self._task = Task(env_id, 0, level, Harness.parse(harness))
        self._state: Any = None
        self.action_space = spaces.Text(MAX_REPLY, min_length=0, charset=CHARSET)
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (frame_px, frame_px, 3), np.uint8),
                "text": spaces.Text(MAX_TEXT, charset=CHARSET),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Draws an instance of the split."""
        super().reset(seed=seed)
        number = int(self.np_random.integers(self._seeds.start, self._seeds.stop))
        self._state = self._env.reset(number, self._task.level)
        return self._observe(first=True, feedback=""), {}

    def step(
        self, action: str
    ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Plays a reply.

        Raises:
            ValueError: before the first reset, and after the end of an episode.
        """
        if self._state is None:
            raise ValueError("reset before the first step")
        step = self._env.step(self._state, action)
        info = {
            "feedback": step.feedback,
            "valid": step.valid,
            "success": step.success,
            "label": step.label,
        }
        seen = self._observe(first=False, feedback=step.feedback)
        return seen, step.reward, step.terminated, step.truncated, info

    def render(self) -> Any:
        """Returns the picture, a fresh array, or None without a render mode."""
        if self.render_mode is None or self._state is None:
            return None
        return self._env.render(self._state, self.frame_px)

    def _observe(self, *, first: bool, feedback: str) -> dict[str, Any]:
        text = self._env.prompt(self._state, self._task, first=first, feedback=feedback)
        return {"image": self._env.render(self._state, self.frame_px), "text": text}


def register() -> None:
    """Registers `aes_hdc/ID-vVERSION` for every environment of `envs.all_specs`."""
    for spec in envs.all_specs():
        name = f"{NAMESPACE}/{spec.id}-v{spec.version}"
        if name not in gymnasium.registry:
            gymnasium.register(
                name,
                entry_point=f"{__name__}:GymEnv",
                kwargs={"env_id": spec.id},
            )


register()
