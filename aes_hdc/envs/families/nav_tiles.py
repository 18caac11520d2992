"""Walks over square tiles, some of them deadly, by map directions or with a heading."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from aes_hdc.envs import draw, state
from aes_hdc.envs.actions import Action, Choice, Grammar, Int
from aes_hdc.envs.base import Cue, Level, Step, VisualEnv, register
from aes_hdc.envs.draw import Layer, Tile
from aes_hdc.envs.state import State
from aes_hdc.episode import Event

Cell = tuple[int, int]

OFFSETS = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}
DIRECTIONS = tuple(OFFSETS)
FLOOR, DEADLY, GOAL = 0, 1, 2


def distances(tiles: np.ndarray, goal: Cell) -> np.ndarray:
    """Returns steps to the goal around deadly tiles, [rows, columns], -1 if cut off."""
    away = np.full(tiles.shape, -1)
    away[goal] = 0
    queue = deque([goal])
    while queue:
        here = queue.popleft()
        for heading in DIRECTIONS:
            cell = _ahead(here, heading)
            if _inside(tiles, cell) and tiles[cell] != DEADLY and away[cell] < 0:
                away[cell] = away[here] + 1
                queue.append(cell)
    return away


def _ahead(cell: Cell, heading: str, count: int = 1) -> Cell:
    """The cell that lies some steps away."""
    down, right = OFFSETS[heading]
    return cell[0] + down * count, cell[1] + right * count


def _inside(tiles: np.ndarray, cell: Cell) -> bool:
    """Whether the cell is on the board."""
    return 0 <= cell[0] < tiles.shape[0] and 0 <= cell[1] < tiles.shape[1]


def _goal_of(tiles: np.ndarray) -> Cell:
    """The one goal cell."""
    row, column = np.argwhere(tiles == GOAL)[0]
    return int(row), int(column)


def _place(cell: Cell) -> str:
    """A cell in words, 1-based."""
    return f"row {cell[0] + 1} column {cell[1] + 1}"


def _beside(tiles: np.ndarray, cell: Cell) -> list[str]:
    """Directions in which a deadly tile lies next to the cell."""
    beside = {heading: _ahead(cell, heading) for heading in DIRECTIONS}
    return [x for x, y in beside.items() if _inside(tiles, y) and tiles[y] == DEADLY]


def _route(tiles: np.ndarray, agent: Cell) -> list[Action] | None:
    """Fewest straight moves to the goal, breadth first over stopping cells."""
    before: dict[Cell, tuple[Cell, Action] | None] = {agent: None}
    queue = deque([agent])
    while queue:
        cell = queue.popleft()
        for heading in DIRECTIONS:
            for count in range(1, len(tiles)):
                end = _ahead(cell, heading, count)
                if not _inside(tiles, end) or tiles[end] == DEADLY:
                    break
                if end not in before:
                    before[end] = (cell, ("move", heading, count))
                    queue.append(end)
                if tiles[end] == GOAL:
                    return _unwind(before, end)
    return None


def _unwind(before: dict, node: object) -> list[Action]:
    """The actions that led to a node, first one first."""
    plan: list[Action] = []
    while before[node] is not None:
        node, action = before[node]
        plan.append(action)
    return plan[::-1]


def _advance(walker: "Lake | Crossing", heading: str, count: int) -> list[Cell]:
    """Moves the agent up to something deadly or the goal; returns the cells entered."""
    cells: list[Cell] = []
    while len(cells) < count and (not cells or walker.tiles[cells[-1]] == FLOOR):
        walker.agent = _ahead(walker.agent, heading)
        cells.append(walker.agent)
    return cells


def _walk(
    walker: "Lake | Crossing", heading: str, count: int, *, danger: str, prize: str
) -> Step:
    """Walks straight on and reports what happened on the way."""
    tiles, start = walker.tiles, walker.agent
    if not _inside(tiles, _ahead(start, heading, count)):
        return Step.illegal(f"the edge is less than {count} away")
    cells = _advance(walker, heading, count)
    happened = [Event("moved", "agent", len(cells))]
    if tiles[walker.agent] == DEADLY:
        happened.append(Event("fell_in", danger, len(cells)))
        return Step.lost(f"you went into {danger}", happened)
    away = distances(tiles, _goal_of(tiles))
    if gain := int(away[start] - away[walker.agent]):
        kind = "came_closer" if gain > 0 else "went_away"
        happened.append(Event(kind, prize, abs(gain)))
    if passed := sum(bool(_beside(tiles, cell)) for cell in cells):
        happened.append(Event("passed_by", danger, passed))
    if walker.agent in walker._visited:
        happened.append(Event("revisited", "cell"))
    walker._visited |= {walker.agent}
    if tiles[walker.agent] == GOAL:
        happened.append(Event("arrived", prize))
        return Step.won(f"you reached the {prize}", happened)
    return Step(events=tuple(happened))


@dataclass(slots=True)
class Lake(State):
    """An agent on ice: tiles, [n, n] int."""

    tiles: Annotated[np.ndarray, state.grid("ice", "hole", "gift")]
    agent: Annotated[Cell, state.cell()]
    _visited: frozenset[Cell] = frozenset()


_ICE, _DARK = Tile("cyan"), Tile("cyan", (Layer("disc", "black", 0.85),))
_GIFT = Tile("cyan", (Layer("square", "yellow", 0.85), Layer("cross", "orange", 0.7)))
_WALKER = Layer("disc", "red", 0.7)
_LAKE_TILES = (_ICE, _DARK, _GIFT)
_LAKE_SPRITES = (
    *_LAKE_TILES,
    *(Tile(tile.ground, (*tile.layers, _WALKER)) for tile in _LAKE_TILES),
)


@register(
    "frozen_lake",
    family="nav",
    turns="M",
    levels=(  # cells a side, holes, most moves needed
        Level((3, 3, 3)),
        Level((4, 5, 5)),
        Level((5, 8, 8)),
        Level((6, 12, 12)),
        Level((8, 22, 20), 128),
        Level((10, 36, 30), 160),
        Level((12, 52, 40), 192),
    ),
    abilities=("obstacle_avoidance", "shortest_path_planning", "grid_localization"),
    cluster="R2",
)
class FrozenLake(VisualEnv[Lake]):
    """Reach the gift by straight moves of any length; entering a hole ends the game."""

    def generate(self, rng: np.random.Generator, params: tuple[int, int, int]) -> Lake:
        side, holes, longest = params
        while True:
            order = rng.permutation(side * side)
            tiles = np.zeros((side, side), np.int64)
            tiles.flat[order[2 : holes + 2]] = DEADLY
            tiles.flat[order[0]] = GOAL
            agent = divmod(int(order[1]), side)
            away = distances(tiles, _goal_of(tiles))[agent]
            # Far enough that small boards are no single step, and always reachable.
            if away >= max(2, side - 1) and len(_route(tiles, agent) or ()) <= longest:
                return Lake(tiles, agent, frozenset([agent]))

    def grammar(self, lake: Lake) -> Grammar:
        return {"move": (Choice(*DIRECTIONS), Int(1, len(lake.tiles) - 1, default=1))}

    def apply(self, lake: Lake, action: Action) -> Step:
        _, heading, count = action
        return _walk(lake, heading, count, danger="hole", prize="gift")

    def draw(self, lake: Lake, out: np.ndarray) -> None:
        grid = lake.tiles.copy()
        grid[lake.agent] += 3
        draw.tiles(out, grid, _LAKE_SPRITES, numbers=True)

    def goal(self, lake: Lake) -> str:
        return "reach the gift"

    def rules(self, lake: Lake) -> str:
        return (
            "you are red, the gift is yellow. a move goes straight. "
            "entering a black hole ends the game"
        )

    def caption(self, lake: Lake) -> str:
        near = " and ".join(_beside(lake.tiles, lake.agent)) or "nowhere"
        gift = _place(_goal_of(lake.tiles))
        return f"you at {_place(lake.agent)}, gift at {gift}, hole next to you {near}"

    def solve(self, lake: Lake) -> list[Action] | None:
        return _route(lake.tiles, lake.agent)

    def size(self, lake: Lake) -> int:
        return lake.tiles.size

    def cue(self, lake: Lake, plan: list[Action]) -> Cue:
        """Names two directions, one of them the next move's; both stay on the board."""
        heading = str(plan[0][1])
        at = DIRECTIONS.index(heading)
        for turn in (2, 1, 3):
            other = ("move", DIRECTIONS[(at + turn) % 4], 1)
            if self.is_legal(lake, other):
                pair = sorted((heading, other[1]), key=DIRECTIONS.index)
                return Cue(f"{pair[0]} or {pair[1]}", (plan[0], other))
        return Cue()


@dataclass(slots=True)
class Crossing(State):
    """An agent with a heading among rivers of lava: tiles, [n, n] int."""

    tiles: Annotated[np.ndarray, state.grid("floor", "lava", "goal")]
    agent: Annotated[Cell, state.cell()]
    heading: Annotated[int, state.choice(*DIRECTIONS)]
    _visited: frozenset[Cell] = frozenset()


_GROUNDS = (Tile("white"), Tile("orange"), Tile("green"))
_CROSSING_SPRITES = (
    *_GROUNDS,
    *(
        Tile(tile.ground, (Layer("arrow", "blue", 0.8, 90.0 * heading),))
        for heading in range(4)
        for tile in _GROUNDS
    ),
)


@register(
    "lava_crossing",
    family="nav",
    turns="M",
    levels=(  # cells a side, rivers, most further gaps, most actions needed
        Level((3, 1, 1, 3)),
        Level((4, 1, 1, 5)),
        Level((5, 1, 0, 9)),
        Level((6, 2, 0, 12)),
        Level((8, 2, 0, 16), 128),
        Level((10, 3, 0, 20), 160),
        Level((12, 4, 0, 24), 192),
        Level((15, 5, 0, 30), 256),
    ),
    abilities=(
        "egocentric_transformation",
        "orientation_recognition",
        "obstacle_avoidance",
        "shortest_path_planning",
    ),
    cluster="R2",
)
class LavaCrossing(VisualEnv[Crossing]):
    """Walk and turn through the gaps of lava rivers; entering lava ends the game."""

    def generate(
        self, rng: np.random.Generator, params: tuple[int, int, int, int]
    ) -> Crossing:
        side, rivers, gaps, longest = params
        while True:
            tiles, agent = _rivers(rng, side, rivers, int(rng.integers(gaps + 1)))
            crossing = Crossing(tiles, agent, int(rng.integers(4)), frozenset([agent]))
            if len(self.solve(crossing) or ()) <= longest:
                return crossing

    def grammar(self, crossing: Crossing) -> Grammar:
        return {
            "forward": (Int(1, len(crossing.tiles) - 1, default=1),),
            "turn": (Choice("left", "right"),),
        }

    def apply(self, crossing: Crossing, action: Action) -> Step:
        verb, value = action
        if verb == "turn":
            return self._turn(crossing, value)
        heading = DIRECTIONS[crossing.heading]
        return _walk(crossing, heading, value, danger="lava", prize="goal")

    def _turn(self, crossing: Crossing, side: str) -> Step:
        """Turns on the spot; tells whether the cell ahead is now nearer to the goal."""
        before = _leads_on(crossing)
        crossing.heading = (crossing.heading + (1 if side == "right" else 3)) % 4
        happened = [Event("turned", side, 1)]
        if before != (after := _leads_on(crossing)):
            happened.append(Event("improved" if after else "worsened", "heading", 1))
        return Step(events=tuple(happened))

    def draw(self, crossing: Crossing, out: np.ndarray) -> None:
        grid = crossing.tiles.copy()
        grid[crossing.agent] += 3 + 3 * crossing.heading
        draw.tiles(out, grid, _CROSSING_SPRITES, numbers=True)

    def goal(self, crossing: Crossing) -> str:
        return "reach the goal"

    def rules(self, crossing: Crossing) -> str:
        return (
            "you are blue, the goal is green. forward goes where you point, "
            "turn changes that. entering orange lava ends the game"
        )

    def caption(self, crossing: Crossing) -> str:
        facing = DIRECTIONS[crossing.heading]
        ahead = _ahead(crossing.agent, facing)
        what = "edge"
        if _inside(crossing.tiles, ahead):
            what = ("floor", "lava", "goal")[crossing.tiles[ahead]]
        return (
            f"you at {_place(crossing.agent)} facing {facing}, "
            f"goal at {_place(_goal_of(crossing.tiles))}, {what} ahead"
        )

    def solve(self, crossing: Crossing) -> list[Action] | None:
        start = (crossing.agent, crossing.heading)
        before: dict = {start: None}
        queue = deque([start])
        while queue:
            node = cell, heading = queue.popleft()
            for following, action in _moves(crossing.tiles, cell, heading):
                if following not in before:
                    before[following] = (node, action)
                    queue.append(following)
                if crossing.tiles[following[0]] == GOAL:
                    return _unwind(before, following)
        return None

    def size(self, crossing: Crossing) -> int:
        return crossing.tiles.size


def _rivers(
    rng: np.random.Generator, side: int, count: int, gaps: int
) -> tuple[np.ndarray, Cell]:
    """A board with rivers along rows and columns, gaps between rooms, and a start."""
    lines = np.arange(1, side - 1, 2) + (rng.integers(2) if side % 2 == 0 else 0)
    lines = lines[lines < side - 1]
    across = int(rng.integers(max(0, count - len(lines)), min(count, len(lines)) + 1))
    rows = np.sort(rng.choice(lines, across, replace=False))
    columns = np.sort(rng.choice(lines, count - across, replace=False))
    tiles = np.zeros((side, side), np.int64)
    tiles[rows], tiles[:, columns] = DEADLY, DEADLY
    row_ends, column_ends = [-1, *rows, side], [-1, *columns, side]
    room = [0, 0]
    for axis in rng.permutation([0] * len(rows) + [1] * len(columns)):
        gap = [
            int(rng.integers(ends[at] + 1, ends[at + 1]))
            for ends, at in zip((row_ends, column_ends), room, strict=True)
        ]
        gap[axis] = (row_ends, column_ends)[axis][room[axis] + 1]
        tiles[tuple(gap)] = FLOOR
        room[axis] += 1
    lava = np.argwhere(tiles == DEADLY)
    for cell in lava[rng.permutation(len(lava))[:gaps]]:
        tiles[tuple(cell)] = FLOOR
    agent = [int(rng.integers(0, ends[1])) for ends in (row_ends, column_ends)]
    goal = [int(rng.integers(ends[-2] + 1, side)) for ends in (row_ends, column_ends)]
    tiles[tuple(goal)] = GOAL
    for axis in (0, 1):  # The start is not always in the first row and column.
        if rng.integers(2):
            tiles, agent[axis] = np.flip(tiles, axis), side - 1 - agent[axis]
    return np.ascontiguousarray(tiles), (agent[0], agent[1])


def _leads_on(crossing: Crossing) -> bool:
    """Whether the cell ahead is nearer to the goal."""
    ahead = _ahead(crossing.agent, DIRECTIONS[crossing.heading])
    away = distances(crossing.tiles, _goal_of(crossing.tiles))
    return _inside(crossing.tiles, ahead) and 0 <= away[ahead] < away[crossing.agent]


def _moves(
    tiles: np.ndarray, cell: Cell, heading: int
) -> Iterator[tuple[tuple[Cell, int], Action]]:
    """Safe actions from a cell and heading, and where they lead."""
    for count in range(1, len(tiles)):
        end = _ahead(cell, DIRECTIONS[heading], count)
        if not _inside(tiles, end) or tiles[end] == DEADLY:
            break
        yield (end, heading), ("forward", count)
        if tiles[end] == GOAL:
            break
    yield (cell, (heading + 3) % 4), ("turn", "left")
    yield (cell, (heading + 1) % 4), ("turn", "right")
