"""Bar charts: values are read off a scale of unit lines."""

from dataclasses import dataclass

import numpy as np

from aes_hdc.envs import draw
from aes_hdc.envs.actions import Action, Grammar, Int
from aes_hdc.envs.base import Level, Step, VisualEnv, register
from aes_hdc.envs.state import State
from aes_hdc.episode import Event

COLOURS = (
    "red", "green", "blue", "yellow", "orange",
    "purple", "pink", "brown", "cyan", "black",
)  # fmt: skip
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TALLEST = "tallest"
LEAST_UNITS = 6  # Units a frame holds at least: 16 pixels each on the smallest canvas.


@dataclass(slots=True)
class Chart(State):
    """Bars from left to right, their scale and the question.

    Attributes:
        bar: name and height of each; a name is a colour, or a letter printed below.
        top: highest value of the scale.
        ask: a bar's name, "tallest", or "rank K" with the tallest as rank 1.
    """

    bar: tuple[tuple[str, int], ...]
    top: int
    ask: str


def _ranks(chart: Chart) -> list[int]:
    """Indices of the bars, the tallest first; no two are equally high."""
    return sorted(range(len(chart.bar)), key=lambda i: -chart.bar[i][1])


def _rank(chart: Chart) -> int:
    """The rank the question names; 0 where it names a bar."""
    if chart.ask == TALLEST:
        return 1
    kind, _, number = chart.ask.partition(" ")
    return int(number) if kind == "rank" else 0


def _asked(chart: Chart) -> int:
    """The index of the bar in question."""
    if rank := _rank(chart):
        return _ranks(chart)[rank - 1]
    return [name for name, _ in chart.bar].index(chart.ask)


def _heights(rng: np.random.Generator, bars: int, top: int, rank: int) -> list[int]:
    """Draws distinct heights, the asked one first, so that it tells nothing by itself.

    The asked height is uniform over what its rank allows, or over all for rank 0.
    """
    if not rank:
        return (1 + rng.permutation(top)[:bars]).tolist()
    value = int(rng.integers(bars - rank + 1, top - rank + 2))
    below = 1 + rng.permutation(value - 1)[: bars - rank]
    above = value + 1 + rng.permutation(top - value)[: rank - 1]
    return [value, *rng.permutation(np.concatenate([below, above])).tolist()]


@register(
    "bar_chart_value",
    family="chart",
    turns="S",
    levels=(  # bars, highest value, lowest rank asked for
        Level((3, 5, 0)),
        Level((3, 6, 1)),
        Level((4, 8, 2)),
        Level((6, 10, 3), 128),
        Level((8, 15, 4), 160),
        Level((10, 20, 5), 224),
        Level((12, 30, 6), 288),
        Level((14, 40, 7), 352),
    ),
    abilities=("axis_scale_reading", "text_in_image_reading", "numeric_ordering"),
    cluster="R23",
    version=2,
)
class BarChartValue(VisualEnv[Chart]):
    """Read the value of a bar given by its name or by its rank among the heights.

    The state is the answer here: the bars and their heights are all that is drawn, and
    to read one height off them is the task, so a lossless text cannot leave it out.
    Bars go by colour up to eight of them, by letters from ten on.
    """

    def generate(self, rng: np.random.Generator, params: tuple[int, int, int]) -> Chart:
        bars, top, lowest = params
        rank = int(rng.integers(0, lowest + 1))
        heights = _heights(rng, bars, top, rank)
        names = list(LETTERS[:bars])
        if bars <= 8:
            names = [COLOURS[i] for i in rng.permutation(len(COLOURS))[:bars]]
        order = rng.permutation(bars)
        bar = tuple((names[place], heights[i]) for place, i in enumerate(order))
        ask = names[int(np.argmin(order))]
        if rank:
            ask = TALLEST if rank == 1 else f"rank {rank}"
        return Chart(bar, top, ask)

    def grammar(self, chart: Chart) -> Grammar:
        return {"answer": (Int(1, chart.top),)}

    def apply(self, chart: Chart, action: Action) -> Step:
        said, asked = int(action[1]), _asked(chart)
        value, others = chart.bar[asked][1], len(chart.bar) - 1
        if said == value:
            happened = [
                Event("located", "bar", len(chart.bar)),
                Event("read_value", "bar", value),
                Event("excluded", "bar", others),
            ]
            if rank := _rank(chart):
                happened.append(Event("in_order", "bar", rank))
            return Step.won("right", happened)
        happened = [Event("misread_value", "bar", said - value)]
        for place, (_, height) in enumerate(chart.bar):
            if height == said:
                apart = abs(place - asked)
                kind = "chose_neighbour" if apart == 1 else "chose_other"
                happened += [Event(kind, "bar", apart), Event("included_other", "bar")]
        return Step.lost("wrong", happened)

    def draw(self, chart: Chart, out: np.ndarray) -> None:
        size, numbered = out.shape[0], out.shape[0] >= draw.NUMBERS_PX
        lettered = len(chart.bar[0][0]) == 1
        glyph = max(10, size // 28)
        left = 2 * glyph if numbered else 0
        floor = size - (round(1.6 * glyph) if lettered else 0)
        unit = (floor - (glyph if numbered else 0)) / max(LEAST_UNITS, chart.top)
        draw.fill(out, "white")
        _scale(out, chart.top, unit, floor, left, glyph)
        column = (size - left) / len(chart.bar)
        for place, (name, height) in enumerate(chart.bar):
            x, half = left + column * (place + 0.5), column * 0.375
            colour = "blue" if lettered else name
            draw.rect(out, floor - height * unit, x - half, floor, x + half, colour)
            if lettered:
                draw.text(out, name.upper(), x, (floor + size) / 2, glyph)

    def goal(self, chart: Chart) -> str:
        return f"read the value of the {chart.ask} bar"

    def rules(self, chart: Chart) -> str:
        return "each line is 1 more, from 0 at the bottom. rank 1 is the tallest bar"

    def caption(self, chart: Chart) -> str:
        names = ", ".join(chart.bar[i][0] for i in reversed(_ranks(chart)))
        return f"bars from low to high: {names}"

    def solve(self, chart: Chart) -> list[Action] | None:
        return [("answer", chart.bar[_asked(chart)][1])]

    def size(self, chart: Chart) -> int:
        return len(chart.bar) * chart.top


def _scale(
    out: np.ndarray, top: int, unit: float, floor: int, left: int, glyph: int
) -> None:
    """Draws a line a unit, every fifth dark, and on large frames the numbers."""
    size, width = out.shape[0], max(1, out.shape[0] // 192)
    for value in range(1, top + 1):
        y = round(floor - value * unit)
        colour = "black" if value % 5 == 0 else "gray"
        draw.rect(out, y, left, y + width, size, colour)
        if left and (unit >= 1.3 * glyph or value % 5 == 0):
            draw.text(out, str(value), left / 2, y, glyph)
    if left:
        draw.rect(out, 0, left - width, floor, left, "black")
