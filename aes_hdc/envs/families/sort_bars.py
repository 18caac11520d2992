"""Rows of bars to be put in order."""

from dataclasses import dataclass

import numpy as np

from aes_hdc.envs import draw
from aes_hdc.envs.actions import Action, Grammar, Int
from aes_hdc.envs.base import Cue, Level, Step, VisualEnv, register
from aes_hdc.envs.state import State
from aes_hdc.episode import Event

COLOURS = tuple(name for name in draw.PALETTE if name != "white")


@dataclass(slots=True)
class BarRow(State):
    """Bars from left to right.

    Attributes:
        bar: colour and height of each; heights differ, colours may not.
    """

    bar: tuple[tuple[str, int], ...]
    _last: int = 0  # Place of the last swap, 1-based; 0 at the start.


def _highest(bars: int) -> int:
    """The greatest height there may be: 6 for few bars, 16 pixels each at 96."""
    return max(6, 3 * bars // 2)


def _heights(row: BarRow) -> list[int]:
    """The heights from left to right."""
    return [height for _, height in row.bar]


def _inversions(heights: list[int]) -> int:
    """The number of pairs in the wrong order, which is the fewest swaps that sort."""
    return sum(a > b for i, a in enumerate(heights) for b in heights[i + 1 :])


def _in_place(heights: list[int]) -> int:
    """How many bars stand where they end."""
    return sum(a == b for a, b in zip(heights, sorted(heights), strict=True))


@register(
    "bar_sort_swaps",
    family="sort",
    turns="M",
    levels=(  # bars, fewest and most swaps needed, turns to spare
        Level((3, 2, 3, 1)),
        Level((4, 2, 3, 1)),
        Level((5, 3, 5, 2)),
        Level((6, 5, 8, 2)),
        Level((8, 8, 14, 3), 128),
        Level((10, 14, 22, 4), 160),
        Level((12, 20, 33, 4), 192),
    ),
    abilities=("size_comparison", "numeric_ordering", "resource_budgeting"),
    version=2,
)
class BarSortSwaps(VisualEnv[BarRow]):
    """Swap adjacent bars until heights ascend; few turns are to spare.

    A needless swap costs two turns, its own and that which takes it back, so the turns
    are the number of inversions and a few: with the usual slack chance would sort three
    bars.
    """

    def generate(
        self, rng: np.random.Generator, params: tuple[int, int, int, int]
    ) -> BarRow:
        bars, fewest, most, spare = params
        colours = [COLOURS[i % len(COLOURS)] for i in range(bars)]
        if bars <= len(COLOURS):
            colours = [COLOURS[i] for i in rng.permutation(len(COLOURS))[:bars]]
        while True:
            heights = (1 + rng.permutation(_highest(bars))[:bars]).tolist()
            needed = _inversions(heights)
            if fewest <= needed <= most:
                bar = tuple(zip(colours, heights, strict=True))
                return BarRow(bar, budget=needed + spare)

    def grammar(self, row: BarRow) -> Grammar:
        return {"swap": (Int(1, len(row.bar) - 1),)}

    def apply(self, row: BarRow, action: Action) -> Step:
        place = int(action[1])
        before = _heights(row)
        bars = list(row.bar)
        bars[place - 1], bars[place] = bars[place], bars[place - 1]
        row.bar = tuple(bars)
        after = _heights(row)
        gain = before[place - 1] - before[place]
        happened = [
            Event("swapped", "bar", abs(gain)),  # How much their heights differ.
            Event("improved" if gain > 0 else "worsened", "inversions", 1),
            Event("satisfied" if gain > 0 else "broke", "pair", 1),
        ]
        if settled := _in_place(after) - _in_place(before):
            kind = "in_order" if settled > 0 else "removed"
            happened.append(Event(kind, "bar", abs(settled)))
        if place == row._last:
            happened.append(Event("undone", "bar"))
        row._last = 0 if place == row._last else place
        if not _inversions(after):
            return Step.won("the bars are in order", happened)
        return Step(events=tuple(happened))

    def draw(self, row: BarRow, out: np.ndarray) -> None:
        size, bars = out.shape[0], len(row.bar)
        glyph = max(10, size // 28) if size >= draw.NUMBERS_PX else 0
        floor = size - round(1.6 * glyph)
        unit, column = floor / _highest(bars), size / bars
        draw.fill(out, "white")
        for place, (colour, height) in enumerate(row.bar):
            x, half = column * (place + 0.5), column * 0.375
            draw.rect(out, floor - height * unit, x - half, floor, x + half, colour)
            if glyph:
                draw.text(out, str(place + 1), x, (floor + size) / 2, glyph)

    def goal(self, row: BarRow) -> str:
        return "sort the bars from low to high"

    def rules(self, row: BarRow) -> str:
        return (
            "bars count from the left. a swap changes a bar with the next one. "
            "there is no time for needless swaps"
        )

    def caption(self, row: BarRow) -> str:
        heights = _heights(row)
        lowest, highest = heights.index(min(heights)), heights.index(max(heights))
        return (
            f"{len(heights)} bars, bar {lowest + 1} lowest, bar {highest + 1} highest"
        )

    def solve(self, row: BarRow) -> list[Action] | None:
        heights, plan = _heights(row), []
        place = 1
        while place < len(heights):
            if heights[place - 1] > heights[place]:
                heights[place - 1 : place + 1] = heights[place], heights[place - 1]
                plan.append(("swap", place))
                place = max(1, place - 1)
            else:
                place += 1
        return plan

    def size(self, row: BarRow) -> int:
        return len(row.bar)

    def cue(self, row: BarRow, plan: list[Action]) -> Cue:
        """Narrows the places; with two of them, tells which bar goes first instead."""
        narrowed = super().cue(row, plan)
        if narrowed.text:
            return narrowed
        first = min(row.bar, key=lambda bar: bar[1])[0]
        swaps = tuple(("swap", place) for place in range(1, len(row.bar)))
        return Cue(f"{first} goes first", swaps)
