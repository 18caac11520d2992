"""Plays one episode in the terminal and writes every frame that is shown.

python -m experiments.play --env=ID --level=2
python -m experiments.play --env=ID --player=oracle --out=DIR

A human types replies; the message is the one that a policy would read.
"""

import argparse
import contextlib
import difflib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from PIL import Image

from aes_hdc import envs, storage
from aes_hdc.envs import foreign
from aes_hdc.episode import SPLITS, Harness, Task
from aes_hdc.errors import UserError
from aes_hdc.rollouts.collect import Player, Reply, Request, play
from aes_hdc.rollouts.players import OraclePlayer
from experiments.examples import write_episode

PLAYERS = ("human", "oracle", "random", "model")
HUMAN_PX, MODEL_PX = 256, 96  # The embedded model was made on frames of 96.
GIF_MS = 700  # A frame; long enough to see what has changed.
# One conversation at a time, so room for long messages costs little.
SIZES: dict[str, Any] = {
    "capacity": 1,
    "prefill": ((1, 128, 2048), (1, 768, 2048)),
    "decode": ((1, 2048),),
    "max_new_tokens": 16,
}


class Terminal:
    """Shows what a player is shown, and asks whoever sits there if there is none."""

    capacity = 1  # Turns are printed one after another.

    def __init__(self, player: Player | None, path: Path) -> None:
        """Takes the player, and the path that all files of the episode begin with."""
        self.name = player.name if player else PLAYERS[0]
        self._player, self._path = player, path
        self._frames: list[np.ndarray] = []
        self._last: Request | None = None

    def act(self, requests: Sequence[Request]) -> Mapping[int, Reply]:
        """Prints the message and the frame's path; raises EOFError if input ends."""
        (request,) = requests
        frame, self._last = request.observation.frame, request
        assert frame is not None, "the task shows pictures"
        path = Path(f"{self._path}-{request.turn:02d}.png")
        Image.fromarray(frame).save(path)
        self._frames.append(frame)
        print(f"\n[{path}]\n{request.observation.text}", flush=True)
        if self._player:
            replies = self._player.act(requests)
        else:
            replies = {request.index: Reply(input("> "))}
        if self._player or not sys.stdin.isatty():  # Nobody has seen it typed.
            print(f"{'> ' * bool(self._player)}{replies[request.index].text}")
        return replies

    def end(self) -> None:
        """Writes the last picture and the animation, and prints where they are."""
        if self._last is None:
            return
        final = self._last.env.render(self._last.state, len(self._frames[0]))
        first, *rest = map(Image.fromarray, (*self._frames, final))
        rest[-1].save(f"{self._path}-end.png")
        gif = f"{self._path}.gif"
        first.save(gif, append_images=rest, duration=GIF_MS, loop=0, save_all=True)
        print(f"{self._path}-end.png\n{gif}")


class _Parser(argparse.ArgumentParser):
    """Complains in one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see --help")


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    about = (__doc__ or "").partition("\n")[0]
    parser = _Parser(prog="experiments.play", description=about, allow_abbrev=False)
    add = parser.add_argument
    add("--env", required=True, metavar="ID", help="environment")
    add("--level", type=int, default=0, help="scale level; 0 is the easiest")
    add("--seed", type=int, help="which instance; drawn if left out")
    add("--harness", default="rules", help="none, all, or parts such as rules+state")
    add("--turns", choices=("many", "one"), default="many", help="one: the whole plan")
    add("--frame_px", type=int, help="side of the frames, a multiple of 32")
    add("--out", type=Path, help="folder of the frames; a temporary one if left out")
    add("--player", choices=PLAYERS, default=PLAYERS[0], help="who plays")
    add("--folder", default="", help="model that plays; the embedded one if left out")
    return parser


def find_spec(env_id: str) -> envs.Spec:
    """Looks an environment up, in our own or in the suite that its name begins with.

    Raises:
        UserError: if there is none; the message names those most like it.
    """
    suite = foreign.suite_of(env_id)
    found = envs.load_suite(suite) if suite else envs.all_specs()
    specs = {spec.id: spec for spec in found}
    if env_id not in specs:
        near = difflib.get_close_matches(env_id, specs, n=3)
        hint = f"did you mean {' or '.join(near)}; " if near else ""
        have = ", ".join(specs)
        raise UserError(f"--env={env_id}: no such environment; {hint}have {have}")
    return specs[env_id]


def check_task(spec: envs.Spec, values: argparse.Namespace) -> tuple[Task, int]:
    """Returns the task and the side of its frames.

    Raises:
        UserError: at the first value that the environment does not have.
    """
    level, top, seed = values.level, len(spec.levels) - 1, values.seed
    if not 0 <= level <= top:
        raise UserError(f"--level={level}: {spec.id} has 0 to {top}")
    if values.turns == "one" and not spec.has_plan:
        raise UserError(f"--turns=one: {spec.id} has no plan: {spec.no_plan_reason}")
    if seed is None:
        seed = int(np.random.default_rng().integers(len(SPLITS["train"])))
    if not any(seed in span for span in SPLITS.values()):
        known = ", ".join(f"{s.start} to {s.stop - 1}" for s in SPLITS.values())
        raise UserError(f"--seed={seed}: no instance has it; have {known}")
    try:
        harness = Harness.parse(values.harness)
    except ValueError as error:
        raise UserError(f"--harness={values.harness}: {error}") from error
    least = spec.levels[level].min_px
    usual = MODEL_PX if values.player == "model" else HUMAN_PX
    side = values.frame_px or max(usual, least)
    if side < least or side % 32:
        raise UserError(
            f"--frame_px={side}: {spec.id} level {level} needs a multiple of 32 from"
            f" {least} up"
        )
    return Task(spec.id, seed, level, harness, turns=values.turns), side


def make_player(values: argparse.Namespace, task: Task, side: int) -> Player | None:
    """Returns who plays; a model is loaded, and JAX with it, only where one does."""
    if values.player != "model":
        oracle = OraclePlayer(noise=float(values.player == "random"), seed=task.seed)
        return None if values.player == "human" else oracle
    from experiments import runtime

    model: dict[str, Any] = {"dtype": "float32", "unroll": True, "temperature": 1.0}
    policy = runtime.load_policy(folder=values.folder, frame_px=side, **model)
    player = runtime.make_player(policy, **SIZES)
    player.start(policy.params, task.seed, "play")
    return player


def play_one(values: argparse.Namespace) -> None:
    """Plays the episode that the command line asks for."""
    task, side = check_task(find_spec(values.env), values)
    player = make_player(values, task, side)
    out = values.out or Path(tempfile.mkdtemp(prefix="aes_hdc_play_"))
    with storage.named(out):
        out.mkdir(parents=True, exist_ok=True)
    name = f"{task.env_id}-level{task.level}-seed{task.seed}"
    terminal, label = Terminal(player, out / name), task.harness.label
    print(f"{task.env_id} level {task.level} seed {task.seed} harness {label}")
    try:
        (episode,) = play([task], terminal, frame_px=side)
    except (EOFError, KeyboardInterrupt):
        print("\nstopped before the end")
    else:
        write_episode(out, name, episode)
        turns = f"{len(episode.turns)} turn{'s' * (len(episode.turns) > 1)}"
        print(episode.turns[-1].feedback)
        print(f"reward {episode.reward:g}, {episode.label} after {turns}")
    terminal.end()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    with contextlib.suppress(AttributeError):  # A reply may be any bytes.
        sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        play_one(make_parser().parse_args(argv))
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
