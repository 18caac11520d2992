"""MiniGrid from above, in full: the picture, the same in words, and what happened."""

from typing import Any

import numpy as np
from minigrid.core.grid import Grid

from aes_hdc.envs.adapters.foreign import fit
from aes_hdc.envs.adapters.ladder import Env
from aes_hdc.envs.foreign import minigrid_plan as plan
from aes_hdc.envs.foreign.minigrid_plan import Cell, World, apart
from aes_hdc.episode import Event

GROUNDS = ("wall", "lava", "goal")  # Always grey, orange and green.
FACING = ("right", "down", "left", "up")
SEEN = 6  # things a caption names at most

Box = tuple[int, int, int, int]


def view(env: Env) -> Box:
    """Returns what is worth drawing: left, top, width and height in cells.

    That is the bounding box of the walls and doors, without its rim where the rim is
    all wall. Walls never move, so it stays the same through an episode.
    """
    raw: Any = env.unwrapped
    kinds = np.array(["" if t is None else t.type for t in raw.grid.grid])
    kinds = kinds.reshape(raw.grid.height, raw.grid.width)
    rows, columns = np.nonzero(np.isin(kinds, ("wall", "door")))
    top, left = int(rows.min()), int(columns.min())
    bottom, right = int(rows.max()) + 1, int(columns.max()) + 1
    inner = kinds[top:bottom, left:right].copy()
    inner[1:-1, 1:-1] = "wall"
    if (inner == "wall").all():
        return left + 1, top + 1, right - left - 2, bottom - top - 2
    return left, top, right - left, bottom - top


def scene(env: Env) -> str:
    """Returns the full state in words: columns and rows count from 1 in the picture."""
    left, top, width, height = view(env)
    world = plan.read(env.unwrapped)
    (x, y), heading = world.pose
    lines = []
    for row in range(height):
        cells = [_name(world, (left + column, top + row)) for column in range(width)]
        lines.append(" ".join(["row", str(row + 1), *cells]))
    lines += [f"agent {y - top + 1} {x - left + 1}", f"heading {FACING[heading]}"]
    if world.held:
        lines.append(f"hold {world.held.colour} {world.held.kind}")
    return "\n".join(lines)


def _name(world: World, cell: Cell) -> str:
    """What stands in a cell, in words; a door is shut unless they say otherwise."""
    thing = world.things.get(cell)
    if thing is None:
        return "floor"
    if thing.kind in GROUNDS:
        return thing.kind
    door = thing.door.replace("closed", "")
    return " ".join(word for word in (door, thing.colour, thing.kind) if word)


def caption(env: Env) -> str:
    """Returns where the agent and the nearest things are, and what lies ahead."""
    left, top, width, height = view(env)
    world = plan.read(env.unwrapped)
    (x, y), heading = world.pose
    words = [f"you at row {y - top + 1} column {x - left + 1} facing {FACING[heading]}"]
    if world.held:
        words.append(f"{world.held.colour} {world.held.kind} in hand")
    places = [
        (apart(cell, (x, y)), f"{_name(world, cell)} at row {row} column {column}")
        for cell, thing in world.things.items()
        if thing.kind not in ("wall", "lava") and cell != (x, y)
        for row, column in [(cell[1] - top + 1, cell[0] - left + 1)]
    ]
    words += [text for _, text in sorted(places)[:SEEN]]
    x, y = plan.front(world.pose)
    is_inside = left <= x < left + width and top <= y < top + height
    return ", ".join([*words, f"{_name(world, (x, y)) if is_inside else 'edge'} ahead"])


def frame(env: Env, side: int) -> np.ndarray:
    """Draws the view from above; what is held rides on the agent."""
    raw: Any = env.unwrapped
    left, top, width, height = view(env)
    cell = max(1, side // max(width, height))
    x, y = int(raw.agent_pos[0]) - left, int(raw.agent_pos[1]) - top
    image = np.zeros((height * cell, width * cell, 3), np.uint8)
    for row, column in np.ndindex(height, width):
        image[row * cell : (row + 1) * cell, column * cell : (column + 1) * cell] = (
            Grid.render_tile(
                raw.grid.get(left + column, top + row),
                agent_dir=int(raw.agent_dir) if (column, row) == (x, y) else None,
                tile_size=cell,
            )
        )
    if raw.carrying is not None and cell >= 4:
        half = cell // 2
        icon = Grid.render_tile(raw.carrying, tile_size=half)
        row, column = y * cell + (cell - half) // 2, x * cell + (cell - half) // 2
        image[row : row + half, column : column + half] = icon
    return fit(image, side)


def size(env: Env) -> int:
    """Returns the cells in view and the things that stand on them."""
    left, top, width, height = view(env)
    cells = [(x, y) for x, y in plan.read(env.unwrapped).things]
    inside = [
        x for x, y in cells if left <= x < left + width and top <= y < top + height
    ]
    return width * height + len(inside)


def repeats(env: Env) -> dict[str, int]:
    """Returns how many steps one reply may walk."""
    _, _, width, height = view(env)
    return {"forward": min(plan.MAX_REPEAT, max(2, width - 1, height - 1))}


def events(old: Env, new: Env, verb: str) -> list[Event]:
    """Returns what happened between two moments."""
    before, after = plan.read(old.unwrapped), plan.read(new.unwrapped)
    happened = []
    if walked := apart(before.pose[0], after.pose[0]):
        happened.append(Event("moved", "agent", walked))
    if before.pose[1] != after.pose[1]:
        happened.append(Event("turned", FACING[after.pose[1]]))
    if after.held and after.held != before.held:
        happened.append(Event("picked", after.held.kind))
    if before.held and before.held != after.held:
        happened.append(Event("dropped", before.held.kind))
    doors = [c for c, t in before.things.items() if t.door and after.things.get(c) != t]
    if doors:
        happened.append(Event("toggled", "door", len(doors)))
    if after.pose[0] in after.deadly:
        happened.append(Event("fell_in", "lava"))
    elif walked and any(apart(after.pose[0], c) == 1 for c in after.deadly):
        happened.append(Event("passed_by", "lava"))
    on = after.things.get(after.pose[0])
    if on and on.kind == "goal":
        happened.append(Event("arrived", "goal"))
    goal = next((c for c, t in after.things.items() if t.kind == "goal"), None)
    if goal and walked:
        gain = apart(before.pose[0], goal) - apart(after.pose[0], goal)
        if gain:
            kind = "came_closer" if gain > 0 else "went_away"
            happened.append(Event(kind, "goal", abs(gain)))
    return happened
