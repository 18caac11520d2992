"""Scenes to count: scattered objects of several kinds, and outlines that overlap."""

from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations
from typing import Annotated

import numpy as np

from aes_hdc.envs import draw
from aes_hdc.envs.actions import Action, Grammar, Int
from aes_hdc.envs.base import Level, Step, VisualEnv, register
from aes_hdc.envs.families.count_grids import phrases
from aes_hdc.envs.state import State
from aes_hdc.episode import Event

COLOURS = ("red", "blue", "green", "yellow")
SHAPES = ("disc", "square", "triangle", "cross")
# Values of a cell: empty, then every colour with every shape.
KINDS = ("none", *(f"{colour} {shape}" for colour in COLOURS for shape in SHAPES))
JITTER = 0.1  # largest shift of an object from the middle of its cell, in cells


@dataclass(slots=True)
class Scene(State):
    """Objects on a lattice: cells, [n, n] int into `KINDS`, 0 where empty."""

    count: str  # what is asked for: a colour, a shape, or both
    most: int  # largest answer allowed
    cells: Annotated[np.ndarray, phrases(*KINDS)]


def _tally(scene: Scene) -> dict[str, int]:
    """Objects by each word asked for; "match" has all of them, "any" is everything."""
    asked = scene.count.split()
    things = [KINDS[v].split() for v in scene.cells.ravel().tolist() if v]
    found = {word: sum(word in thing for thing in things) for word in asked}
    found["match"] = sum(all(word in thing for word in asked) for thing in things)
    found["any"] = len(things)
    return found


def _aspects(asked: str) -> list[str]:
    """Which attributes the words name: "colour", "shape" or both."""
    return ["colour" if word in COLOURS else "shape" for word in asked.split()]


@register(
    "count_objects",
    family="count",
    turns="S",
    levels=(  # cells a side, fewest and most objects, colours, shapes, largest answer
        Level((3, 3, 6, 2, 1, 6)),
        Level((3, 5, 8, 2, 2, 7)),
        Level((4, 8, 14, 3, 2, 9)),
        Level((5, 14, 22, 3, 3, 12)),
        Level((6, 22, 32, 4, 3, 15)),
        Level((7, 32, 45, 4, 4, 20), 128),
        Level((8, 45, 60, 4, 4, 24), 160),
    ),
    abilities=("object_counting", "attribute_filtering", "shape_identification"),
    cluster="R29",
    version=2,
)
class CountObjects(VisualEnv[Scene]):
    """Count the objects of a colour, a shape or both; with one shape, of a colour."""

    def generate(self, rng: np.random.Generator, params: tuple[int, ...]) -> Scene:
        side, fewest, most, colours, shapes, top = params
        hues = [COLOURS[i] for i in rng.permutation(len(COLOURS))[:colours]]
        forms = [SHAPES[i] for i in rng.permutation(len(SHAPES))[:shapes]]
        options = [hues[0], forms[0], f"{hues[0]} {forms[0]}"]
        asked = options[rng.integers(3)] if shapes > 1 else hues[0]
        # All answers are equally likely, so no fixed one pays.
        right = int(rng.integers(top + 1))
        # One object at least is to be left out, where there is room.
        low = max(fewest, min(right + 1, most))
        total = int(rng.integers(low, most + 1))
        kinds = [f"{hue} {form}" for hue in hues for form in forms]
        wanted = [k for k in kinds if set(asked.split()) <= set(k.split())]
        others = [k for k in kinds if k not in wanted]
        picks = [wanted[i] for i in rng.integers(len(wanted), size=right)]
        picks += [others[i] for i in rng.integers(len(others), size=total - right)]
        cells = np.zeros(side * side, np.int64)
        cells[rng.permutation(side * side)[:total]] = [KINDS.index(k) for k in picks]
        return Scene(asked, top, cells.reshape(side, side))

    def grammar(self, scene: Scene) -> Grammar:
        return {"answer": (Int(0, scene.most),)}

    def apply(self, scene: Scene, action: Action) -> Step:
        given, tally = int(action[1]), _tally(scene)
        right, aspects = tally["match"], _aspects(scene.count)
        subject = " ".join(aspects)
        # Objects that agree in one attribute of two are the easiest to mistake.
        near = {
            f"same {aspect}": tally[word] - right
            for word, aspect in zip(scene.count.split(), aspects, strict=True)
            if len(aspects) > 1
        }
        near["other"] = tally["any"] - right
        if given == right:
            left = [Event("excluded", name, n) for name, n in near.items() if n]
            return Step.won("right", [Event("counted", subject, right), *left])
        events = [Event("miscounted", subject, given - right)]
        events += [
            Event("included_other", name, n)
            for name, n in near.items()
            if given == right + n
        ]
        return Step.lost("wrong", events)

    def draw(self, scene: Scene, out: np.ndarray) -> None:
        draw.fill(out, "white")
        side = len(scene.cells)
        board = draw.board(out, side, side)
        # The shifts follow from the cells, so that the state's text is all there is.
        digest = blake2b(
            scene.cells.astype(np.int64).tobytes(), digest_size=16
        ).digest()
        rng = np.random.Generator(
            np.random.Philox(key=int.from_bytes(digest, "little"))
        )
        shifts = rng.uniform(-JITTER, JITTER, (side, side, 2))
        for row, column in np.argwhere(scene.cells).tolist():
            colour, form = KINDS[scene.cells[row, column]].split()
            down, right = shifts[row, column].tolist()
            x, y = board.centre(row + down, column + right)
            draw.shape(out, form, x, y, 0.72 * board.cell, colour)

    def goal(self, scene: Scene) -> str:
        return f"count the {scene.count} objects"

    def rules(self, scene: Scene) -> str:
        return "an object counts if its colour and shape are as the goal names them"

    def caption(self, scene: Scene) -> str:
        found = {word for v in scene.cells.ravel() if v for word in KINDS[v].split()}
        hues = " and ".join(word for word in COLOURS if word in found)
        forms = " and ".join(word for word in SHAPES if word in found)
        return f"you see {hues} objects, shapes {forms}"

    def solve(self, scene: Scene) -> list[Action] | None:
        return [("answer", _tally(scene)["match"])]

    def size(self, scene: Scene) -> int:
        return int((scene.cells > 0).sum())


UNITS = 16  # steps of an outline's position across the frame
LINE = 0.13  # thickness of a line, as a share of the outline's width
FREE = 0.55  # share of each line that no other line may cover
INKS = (
    "red",
    "blue",
    "green",
    "orange",
    "purple",
    "black",
)  # legible as lines on white
FORMS = ("disc", "square", "hexagon", "triangle")


@dataclass(slots=True)
class Outlines(State):
    """Overlapping outlines of one width, lowest first.

    `outline` holds (colour, shape, row, column) of each, the centre in `UNITS`.
    """

    most: int  # largest answer allowed
    width: int  # in `UNITS`
    outline: tuple[tuple[str, str, int, int], ...]


def _lines(shape: str, row: int, column: int, width: int) -> np.ndarray:
    """The pixels of an outline at six pixels a unit, [96, 96] bool."""
    side = 6 * width
    picture = np.zeros((6 * UNITS, 6 * UNITS), bool)
    top, left = 6 * row - side // 2, 6 * column - side // 2
    ring = draw.mask(shape, side, hollow=1 - 2 * LINE) > 127
    picture[top : top + side, left : left + side] = ring
    return picture


def _overlaps(outlines: Outlines) -> int:
    """How many pairs of outlines lie closer than their width."""
    return sum(
        max(abs(a[2] - b[2]), abs(a[3] - b[3])) < outlines.width
        for a, b in combinations(outlines.outline, 2)
    )


@register(
    "count_overlapping",
    family="count",
    turns="S",
    levels=(  # fewest and most outlines, width, colours (6: all distinct), shapes
        Level((1, 5, 7, 6, 2)),
        Level((2, 6, 7, 4, 2)),
        Level((4, 9, 6, 3, 3)),
        Level((6, 11, 5, 3, 3)),
        Level((8, 13, 5, 2, 4), 128),
        Level((10, 16, 4, 2, 4), 160),
        Level((12, 20, 4, 1, 4), 192),
    ),
    abilities=("figure_ground_segmentation", "object_counting", "occlusion_reasoning"),
    cluster="R29",
    version=2,
)
class CountOverlapping(VisualEnv[Outlines]):
    """Count outlines that cross; each keeps more than half of its line uncovered."""

    def generate(self, rng: np.random.Generator, params: tuple[int, ...]) -> Outlines:
        fewest, most, width, colours, shapes = params
        total = int(rng.integers(fewest, most + 1))
        inks = [INKS[i] for i in rng.permutation(len(INKS))[:colours]]
        while True:
            spots = _spread(rng, total, width, FORMS[:shapes])
            if spots:
                break
        hues = (
            inks if colours == len(INKS) else [inks[i % colours] for i in range(total)]
        )
        hues = [hues[i] for i in rng.permutation(total)]
        outline = tuple((h, *spot) for h, spot in zip(hues, spots, strict=True))
        return Outlines(most, width, outline)

    def grammar(self, outlines: Outlines) -> Grammar:
        return {"answer": (Int(1, outlines.most),)}

    def apply(self, outlines: Outlines, action: Action) -> Step:
        given, right = int(action[1]), len(outlines.outline)
        pairs = _overlaps(outlines)
        if given == right:
            events = [Event("counted", "outline", right)]
            if pairs:
                events.append(Event("separated", "outline", pairs))
            return Step.won("right", events)
        events = [Event("miscounted", "outline", given - right)]
        if given < right and pairs:
            events.append(Event("merged", "outline", right - given))
            for at, name in enumerate(("colour", "shape")):
                if given == len({one[at] for one in outlines.outline}):
                    events.append(Event("merged", name, right - given))
        return Step.lost("wrong", events)

    def draw(self, outlines: Outlines, out: np.ndarray) -> None:
        draw.fill(out, "white")
        unit = out.shape[0] / UNITS
        size = outlines.width * unit
        halo = max(1.0, size * 0.03)  # A gap in what lies below shows which is on top.
        inner = size * (1 - 2 * LINE)
        for colour, form, row, column in outlines.outline:
            x, y = column * unit, row * unit
            wide = size + 2 * halo
            gap = (inner - 2 * halo) / wide
            draw.shape(out, form, x, y, wide, "white", hollow=gap)
            draw.shape(out, form, x, y, size, colour, hollow=inner / size)

    def goal(self, outlines: Outlines) -> str:
        return "count the outlines"

    def rules(self, outlines: Outlines) -> str:
        return "each closed line counts once, also where another line crosses it"

    def caption(self, outlines: Outlines) -> str:
        colour, form, *_ = outlines.outline[-1]
        return f"lines on white, the top one is a {colour} {form}"

    def solve(self, outlines: Outlines) -> list[Action] | None:
        return [("answer", len(outlines.outline))]

    def size(self, outlines: Outlines) -> int:
        return len(outlines.outline)


def _spread(
    rng: np.random.Generator, total: int, width: int, forms: tuple[str, ...]
) -> list[tuple[str, int, int]]:
    """Shapes and centres, each overlapping an earlier one; empty without room."""
    edge = (width + 1) // 2
    spots: list[tuple[str, int, int]] = []
    lines = np.zeros((total, 6 * UNITS, 6 * UNITS), bool)
    for _ in range(40 * total):
        form = forms[rng.integers(len(forms))]
        row, column = map(int, rng.integers(edge, UNITS - edge + 1, size=2))
        near = [max(abs(row - r), abs(column - c)) < width for _, r, c in spots]
        if spots and not any(near):
            continue
        count = len(spots) + 1
        lines[count - 1] = _lines(form, row, column, width)
        alone = lines[:count].sum(axis=0) == 1
        free = (lines[:count] & alone).sum(axis=(1, 2))
        if (free >= FREE * lines[:count].sum(axis=(1, 2))).all():
            spots.append((form, row, column))
            if count == total:
                return spots
    return []
