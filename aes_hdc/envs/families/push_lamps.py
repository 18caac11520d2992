"""Boards of lamps whose presses change a plus: on and off, or three colours."""

import functools
import itertools
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeVar

import numpy as np

from aes_hdc.envs import draw, state
from aes_hdc.envs.actions import Action, Grammar, Int
from aes_hdc.envs.base import Cue, Level, Step, VisualEnv, register
from aes_hdc.envs.draw import Layer, Tile
from aes_hdc.envs.state import State
from aes_hdc.episode import Event

Cell = tuple[int, int]

QUIET_LIMIT = 20_000  # press patterns without effect that the oracle may compare


@dataclass(slots=True)
class Board(State):
    """Lamps, [n, n] int, 0 for off; colors name the ground and then each lit value."""

    lamps: np.ndarray
    colors: tuple[str, ...]
    _trail: tuple[Cell, ...] = ()


B = TypeVar("B", bound=Board)


@functools.cache
def plus_matrix(side: int) -> np.ndarray:
    """Returns which lamps each press changes, [cells, cells] 0 or 1, symmetric."""
    places = np.indices((side, side)).reshape(2, -1).T
    return (abs(places[:, None] - places[None]).sum(-1) <= 1).astype(np.int64)


@functools.cache
def _reduced(side: int, modulus: int) -> tuple[np.ndarray, list[int], np.ndarray]:
    """Gauss-Jordan elimination of the plus matrix modulo a prime.

    Returns:
        The row transform, [cells, cells]; the pivot column of each leading row; all
        press patterns that change nothing, [patterns, cells], the empty one first.
    """
    cells = side * side
    rows = np.hstack([plus_matrix(side), np.eye(cells, dtype=np.int64)])
    pivots: list[int] = []
    for column in range(cells):
        at = len(pivots)
        found = np.flatnonzero(rows[at:, column])
        if not len(found):
            continue
        rows[[at, at + found[0]]] = rows[[at + found[0], at]]
        rows[at] = rows[at] * pow(int(rows[at, column]), -1, modulus) % modulus
        factors = rows[:, column].copy()
        factors[at] = 0
        rows = (rows - factors[:, None] * rows[at]) % modulus
        pivots.append(column)
    free = [column for column in range(cells) if column not in pivots]
    basis = np.zeros((len(free), cells), np.int64)
    for line, column in zip(basis, free, strict=True):
        line[column] = 1
        line[pivots] = -rows[: len(pivots), column] % modulus
    mixes = itertools.islice(
        itertools.product(range(modulus), repeat=len(free)), QUIET_LIMIT
    )
    quiet = np.array(list(mixes), np.int64) @ basis % modulus
    return rows[:, cells:], pivots, quiet


def fewest_presses(lamps: np.ndarray, modulus: int) -> np.ndarray | None:
    """Returns how often to press each cell to put all lamps off, or None.

    Args:
        lamps: [n, n] int in [0, modulus).
        modulus: number of values a lamp cycles through, a prime.

    Returns:
        [n, n] int in [0, modulus) with the smallest sum among up to `QUIET_LIMIT`
        solutions, all of them on the boards of the ladders.
    """
    transform, pivots, quiet = _reduced(len(lamps), modulus)
    wanted = transform @ -lamps.ravel() % modulus
    if wanted[len(pivots) :].any():
        return None
    presses = np.zeros(lamps.size, np.int64)
    presses[pivots] = wanted[: len(pivots)]
    choices = (presses + quiet) % modulus
    return choices[choices.sum(1).argmin()].reshape(lamps.shape)


class LampEnv(VisualEnv[B]):
    """Put all lamps off; presses commute, so the order of a plan is free."""

    modulus: ClassVar[int]
    palettes: ClassVar[tuple[tuple[str, ...], ...]]

    def generate(self, rng: np.random.Generator, params: tuple[int, int, int]) -> B:
        side, low, high = params
        while True:
            count = int(rng.integers(low, high + 1))
            spots = np.repeat(np.arange(side * side), self.modulus - 1)
            presses = np.bincount(rng.permutation(spots)[:count], minlength=side * side)
            lamps = (plus_matrix(side) @ -presses % self.modulus).reshape(side, side)
            needed = fewest_presses(lamps, self.modulus)
            # Patterns without effect can make a drawn plan longer than the shortest.
            if needed is not None and low <= needed.sum() <= high:
                colors = self.palettes[rng.integers(len(self.palettes))]
                return self.state_type(lamps, colors)

    def grammar(self, board: B) -> Grammar:
        side = len(board.lamps)
        return {"press": (Int(1, side, "row"), Int(1, side, "column"))}

    def apply(self, board: B, action: Action) -> Step:
        cell = (int(action[1]) - 1, int(action[2]) - 1)
        before, missing = board.lamps, self._missing(board)
        changed = plus_matrix(len(before))[cell[0] * len(before) + cell[1]]
        board.lamps = (before + changed.reshape(before.shape)) % self.modulus
        happened = [Event("toggled", "lamps", int(changed.sum()))]
        if gain := int((board.lamps == 0).sum() - (before == 0).sum()):
            kind = "satisfied" if gain > 0 else "broke"
            happened.append(Event(kind, "lamps off", abs(gain)))
        if gain := missing - self._missing(board):
            kind = "improved" if gain > 0 else "worsened"
            happened.append(Event(kind, "presses", abs(gain)))
        if not board.lamps.ravel()[changed > 0].any():
            happened.append(Event("matched", "plus", int(changed.sum())))
        round_trip = self.modulus - 1  # So many presses more take the first one back.
        if board._trail[-round_trip:] == (cell,) * round_trip:
            happened.append(Event("undone", "press"))
        elif cell in board._trail:
            happened.append(Event("revisited", "lamp"))
        board._trail = (*board._trail, cell)
        if not board.lamps.any():
            return Step.won("all lamps are off", happened)
        return Step(events=tuple(happened))

    def _missing(self, board: B) -> int:
        """How many presses the shortest solution takes."""
        presses = fewest_presses(board.lamps, self.modulus)
        return 0 if presses is None else int(presses.sum())

    def draw(self, board: B, out: np.ndarray) -> None:
        ground, *lit = board.colors
        # A lamp's dot is its next colour; an off one holds all, so any frame tells.
        scale = 0.35 if len(lit) > 1 else 0.2
        dots = [Layer("disc", color, scale / 2**i) for i, color in enumerate(lit)]
        sprites = [Tile(ground, tuple(dots))]
        for color, after in itertools.zip_longest(lit, lit[1:], fillvalue=ground):
            dot = (Layer("disc", after, scale),) if len(lit) > 1 else ()
            sprites.append(Tile(ground, (Layer("disc", color, 0.9), *dot)))
        draw.tiles(out, board.lamps, sprites, numbers=True)

    def goal(self, board: B) -> str:
        return "turn all lamps off"

    def solve(self, board: B) -> list[Action] | None:
        presses = fewest_presses(board.lamps, self.modulus)
        if presses is None:
            return None
        cells = [divmod(at, len(presses)) for at in range(presses.size)]
        return [
            ("press", row + 1, column + 1)
            for row, column in cells
            for _ in range(presses[row, column])
        ]

    def size(self, board: B) -> int:
        return board.lamps.size + self._missing(board)

    def cue(self, board: B, plan: list[Action]) -> Cue:
        """Names the row of the next press; the column stays open."""
        columns = range(1, len(board.lamps) + 1)
        row = plan[0][1]
        return Cue(f"row {row}", tuple(("press", row, column) for column in columns))


@dataclass(slots=True)
class Lamps(Board):
    """Lamps that are on or off: lamps, [n, n] int."""

    lamps: Annotated[np.ndarray, state.grid("off", "on")]


@register(
    "lights_out",
    family="push",
    turns="M",
    levels=(  # cells a side, fewest and most presses needed
        Level((3, 1, 1)),
        Level((3, 1, 2)),
        Level((3, 2, 4)),
        Level((4, 2, 4)),
        Level((5, 3, 6)),
        Level((6, 5, 9)),
        Level((7, 7, 12), 128),
    ),
    abilities=(
        "parity_modular_reasoning",
        "lookahead_search",
        "grid_localization",
        "constraint_propagation",
    ),
    cluster="R8",
)
class LightsOut(LampEnv[Lamps]):
    """A press switches a lamp and the lamps beside it; all must be off."""

    modulus = 2
    palettes = tuple(
        itertools.product(
            ("black", "blue", "purple", "brown", "green"),
            ("yellow", "orange", "cyan", "pink", "white"),
        )
    )

    def rules(self, board: Lamps) -> str:
        return (
            "a press switches that lamp and the lamps above, below, left and right of "
            "it. a big disc is on, a small dot is off"
        )

    def caption(self, board: Lamps) -> str:
        rows = []
        for row, lamps in enumerate(board.lamps, 1):
            columns = " ".join(str(c + 1) for c in np.flatnonzero(lamps))
            if columns:
                rows.append(f"row {row} at {columns}")
        return "on in " + (", ".join(rows) or "no row")


@dataclass(slots=True)
class Cycle(Board):
    """Lamps that are off or show one of two colours: lamps, [n, n] int."""

    lamps: Annotated[np.ndarray, state.grid("off", "first", "second")]


@register(
    "lights_cycle",
    family="push",
    turns="M",
    levels=(  # cells a side, fewest and most presses needed
        Level((3, 1, 1)),
        Level((3, 1, 2)),
        Level((3, 2, 4)),
        Level((4, 2, 5)),
        Level((4, 4, 7)),
        Level((5, 5, 10)),
        Level((6, 8, 14)),
    ),
    abilities=(
        "parity_modular_reasoning",
        "color_identification",
        "constraint_propagation",
    ),
    cluster="R8",
)
class LightsCycle(LampEnv[Cycle]):
    """A press moves a lamp and those beside it on: off, first colour, second, off."""

    modulus = 3
    palettes = tuple(
        ("black", *pair)
        for pair in itertools.permutations(
            ("red", "green", "blue", "yellow", "purple", "cyan"), 2
        )
    )

    def rules(self, board: Cycle) -> str:
        _, first, second = board.colors
        return (
            "a press moves that lamp and the lamps beside it on, from off to "
            f"{first} to {second} to off. the dot in a lamp is its next color"
        )

    def caption(self, board: Cycle) -> str:
        words = ("off", *board.colors[1:])
        return ", ".join(
            " ".join([f"row {row}", *(words[lamp] for lamp in lamps)])
            for row, lamps in enumerate(board.lamps.tolist(), 1)
        )
