"""MiniGrid from above, in full: the picture, the same in words, and what happened."""

from typing import Any

import numpy as np
from minigrid.core.grid import Grid

from aes_hdc.envs.adapters.foreign import fit
from aes_hdc.envs.adapters.ladder import Env
from aes_hdc.envs.foreign import minigrid_plan as plan
from aes_hdc.envs.foreign.minigrid_plan import Thing, apart
from aes_hdc.episode import Event

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
    held = world.held
    lines = [
        f"agent {y - top + 1} {x - left + 1} {FACING[heading]}",
        f"hold {held.colour} {held.kind}" if held else "hold nothing",
    ]
    rim = {(x, y) for x in (left, left + width - 1) for y in range(top, top + height)}
    rim |= {(x, y) for y in (top, top + height - 1) for x in range(left, left + width)}
    # A closed rim goes without saying, as where it is cut off the picture.
    if any(world.kind(cell) not in ("wall", "door") for cell in rim):
        rim = set()
    runs: dict[tuple[str, int], list[int]] = {}
    for cell, thing in sorted(world.things.items(), key=lambda item: item[0][::-1]):
        row, column = cell[1] - top + 1, cell[0] - left + 1
        if not (0 < row <= height and 0 < column <= width):
            continue
        if thing.kind == "wall" and cell in rim:
            continue
        if thing.kind in ("wall", "lava"):
            runs.setdefault((thing.kind, row), []).append(column)
        else:
            lines.append(" ".join([*_name(thing), str(row), str(column)]))
    for (kind, row), columns in sorted(runs.items()):
        lines.append(" ".join([kind, str(row), *map(str, columns)]))
    return "\n".join(lines)


def _name(thing: Thing) -> list[str]:
    """A thing in words; the goal is always green."""
    if thing.kind == "goal":
        return ["goal"]
    return [w for w in (thing.door, thing.colour, thing.kind) if w]


def caption(env: Env) -> str:
    """Returns what lies ahead, and where the things are as seen from the agent."""
    world = plan.read(env.unwrapped)
    (x, y), heading = world.pose
    ahead = world.things.get(plan.front(world.pose))
    words = [
        f"facing {FACING[heading]}, {' '.join(_name(ahead)) if ahead else 'free'} ahead"
    ]
    places = []
    for cell, thing in world.things.items():
        if thing.kind in ("wall", "lava") or cell == (x, y):
            continue
        right, down = cell[0] - x, cell[1] - y
        where = [f"{abs(down)} {'down' if down > 0 else 'up'}"] if down else []
        where += [f"{abs(right)} {'right' if right > 0 else 'left'}"] if right else []
        places.append((abs(right) + abs(down), " ".join([*_name(thing), *where])))
    words += [text for _, text in sorted(places)[:SEEN]]
    return ", ".join(words).replace("grey wall", "wall").replace("red lava", "lava")


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
