"""What each MiniGrid ladder asks for, as a plan: `solver` makes the oracle of it."""

from collections.abc import Callable
from typing import Any

from aes_hdc.envs.actions import Action
from aes_hdc.envs.adapters.ladder import Env
from aes_hdc.envs.foreign import minigrid_plan as plan
from aes_hdc.envs.foreign.minigrid_plan import Cell, World, apart


def solver(
    seek: Callable[[Any, World], bool],
) -> Callable[[Env], list[Action] | None]:
    """Turns a function that plans on a world into the solver of a ladder."""

    def solve(env: Env) -> list[Action] | None:
        world = plan.read(env.unwrapped)
        return world.plan if seek(env.unwrapped, world) else None

    return solve


def _cell(position: Any) -> Cell:
    """A MiniGrid position as plain integers."""
    return int(position[0]), int(position[1])


def to_goal(raw: Any, world: World) -> bool:
    """Plans to reach the goal square."""
    goals = frozenset(c for c, t in world.things.items() if t.kind == "goal")
    return plan.enter(world, goals)


def to_side(raw: Any, world: World) -> bool:
    """Plans to enter the success cell and not the other one."""
    world.deadly |= {_cell(raw.failure_pos)}
    return plan.enter(world, frozenset([_cell(raw.success_pos)]))


def beside(raw: Any, world: World) -> bool:
    """Plans to say done next to the target."""
    target = _cell(raw.target_pos)
    if not plan.go(world, lambda pose: apart(pose[0], target) == 1):
        return False
    world.plan.append(("done",))
    return True


def put_near(raw: Any, world: World) -> bool:
    """Plans to carry one object to another."""
    target = _cell(raw.target_pos)
    if world.held is None:
        cell = world.find(raw.moveColor, raw.move_type)
        if cell is None or not plan.pick(world, cell):
            return False
    return plan.lay_down(world, lambda pose: _near(plan.front(pose), target))


def _near(one: Cell, two: Cell) -> bool:
    """Whether two cells touch, corners included."""
    return max(abs(one[0] - two[0]), abs(one[1] - two[1])) <= 1


def fetch(raw: Any, world: World) -> bool:
    """Plans to take up the object that the mission names."""
    cell = world.find(raw.targetColor, raw.targetType)
    return cell is not None and plan.pick(world, cell)


def open_door(raw: Any, world: World) -> bool:
    """Plans to unlock the only locked door."""
    doors = [c for c, t in world.things.items() if t.door in ("locked", "closed")]
    return bool(doors) and plan.unlock(world, doors[0])


def take(raw: Any, world: World) -> bool:
    """Plans to take up the object behind the doors, or to open the last of them."""
    if not hasattr(raw, "obj"):
        return open_door(raw, world)
    cell = world.find(raw.obj.color, raw.obj.type)
    return cell is not None and plan.pick(world, cell)


def red_then_blue(raw: Any, world: World) -> bool:
    """Plans to open the red door and after it the blue one."""
    red, blue = world.find("red", "door"), world.find("blue", "door")
    if red is None or blue is None or world.things[blue].door == "open":
        return False
    if world.things[red].door != "open":
        # Opening blue on the way would lose the game.
        world.things[blue].door = "shut"
        if not plan.unlock(world, red):
            return False
        world.things[blue].door = "closed"
    return plan.unlock(world, blue)
