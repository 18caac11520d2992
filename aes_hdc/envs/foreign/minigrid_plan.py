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

    def ahead(self) -> Cell:
        """The cell in front of the agent."""
        return front(self.pose)


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


def go(world: World, accept: Callable[[Pose], bool]) -> bool:
    """Walks to the nearest pose that is accepted, opening doors on the way.

    Args:
        world: changed where a route exists.
        accept: whether a pose is good enough.

    Returns:
        Whether there is a route.
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
            world.plan += _unwind(world, before, pose)
            world.pose = pose
            return True
        for after, steps in _moves(world, pose):
            if after not in before:
                count += 1  # Ties go to the first found, so plans are reproducible.
                heapq.heappush(queue, (cost + len(steps), count, after, (pose, steps)))
    return False


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
    yield (pose[0], (heading - 1) % 4), [("left",)]
    yield (pose[0], (heading + 1) % 4), [("right",)]


def _unwind(world: World, before: dict[Pose, Any], pose: Pose) -> list[Action]:
    """The actions that led to a pose; doors they open stay open."""
    legs: list[list[Action]] = []
    while before[pose] is not None:
        origin, steps = before[pose]
        if len(steps) == 2:
            world.things[front(origin)].door = "open"
        legs.append(steps)
        pose = origin
    return [action for steps in reversed(legs) for action in steps]


def enter(world: World, cells: frozenset[Cell]) -> bool:
    """Plans to stand on one of the cells, fetching keys as needed."""
    return _with_keys(world, lambda: go(world, lambda pose: pose[0] in cells))


def face(world: World, cell: Cell) -> bool:
    """Plans to stand before a cell, looking at it."""
    return _with_keys(world, lambda: go(world, lambda pose: front(pose) == cell))


def pick(world: World, cell: Cell) -> bool:
    """Plans to take up what lies in a cell, laying down what is held."""
    if not face(world, cell):
        return False
    if world.held is not None and not (lay_down(world) and face(world, cell)):
        return False
    world.held = world.things.pop(cell)
    world.plan.append(("pickup",))
    return True


def lay_down(world: World, allowed: Callable[[Cell], bool] = lambda cell: True) -> bool:
    """Plans to drop what is held on the nearest free cell that is allowed."""
    if world.held is None or not go(
        world, lambda pose: front(pose) not in world.things and allowed(front(pose))
    ):
        return False
    world.things[world.ahead()] = world.held
    world.held = None
    world.plan.append(("drop",))
    return True


def unlock(world: World, cell: Cell) -> bool:
    """Plans to open the door in a cell."""
    thing = world.things[cell]
    for near in [c for c, other in world.things.items() if other.kind == "ball"]:
        # A ball in the doorway is carried away first.
        if apart(near, cell) == 1 and pick(world, near):
            lay_down(world, lambda clear: apart(clear, cell) > 1)
    if thing.door == "locked" and not world.opens(cell):
        key = world.find(thing.colour, "key")
        if key is None or not pick(world, key):
            return False
    if not face(world, cell):
        return False
    thing.door = "open"
    world.plan.append(("toggle",))
    return True


def _with_keys(world: World, attempt: Callable[[], bool]) -> bool:
    """Makes an attempt, and again after each locked door that can be opened."""
    if attempt():
        return True
    for cell, thing in list(world.things.items()):
        if thing.door != "locked":
            continue
        key = world.find(thing.colour, "key")
        if key is None and not world.opens(cell):
            continue
        # A key behind its own door would send the planner round in circles.
        thing.door = "shut"
        reachable = world.held is not None and key is None
        reachable = reachable or (key is not None and pick(world, key))
        thing.door = "locked"
        if reachable and unlock(world, cell) and attempt():
            return True
    return False
