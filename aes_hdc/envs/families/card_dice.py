"""Dice on a table, to be read and added up."""

from dataclasses import dataclass

import numpy as np

from aes_hdc.envs import draw
from aes_hdc.envs.actions import Action, Grammar, Int
from aes_hdc.envs.base import Level, Step, VisualEnv, register
from aes_hdc.envs.state import State
from aes_hdc.episode import Event

COLOURS = ("red", "blue", "green", "yellow")
PIPS = {"yellow": "black"}  # on all other colours they are white


@dataclass(slots=True)
class Dice(State):
    """Dice on a lattice; `die` holds (colour, pips, row, column) of each, 1-based."""

    add: str  # the colour asked for
    most: int  # largest answer allowed
    side: int  # cells a side
    die: tuple[tuple[str, int, int, int], ...]


def _faces(dice: Dice) -> tuple[list[int], list[int]]:
    """The pips of each die of the colour asked for, and of each other die."""
    wanted = [pips for colour, pips, *_ in dice.die if colour == dice.add]
    others = [pips for colour, pips, *_ in dice.die if colour != dice.add]
    return wanted, others


@register(
    "dice_sum",
    family="card",
    turns="S",
    # cells a side, fewest and most dice, fewest and most to add, highest face, colours
    levels=(
        Level((2, 2, 3, 1, 2, 3, 2)),
        Level((2, 3, 4, 1, 2, 6, 2)),
        Level((3, 5, 6, 2, 3, 6, 2)),
        Level((3, 7, 8, 3, 4, 6, 3)),
        Level((4, 9, 11, 4, 5, 6, 3)),
        Level((4, 12, 14, 5, 6, 6, 4), 128),
        Level((4, 15, 16, 6, 8, 6, 4), 128),
    ),
    abilities=(
        "object_counting",
        "arithmetic_computation",
        "attribute_filtering",
    ),
    version=2,
)
class DiceSum(VisualEnv[Dice]):
    """Add the pips of the dice of one colour; at least one die has another colour."""

    def generate(self, rng: np.random.Generator, params: tuple[int, ...]) -> Dice:
        side, fewest, most, least, greatest, high, colours = params
        hues = [COLOURS[i] for i in rng.permutation(len(COLOURS))[:colours]]
        # All sums are equally likely, so no fixed answer pays.
        right = int(rng.integers(least, greatest * high + 1))
        low = max(least, -(-right // high))
        count = int(rng.integers(low, min(greatest, right) + 1))
        faces = [1] * count
        for _ in range(right - count):
            room = [i for i, face in enumerate(faces) if face < high]
            faces[room[rng.integers(len(room))]] += 1
        total = int(rng.integers(max(fewest, count + 1), most + 1))
        dice = [(hues[0], face) for face in faces]
        for _ in range(total - count):
            hue = hues[rng.integers(1, colours)]
            dice.append((hue, int(rng.integers(1, high + 1))))
        cells = rng.permutation(side * side)[:total].tolist()
        placed = sorted(
            (cell // side + 1, cell % side + 1, *die)
            for cell, die in zip(cells, dice, strict=True)
        )
        records = tuple((hue, face, row, column) for row, column, hue, face in placed)
        return Dice(hues[0], greatest * high, side, records)

    def grammar(self, dice: Dice) -> Grammar:
        return {"answer": (Int(1, dice.most),)}

    def apply(self, dice: Dice, action: Action) -> Step:
        given, (wanted, others) = int(action[1]), _faces(dice)
        error = given - sum(wanted)
        if not error:
            if len(wanted) > 1:
                read = Event("added_up", "pips", len(wanted))
            else:
                read = Event("read_value", "pips", given)
            events = [
                read,
                Event("counted", "colour", len(wanted)),
                Event("excluded", "other colour", len(others)),
            ]
            return Step.won("right", events)
        kind = "missed_sum" if len(wanted) > 1 else "misread_value"
        events = [Event(kind, "pips", error)]
        if given == sum(others) or error == sum(others):
            events.append(Event("included_other", "other colour", len(others)))
        elif error in others:
            events.append(Event("included_other", "other colour", 1))
        if len(wanted) > 1 and -error in wanted:
            events.append(Event("miscounted", "colour", -1))
        if given == len(wanted):  # The dice were counted instead of their pips.
            events.append(Event("counted", "colour", len(wanted)))
        return Step.lost("wrong", events)

    def draw(self, dice: Dice, out: np.ndarray) -> None:
        draw.fill(out, "white")
        board = draw.board(out, dice.side, dice.side)
        for colour, face, row, column in dice.die:
            x, y = board.centre(row - 1, column - 1)
            pips = PIPS.get(colour, "white")
            draw.die(out, face, x, y, 0.9 * board.cell, body=colour, pips=pips)

    def goal(self, dice: Dice) -> str:
        return f"add the pips of the {dice.add} dice"

    def rules(self, dice: Dice) -> str:
        return "each die shows 1 to 6 pips. dice of other colours do not count"

    def caption(self, dice: Dice) -> str:
        rows = [
            [hue for hue, _, row, _ in dice.die if row == at + 1]
            for at in range(dice.side)
        ]
        return ", ".join(
            f"row {at + 1} {' '.join(hues) or 'none'}" for at, hues in enumerate(rows)
        )

    def solve(self, dice: Dice) -> list[Action] | None:
        return [("answer", sum(_faces(dice)[0]))]

    def size(self, dice: Dice) -> int:
        return len(dice.die)
