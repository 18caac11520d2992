"""Grids of items in which one differs from all others."""

from dataclasses import dataclass
from itertools import product
from typing import Annotated

import numpy as np

from aes_hdc.envs import draw
from aes_hdc.envs.actions import Action, Grammar, Int
from aes_hdc.envs.base import Level, Step, VisualEnv, register
from aes_hdc.envs.draw import Layer, Tile
from aes_hdc.envs.state import Codec, State, Words
from aes_hdc.episode import Event

Cell = tuple[int, int]
Look = tuple[str, str, str, str]

# What an item looks like, in the order from a glaring to a fine difference.
ASPECTS: dict[str, tuple[str, ...]] = {
    "colour": ("red", "blue", "green", "yellow"),
    "shape": ("disc", "square", "triangle", "cross", "heart", "arrow"),
    "size": ("big", "small"),
    "turn": ("up", "right", "down", "left"),
}
PLAIN = 4  # the first shapes; the rest are drawn where turns matter
POINTED = ("triangle", "heart", "arrow")  # shapes that show how they are turned
LOOKS: tuple[Look, ...] = tuple(
    product(ASPECTS["colour"], ASPECTS["shape"], ASPECTS["size"], ASPECTS["turn"])
)
INDEX: dict[tuple[str, ...], int] = {look: value for value, look in enumerate(LOOKS)}
SCALES = {"big": 0.8, "small": 0.5}


def _name(look: Look) -> str:
    """A look in words; big and upright go without saying."""
    return " ".join(word for word in look if word not in ("big", "up"))


NAMES = tuple(map(_name, LOOKS))
TILES = tuple(
    Tile(
        "white", (Layer(shape, colour, SCALES[size], 90 * ASPECTS["turn"].index(turn)),)
    )
    for colour, shape, size, turn in LOOKS
)


def phrases(*names: str, label: str = "row") -> Codec:
    """Annotates an int array, [rows, columns], whose values are one or more words.

    Args:
        *names: the words of each value; the first one is never a later word of another.
        label: first word of the lines.
    """
    index = {name: value for value, name in enumerate(names)}
    starts = {name.split()[0] for name in names}

    def write(value: np.ndarray) -> list[Words]:
        return [
            [str(r + 1), *(word for v in row for word in names[v].split())]
            for r, row in enumerate(value.tolist())
        ]

    def read(lines: list[Words]) -> np.ndarray:
        rows: list[list[int]] = []
        for line in lines:
            found: list[str] = []
            for word in line[1:]:
                if word in starts:
                    found.append(word)
                else:
                    found[-1] += f" {word}"
            rows.append([index[name] for name in found])
        return np.array(rows, dtype=np.int64)

    return Codec(write, read, key=label)


@dataclass(slots=True)
class Items(State):
    """A grid of items: cells, [n, n] int into `LOOKS`, one of which occurs once."""

    cells: Annotated[np.ndarray, phrases(*NAMES)]


def _odd_cell(items: Items) -> Cell:
    """The cell of the one item without an equal."""
    values, counts = np.unique(items.cells, return_counts=True)
    row, column = np.argwhere(items.cells == values[counts == 1][0])[0]
    return int(row), int(column)


def _usual(items: Items) -> list[Look]:
    """The looks that occur more than once."""
    values, counts = np.unique(items.cells, return_counts=True)
    return [LOOKS[value] for value in values[counts > 1].tolist()]


def _difference(items: Items) -> str:
    """The aspect in which the odd item differs from the one most like it."""
    odd = LOOKS[items.cells[_odd_cell(items)]]
    apart = [
        [name for name, a, b in zip(ASPECTS, odd, look, strict=True) if a != b]
        for look in _usual(items)
    ]
    return min(apart, key=len)[-1]


@register(
    "odd_one_out",
    family="count",
    turns="S",
    levels=(  # cells a side, looks that are repeated, aspects that may differ
        Level((3, 1, ("colour",))),
        Level((3, 1, ("shape",))),
        Level((4, 1, ("colour", "shape"))),
        Level((5, 1, ("shape", "size"))),
        Level((6, 1, ("size", "turn")), 128),
        Level((8, 2, ("shape", "size", "turn")), 192),
        Level((10, 3, ("size", "turn")), 224),
    ),
    abilities=("fine_detail_discrimination", "visual_search", "grid_localization"),
    version=2,
)
class OddOneOut(VisualEnv[Items]):
    """Name the cell of the only item without an equal; all others occur repeatedly."""

    def generate(
        self, rng: np.random.Generator, params: tuple[int, int, tuple[str, ...]]
    ) -> Items:
        side, repeated, aspects = params
        aspect = aspects[rng.integers(len(aspects))]
        hues = rng.permutation(ASPECTS["colour"]).tolist()
        forms = POINTED if aspect == "turn" else ASPECTS["shape"][:PLAIN]
        form = str(rng.choice(forms))
        size, turn = "big", "up"
        if aspect in ("size", "turn"):
            size = str(rng.choice(ASPECTS["size"]))
        if aspect == "turn":
            turn = str(rng.choice(ASPECTS["turn"]))
        usual: list[Look] = [(hue, form, size, turn) for hue in hues[:repeated]]
        at = list(ASPECTS).index(aspect)
        words = forms if aspect == "shape" else ASPECTS[aspect]
        other = str(rng.choice([word for word in words if word != usual[0][at]]))
        odd = (*usual[0][:at], other, *usual[0][at + 1 :])
        values = [INDEX[usual[i % repeated]] for i in range(side * side - 1)]
        cells = rng.permutation([*values, INDEX[odd]])
        return Items(cells.astype(np.int64).reshape(side, side))

    def grammar(self, items: Items) -> Grammar:
        side = len(items.cells)
        return {"answer": (Int(1, side, name="row"), Int(1, side, name="column"))}

    def apply(self, items: Items, action: Action) -> Step:
        side, odd = len(items.cells), _odd_cell(items)
        cell = (int(action[1]) - 1, int(action[2]) - 1)
        if cell == odd:
            events = [
                Event("located", "cell", side * side),
                Event("excluded", _difference(items), side * side - 1),
            ]
            return Step.won("right", events)
        distance = max(abs(a - b) for a, b in zip(cell, odd, strict=True))
        kind = "chose_neighbour" if distance == 1 else "chose_other"
        equals = int((items.cells == items.cells[cell]).sum()) - 1
        events = [Event(kind, "cell", distance), Event("matched", "item", equals)]
        for name, a, b in zip(("row", "column"), cell, odd, strict=True):
            if a == b:
                events.append(Event("located", name, side))
        reflections = {
            "top": (side - 1 - cell[0], cell[1]),
            "side": (cell[0], side - 1 - cell[1]),
            "diagonal": (cell[1], cell[0]),
        }
        events += [
            Event("mirrored", axis) for axis, at in reflections.items() if at == odd
        ]
        return Step.lost("wrong", events)

    def draw(self, items: Items, out: np.ndarray) -> None:
        values, grid = np.unique(items.cells, return_inverse=True)
        sprites = [TILES[value] for value in values.tolist()]
        draw.tiles(out, grid.reshape(items.cells.shape), sprites, numbers=True)

    def goal(self, items: Items) -> str:
        return "find the odd item"

    def rules(self, items: Items) -> str:
        return (
            "one item has no equal. it differs in colour, shape, size or turn. "
            "rows count from the top, columns from the left"
        )

    def caption(self, items: Items) -> str:
        looks = ", ".join(map(_name, _usual(items)))
        return f"all items but one are {looks}"

    def solve(self, items: Items) -> list[Action] | None:
        row, column = _odd_cell(items)
        return [("answer", row + 1, column + 1)]

    def size(self, items: Items) -> int:
        # A finer difference weighs as much as one more item.
        return items.cells.size + list(ASPECTS).index(_difference(items))
