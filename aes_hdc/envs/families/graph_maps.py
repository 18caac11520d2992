"""Maps of regions on a cell lattice, coloured so that neighbours differ."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from aes_hdc.envs import draw, state
from aes_hdc.envs.actions import Action, Choice, Grammar, Int, Rest
from aes_hdc.envs.base import Cue, Level, Step, VisualEnv, register
from aes_hdc.envs.state import State
from aes_hdc.episode import Event

COLOURS = ("red", "green", "blue", "yellow")
SIDES = ((-1, 0), (0, 1), (1, 0), (0, -1))
WHITE = "white"  # A region without a colour.

MOST_REPAINTED = 3  # Coloured regions that the oracle changes at most.

Near = list[set[int]]
Paint = tuple[str, ...]


@dataclass(slots=True)
class Map(State):
    """Regions and their colours.

    Attributes:
        cells: [n, n] int, the region of each cell, numbered in reading order.
        paint: the colour of each region, or white.
        colors: how many colours there are.
    """

    cells: Annotated[np.ndarray, state.grid(*"abcdefghijklmnopqrstuvwxyz")]
    paint: Paint
    colors: int


def _near(cells: np.ndarray) -> Near:
    """The regions that share a side with each region."""
    near: Near = [set() for _ in range(int(cells.max()) + 1)]
    for a, b in ((cells[1:], cells[:-1]), (cells[:, 1:], cells[:, :-1])):
        for one, two in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True):
            if one != two:
                near[one].add(two)
                near[two].add(one)
    return near


def _partition(rng: np.random.Generator, side: int, regions: int) -> np.ndarray:
    """Grows connected regions from random cells until they fill the board."""
    cells = np.full((side, side), -1)
    grown = [divmod(int(i), side) for i in rng.permutation(side * side)[:regions]]
    for region, cell in enumerate(grown):
        cells[cell] = region
    while len(grown) < side * side:
        row, column = grown[rng.integers(len(grown))]
        down, right = SIDES[rng.integers(len(SIDES))]
        r, c = row + down, column + right
        if 0 <= r < side and 0 <= c < side and cells[r, c] < 0:
            cells[r, c] = cells[row, column]
            grown.append((r, c))
    order = list(dict.fromkeys(cells.ravel().tolist()))
    return np.argsort(order)[cells]


def _completions(
    near: Near, paint: Paint, colours: Paint, limit: int
) -> Iterator[Paint]:
    """Yields up to `limit` proper colourings that keep the colours there are.

    Depth first, always at the white region with the fewest colours left.
    """
    best: tuple[int, int, list[str]] | None = None
    for region, own in enumerate(paint):
        taken = {paint[other] for other in near[region]}
        if own == WHITE:
            left = [hue for hue in colours if hue not in taken]
            if best is None or len(left) < best[0]:
                best = (len(left), region, left)
        elif own in taken:
            return
    if best is None:
        yield paint
        return
    for hue in best[2]:
        found = 0
        for full in _completions(near, _put(paint, best[1], hue), colours, limit):
            yield full
            found += 1
        limit -= found
        if limit <= 0:
            return


def _put(paint: Paint, region: int, hue: str) -> Paint:
    """The colours after one region got another."""
    return (*paint[:region], hue, *paint[region + 1 :])


def _repair(near: Near, paint: Paint, colours: Paint) -> Paint | None:
    """A proper colouring of all regions that keeps as many colours as possible.

    None where more than `MOST_REPAINTED` coloured regions would have to change.
    """
    for spare in range(MOST_REPAINTED + 1):
        if found := _repaint(near, paint, colours, spare):
            return found
    return None


def _repaint(near: Near, paint: Paint, colours: Paint, spare: int) -> Paint | None:
    """A proper colouring that changes at most `spare` coloured regions."""
    coloured = [region for region, hue in enumerate(paint) if hue != WHITE]
    clashing = [x for x in coloured if _clashes(near, paint, x)]
    if not clashing and (full := next(_completions(near, paint, colours, 1), None)):
        return full
    if not spare:
        return None
    if clashing:  # One of two alike neighbours has to change.
        first = clashing[0]
        rival = next(
            x for x in clashing if x in near[first] and paint[x] == paint[first]
        )
        coloured = [first, rival]
    for region in coloured:
        lighter = _put(paint, region, WHITE)
        if full := _repaint(near, lighter, colours, spare - 1):
            return full
    return None


def _changes(near: Near, paint: Paint, colours: Paint) -> int:
    """The fewest actions that complete the map; all regions where there is no plan."""
    target = _repair(near, paint, colours)
    if target is None:
        return len(paint)
    return sum(a != b for a, b in zip(paint, target, strict=True))


def _palette(map_: Map) -> Paint:
    """The colours of this map."""
    return COLOURS[: map_.colors]


def _clashes(near: Near, paint: Paint, region: int) -> int:
    """How many neighbours have the region's colour."""
    return sum(paint[other] == paint[region] for other in near[region])


def _judge(near: Near, paint: Paint, region: int) -> list[Event]:
    """What it means for its neighbours that a region has just been coloured."""
    around = [paint[other] for other in near[region] if paint[other] != WHITE]
    happened = [Event("placed", "color")]
    if clashes := _clashes(near, paint, region):
        return [*happened, Event("broke", "neighbor", clashes)]
    if around:
        happened.append(Event("satisfied", "neighbor", len(around)))
        happened.append(Event("excluded", "color", len(set(around))))
    return happened


@register(
    "map_coloring",
    family="graph",
    turns="B",
    levels=(  # cells a side, regions, colours, ways, fewest and most white, spare turns
        Level((3, 4, 3, 1, 1, 2, 2)),
        Level((3, 5, 3, 1, 1, 2, 2)),
        Level((4, 6, 3, 1, 3, 3, 2)),
        Level((6, 8, 3, 1, 4, 4, 3)),
        Level((6, 10, 4, 6, 5, 5, 3), 128),
        Level((8, 13, 4, 12, 7, 7, 4), 160),
        Level((8, 16, 4, 24, 9, 9, 5), 192),
    ),
    abilities=("region_topology", "constraint_propagation", "color_identification"),
    cluster="R27",
    version=2,
)
class MapColoring(VisualEnv[Map]):
    """Colour the white regions so that no two regions that share a side look alike.

    The colours given leave one way to fill the white regions, or a few. A clash is
    allowed and can be painted over, given colours too; few turns are to spare, so that
    guessing does not pay. In the single-turn form the answer lists the colours of the
    white regions in reading order of their first cells.
    """

    def generate(self, rng: np.random.Generator, params: tuple[int, ...]) -> Map:
        side, regions, colors, ways, fewest, most, spare = params
        colours = COLOURS[:colors]
        while True:
            cells = _partition(rng, side, regions)
            near = _near(cells)
            hues = tuple(colours[i] for i in rng.permutation(colors))
            full = next(_completions(near, (WHITE,) * regions, hues, 1), None)
            if full is None:
                continue
            wanted = int(rng.integers(fewest, most + 1))
            paint = _erase(near, full, colours, rng.permutation(regions), wanted, ways)
            if paint.count(WHITE) == wanted:
                return Map(cells, paint, colors, budget=wanted + spare)

    def grammar(self, map_: Map) -> Grammar:
        hue = Choice(*_palette(map_))
        if map_.one:
            return {"answer": (Rest(hue, 1, len(map_.paint)),)}
        side = len(map_.cells)
        return {"color": (Int(1, side, name="row"), Int(1, side, name="column"), hue)}

    def apply(self, map_: Map, action: Action) -> Step:
        if map_.one:
            return self._answer(map_, [str(hue) for hue in action[1:]])
        _, row, column, hue = action
        region = int(map_.cells[int(row) - 1, int(column) - 1])
        old = map_.paint[region]
        if old == hue:
            return Step.illegal(f"that region is {hue} already")
        near, colours = _near(map_.cells), _palette(map_)
        needed = _changes(near, map_.paint, colours)
        map_.paint = _put(map_.paint, region, str(hue))
        happened = _judge(near, map_.paint, region)
        if old != WHITE:
            happened.append(Event("removed", "color", 1))
        left = _changes(near, map_.paint, colours)
        if left != needed:
            kind = "improved" if left < needed else "worsened"
            happened.append(Event(kind, "regions", abs(left - needed)))
        if not left:
            return Step.won("the map is complete", happened)
        clashes = _clashes(near, map_.paint, region)
        return Step(
            feedback=f"{clashes} neighbor alike" if clashes else "ok",
            events=tuple(happened),
        )

    def _answer(self, map_: Map, hues: list[str]) -> Step:
        """Judges a list of colours for the white regions, each as if it was painted."""
        near, paint = _near(map_.cells), list(map_.paint)
        white = [region for region, hue in enumerate(paint) if hue == WHITE]
        happened: list[Event] = []
        for region, hue in zip(white, hues, strict=False):
            paint[region] = hue
            happened += _judge(near, tuple(paint), region)
        if len(hues) != len(white):
            error = len(hues) - len(white)
            return Step.lost("wrong", [*happened, Event("miscounted", "white", error)])
        if any(_clashes(near, tuple(paint), region) for region in white):
            return Step.lost("wrong", happened)
        return Step.won("the map is complete", happened)

    def draw(self, map_: Map, out: np.ndarray) -> None:
        draw.fill(out, "white")
        side = len(map_.cells)
        place = draw.board(out, side, side, numbers=True)
        colours = np.stack([draw.rgb(hue) for hue in map_.paint])[map_.cells]
        size, top, left = place.cell, place.top, place.left
        block = colours.repeat(size, axis=0).repeat(size, axis=1)
        out[top : top + side * size, left : left + side * size] = block
        half = max(1, min(2, size // 16))
        edged = np.pad(map_.cells, 1, constant_values=-1)
        for r, c in itertools.product(range(side + 1), range(side + 1)):
            y, x = top + r * size, left + c * size
            if c < side and edged[r, c + 1] != edged[r + 1, c + 1]:
                draw.rect(out, y - half, x - half, y + half, x + size + half, "black")
            if r < side and edged[r + 1, c] != edged[r + 1, c + 1]:
                draw.rect(out, y - half, x - half, y + size + half, x + half, "black")

    def goal(self, map_: Map) -> str:
        if map_.one:
            return "list colors for the white regions, no two neighbors alike"
        return "color the white regions, no two neighbors alike"

    def rules(self, map_: Map) -> str:
        neighbours = "neighbors share a side of a cell"
        if map_.one:
            return f"{neighbours}. white regions count in reading order"
        return f"{neighbours}. a cell colors its region. you may color again"

    def caption(self, map_: Map) -> str:
        parts = []
        for region, hue in enumerate(map_.paint):
            if hue == WHITE:
                row, column = _first(map_.cells, region)
                parts.append(f"row {row + 1} column {column + 1}")
        return f"white at {' and '.join(parts) or 'no cell'}"

    def solve(self, map_: Map) -> list[Action] | None:
        target = _repair(_near(map_.cells), map_.paint, _palette(map_))
        if target is None:
            return None
        pairs = enumerate(zip(map_.paint, target, strict=True))
        todo = [region for region, (old, new) in pairs if old != new]
        if map_.one:
            return [("answer", *(target[region] for region in todo))]
        plan: list[Action] = []
        for region in todo:
            row, column = _first(map_.cells, region)
            plan.append(("color", row + 1, column + 1, target[region]))
        return plan

    def size(self, map_: Map) -> int:
        return len(map_.paint)

    def cue(self, map_: Map, plan: list[Action]) -> Cue:
        """Names the row and one colour that is wrong there."""
        if map_.one:
            return super().cue(map_, plan)
        _, row, column, hue = plan[0]
        old = map_.paint[map_.cells[int(row) - 1, int(column) - 1]]
        at = _palette(map_).index(str(hue))
        wrong = _palette(map_)[at - 1] if old == WHITE else old
        options = tuple(
            ("color", row, column, x) for x in _palette(map_) if x not in (wrong, old)
        )
        return Cue(f"row {row}, not {wrong}", options)


def _erase(
    near: Near, full: Paint, colours: Paint, order: np.ndarray, wanted: int, ways: int
) -> Paint:
    """Whitens regions in order, up to `wanted`, while few completions remain."""
    paint = full
    for region in order.tolist():
        if paint.count(WHITE) < wanted:
            trial = _put(paint, region, WHITE)
            found = _completions(near, trial, colours, ways + 1)
            if len([*itertools.islice(found, ways + 1)]) <= ways:
                paint = trial
    return paint


def _first(cells: np.ndarray, region: int) -> tuple[int, int]:
    """The first cell of a region in reading order."""
    row, column = np.argwhere(cells == region)[0]
    return int(row), int(column)
