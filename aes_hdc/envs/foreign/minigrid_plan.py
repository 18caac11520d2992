"""Plans for MiniGrid: routes by Dijkstra between the subgoals that a ladder names.

The planner works on a plain copy of the grid. Closed doors count as two actions of
a route; a locked one first sends the planner for its key. Plans are
proven by their construction, and shortest between subgoals, not overall.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aes_hdc.envs.actions import Action

Cell = tuple[int, int]  # (x, y), as in MiniGrid.
Pose = tuple[Cell, int]

HEADINGS: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1))
MAX_REPEAT = 9


@dataclass
class Thing:
    """An object on the grid.

    Attributes:
        kind: wall, lava, goal, door, key, ball or box.
        colour: its colour word.
        door: "open", "closed" or "locked" for doors, else empty.
    """

    kind: str
    colour: str
    door: str = ""


@dataclass
class World:
    """What matters of a MiniGrid environment, free to change.

    Attributes:
        things: cell -> what stands there; cells without an entry are free.
        pose: the agent's cell and heading.
        held: what it carries.
        deadly: cells that end the episode without success.
        plan: the actions so far.
    """

    things: dict[Cell, Thing]
    pose: Pose
    held: Thing | None
    deadly: frozenset[Cell] = frozenset()
    plan: list[Action] = field(default_factory=list)

    def kind(self, cell: Cell) -> str:
        """The kind of what stands there; empty for nothing."""
        thing = self.things.get(cell)
        return thing.kind if thing else ""

    def is_free(self, cell: Cell) -> bool:
        """Whether the agent may stand there."""
        thing = self.things.get(cell)
        if cell in self.deadly:
            return False
        return thing is None or thing.kind == "goal" or thing.door == "open"

    def opens(self, cell: Cell) -> bool:
        """Whether a toggle from beside the cell would open a door there."""
        thing = self.things.get(cell)
        if thing is None or thing.door != "locked":
            return thing is not None and thing.door == "closed"
        return self.held == Thing("key", thing.colour)

    def find(self, *words: str) -> Cell | None:
        """The cell of the thing whose colour and kind are among the words."""
        for cell, thing in self.things.items():
            if thing.kind in words and thing.colour in words:
                return cell
        return None


def front(pose: Pose) -> Cell:
    """The cell that a pose faces."""
    (x, y), heading = pose
    return x + HEADINGS[heading][0], y + HEADINGS[heading][1]


def apart(one: Cell, two: Cell) -> int:
    """Returns the steps between two cells on an empty grid."""
    return abs(one[0] - two[0]) + abs(one[1] - two[1])


def read(env: Any) -> World:
    """Reads the world of an unwrapped MiniGrid environment."""
    things = {}
    for index, thing in enumerate(env.grid.grid):
        if thing is not None:
            cell = (index % env.grid.width, index // env.grid.width)
            things[cell] = _thing(thing)
    lava = frozenset(c for c, thing in things.items() if thing.kind == "lava")
    pose = ((int(env.agent_pos[0]), int(env.agent_pos[1])), int(env.agent_dir))
    return World(things, pose, env.carrying and _thing(env.carrying), lava)


def _thing(thing: Any) -> Thing:
    """A MiniGrid object as a plain value."""
    door = ""
    if thing.type == "door":
        door = "open" if thing.is_open else "locked" if thing.is_locked else "closed"
    return Thing(thing.type, thing.color, door)


def search(
    world: World, accept: Callable[[Pose], bool]
) -> tuple[Pose, list[list[Action]], list[Cell]] | None:
    """Finds the cheapest way to a pose that is accepted; the world is left alone.

    Returns:
        The pose, the actions leg by leg and the doors they open, or None.
    """
    before: dict[Pose, tuple[Pose, list[Action]] | None] = {}
    queue: list[tuple[int, int, Pose, tuple[Pose, list[Action]] | None]] = [
        (0, 0, world.pose, None)
    ]
    count = 0
    while queue:
        cost, _, pose, origin = heapq.heappop(queue)
        if pose in before:
            continue
        before[pose] = origin
        if accept(pose):
            return (pose, *_unwind(before, pose))
        for after, steps in _moves(world, pose):
            if after not in before:
                count += 1  # Ties go to the first found, so plans are reproducible.
                heapq.heappush(queue, (cost + len(steps), count, after, (pose, steps)))
    return None


def _unwind(
    before: dict[Pose, tuple[Pose, list[Action]] | None], pose: Pose
) -> tuple[list[list[Action]], list[Cell]]:
    """The legs that led to a pose, and the doors opened by them."""
    legs: list[list[Action]] = []
    doors: list[Cell] = []
    while (link := before[pose]) is not None:
        pose, steps = link
        legs.append(steps)
        doors += [front(pose)] if len(steps) == 2 else []
    return legs[::-1], doors


def go(world: World, accept: Callable[[Pose], bool]) -> bool:
    """Walks to the nearest pose that is accepted, opening doors on the way."""
    found = search(world, accept)
    if found is None:
        return False
    world.pose, legs, doors = found
    for door in doors:
        world.things[door].door = "open"
    world.plan += [action for leg in legs for action in leg]
    return True


def reach(world: World, accept: Callable[[Pose], bool]) -> bool:
    """Opens locked doors, with their keys, until no key is needed on the way."""
    while not _reaches(world, accept):
        locked = [c for c, thing in world.things.items() if thing.door == "locked"]
        if not any(unlock(world, door) for door in locked):
            return False
    return True


def _reaches(world: World, accept: Callable[[Pose], bool]) -> bool:
    """Whether there is a way with empty hands."""
    held, world.held = world.held, None
    found = search(world, accept)
    world.held = held
    return found is not None


def _moves(world: World, pose: Pose) -> Iterator[tuple[Pose, list[Action]]]:
    """The poses that one or two actions reach."""
    cell, heading = pose
    for times in range(1, MAX_REPEAT + 1):
        ahead = front((cell, heading))
        if not world.is_free(ahead):
            if times == 1 and world.opens(ahead):
                yield (ahead, heading), [("toggle",), ("forward", 1)]
            break
        cell = ahead
        yield (cell, heading), [("forward", times)]
        if (thing := world.things.get(cell)) and thing.kind == "goal":
            break
    yield (pose[0], (heading - 1) % 4), [("turn", "left")]
    yield (pose[0], (heading + 1) % 4), [("turn", "right")]


def enter(world: World, cells: frozenset[Cell]) -> bool:
    """Plans to stand on one of the cells, fetching keys as needed."""

    def is_there(pose: Pose) -> bool:
        return pose[0] in cells

    return reach(world, is_there) and go(world, is_there)


def pick(world: World, cell: Cell) -> bool:
    """Plans to take up what lies in a cell, laying down what is held before."""

    def is_before(pose: Pose) -> bool:
        return front(pose) == cell

    if not reach(world, is_before):
        return False
    if world.held is not None and not lay_aside(world, is_before):
        return False
    if not go(world, is_before):
        return False
    world.held = world.things.pop(cell)
    world.plan.append(("pickup",))
    return True


def lay_aside(world: World, accept: Callable[[Pose], bool]) -> bool:
    """Plans to drop what is held where it blocks neither a door nor the way."""

    def blocks(pose: Pose) -> bool:
        cell, (old, world.pose) = front(pose), (world.pose, pose)
        world.things[cell] = Thing("ball", "grey")
        found = search(world, accept)
        del world.things[cell]
        world.pose = old
        return found is None

    def is_aside(pose: Pose) -> bool:
        cell = front(pose)
        return all(apart(cell, c) > 1 or not t.door for c, t in world.things.items())

    return lay_down(world, lambda pose: is_aside(pose) and not blocks(pose)) or (
        lay_down(world, lambda pose: not blocks(pose))
    )


def lay_down(world: World, allowed: Callable[[Pose], bool]) -> bool:
    """Plans to drop what is held from the nearest pose that is allowed."""

    def is_clear(pose: Pose) -> bool:
        return front(pose) not in world.things and allowed(pose)

    if world.held is None or not go(world, is_clear):
        return False
    world.things[front(world.pose)] = world.held
    world.held = None
    world.plan.append(("drop",))
    return True


def unlock(world: World, cell: Cell) -> bool:
    """Plans to open the door in a cell, fetching its key and clearing its front."""

    def is_before(pose: Pose) -> bool:
        return front(pose) == cell

    thing = world.things[cell]
    was, thing.door = thing.door, "shut"  # A key may lie behind its own door.
    ready = _reaches(world, is_before) or _clear(world, cell)
    key = world.find(thing.colour, "key")
    if was == "locked" and world.held != Thing("key", thing.colour):
        ready = ready and key is not None and pick(world, key)
    thing.door = was
    if not ready or not go(world, is_before):
        return False
    thing.door = "open"
    world.plan.append(("toggle",))
    return True


def _clear(world: World, cell: Cell) -> bool:
    """Carries a ball away that stands in front of a door."""
    balls = [c for c, t in world.things.items() if t.kind == "ball"]
    return any(
        apart(ball, cell) == 1
        and pick(world, ball)
        and lay_down(world, lambda pose: apart(front(pose), cell) > 1)
        for ball in balls
    )
