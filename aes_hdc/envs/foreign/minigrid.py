"""Ladders of the `minigrid` package, seen from above in full and played with words.

Each environment is `minigrid_NAME`. Frames are MiniGrid's own drawings without the fog;
missing sizes are made through its keyword arguments.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import minigrid  # noqa: F401

from aes_hdc.envs.adapters.foreign import ForeignEnv, adapt
from aes_hdc.envs.adapters.ladder import Env, Ladder, Rung
from aes_hdc.envs.foreign import minigrid_seek as seek
from aes_hdc.envs.foreign import minigrid_view as view
from aes_hdc.envs.foreign.minigrid_plan import World

CODES = {  # MiniGrid's action numbers.
    "forward": 2,
    "turn left": 0,
    "turn right": 1,
    "pickup": 3,
    "drop": 4,
    "toggle": 5,
    "done": 6,
}
NEVER = 10**6  # steps; our budget ends an episode long before MiniGrid's limit

GOAL = "reach the goal"
MOVES = "forward goes where you point, turn changes that"

Seek = Callable[[Any, World], bool]


def _rung(gym_id: str, px: int = 96, **options: Any) -> Rung:
    """One level: keyword arguments in capitals are ours, the others are MiniGrid's."""
    ours = {k.lower(): options.pop(k) for k in list(options) if k.isupper()}
    kwargs = {"max_steps": NEVER, **options}
    return Rung(f"MiniGrid-{gym_id}", kwargs, px, **ours)


def _sized(gym_id: str, *sizes: int, small: int = 0, **options: Any) -> list[Rung]:
    """One level a size; the first `small` of them have few instances."""
    return [
        _rung(gym_id, _px(n - 2), size=n, SMALL=i < small, **options)
        for i, n in enumerate(sizes)
    ]


def _px(cells: int) -> int:
    """The smallest frame that gives a cell 8 pixels, a multiple of 32."""
    return max(96, -(-cells * 8 // 32) * 32)


def _ladder(
    name: str,
    rungs: Sequence[Rung],
    find: Seek | None,
    abilities: str,
    *,
    verbs: str = "",
    rules: str = "",
    goal: str = "",
    **extra: Any,
) -> Ladder:
    """One ladder with what all of them share filled in."""
    words = ["forward", "turn left", "turn right", *verbs.split()]
    you = "red, the goal is green" if goal == GOAL else "the red triangle"
    return Ladder(
        id=f"minigrid_{name}",
        family="minigrid",
        rungs=tuple(rungs),
        verbs={word: CODES[word] for word in words},
        scene=view.scene,
        goal=(lambda env: goal) if goal else _mission,
        rules=". ".join(filter(None, (f"you are {you}", MOVES, rules))),
        size=view.size,
        abilities=tuple(abilities.split()),
        caption=view.caption,
        solve=seek.solver(find) if find else None,
        frame=view.frame,
        repeats=view.repeats,
        events=view.events,
        **extra,
    )


def _mission(env: Env) -> str:
    """MiniGrid's own mission, on one line of lower-case text."""
    raw: Any = env.unwrapped
    return " ".join(str(raw.mission).lower().split())


def _crossing(kind: str) -> list[Rung]:
    """Rivers of lava or wall: (size, rivers) from easy to hard."""
    steps = ((5, 1), (7, 1), (7, 2), (9, 2), (9, 3), (11, 4), (13, 5))
    return [
        _rung(
            f"{kind}CrossingS9N1-v0",
            _px(n - 2),
            size=n,
            num_crossings=rivers,
            SMALL=n < 7,
            WANDER=8,
        )
        for n, rivers in steps
    ]


def _objects(gym_id: str, *steps: tuple[int, int]) -> list[Rung]:
    """Rooms with objects: (size, objects) from easy to hard."""
    return [_rung(gym_id, _px(n - 2), size=n, numObjs=k) for n, k in steps]


def _multi_rooms() -> list[Rung]:
    """(rooms, largest room, pixels) from easy to hard."""
    steps = (
        (1, 5, 96), (2, 4, 96), (2, 5, 96), (3, 5, 128), (4, 5, 160), (5, 6, 224)
    )  # fmt: skip
    return [
        _rung(
            "MultiRoom-N2-S4-v0",
            px,
            minNumRooms=rooms,
            maxNumRooms=rooms,
            maxRoomSize=largest,
            SMALL=rooms == 1,
        )
        for rooms, largest, px in steps
    ]


def _moving_balls() -> list[Rung]:
    """(size, balls, turns allowed) from easy to hard."""
    steps = (
        (5, 1, 6),
        (6, 1, 8),
        (6, 2, 10),
        (8, 3, 16),
        (10, 4, 22),
        (12, 5, 28),
        (16, 7, 40),
    )
    return [
        _rung(
            "Dynamic-Obstacles-Random-5x5-v0",
            _px(n - 2),
            size=n,
            n_obstacles=balls,
            agent_start_pos=None,
            BUDGET=budget,
        )
        for n, balls, budget in steps
    ]


def _ladders() -> list[Ladder]:
    """All ladders, easiest first."""
    return [*_walks(), *_choices(), *_chains()]


def _walks() -> list[Ladder]:
    """Ladders in which walking is all there is."""
    lava = "entering orange lava ends the game"
    return [
        _ladder(
            "empty",
            _sized(
                "Empty-Random-5x5-v0",
                5,
                6,
                7,
                8,
                10,
                12,
                16,
                small=4,
                agent_start_pos=None,
            ),
            seek.to_goal,
            "egocentric_transformation orientation_recognition shortest_path_planning",
            goal=GOAL,
        ),
        _ladder(
            "lava_gap",
            _sized("LavaGapS5-v0", 5, 6, 7, 8, 10, 12, 16, small=1, WANDER=8),
            seek.to_goal,
            "egocentric_transformation obstacle_avoidance orientation_recognition",
            rules=lava,
            goal=GOAL,
        ),
        _ladder(
            "lava_crossing",
            _crossing("Lava"),
            seek.to_goal,
            "egocentric_transformation obstacle_avoidance shortest_path_planning",
            rules=lava,
            goal=GOAL,
        ),
        _ladder(
            "simple_crossing",
            _crossing("Simple"),
            seek.to_goal,
            "egocentric_transformation orientation_recognition shortest_path_planning",
            rules="walls are gray",
            goal=GOAL,
        ),
        _ladder(
            "dynamic_obstacles",
            _moving_balls(),
            None,
            "egocentric_transformation motion_prediction obstacle_avoidance",
            rules="a ball moves each turn. walking into a ball or wall ends the game",
            goal=GOAL,
            no_plan_reason="the obstacles move by chance",
        ),
        _ladder(
            "memory",
            [
                *_sized("MemoryS7-v0", 7, 9, 11, 13, small=4, WANDER=6),
                *_sized("MemoryS13Random-v0", 15, 17, random_length=True, WANDER=6),
            ],
            seek.to_side,
            "egocentric_transformation shape_identification shortest_path_planning",
            rules="go to the end of the hall that shows the object of the left room",
        ),
    ]


def _choices() -> list[Ladder]:
    """Ladders in which the mission names one of several things."""
    grounding = "egocentric_transformation instruction_grounding color_identification"
    done = "say done beside it. a wrong done ends the game"
    return [
        _ladder(
            "go_to_door",
            _sized("GoToDoor-5x5-v0", 5, 6, 7, 8, 10, 12),
            seek.beside,
            grounding,
            verbs="done",
            rules=done,
        ),
        _ladder(
            "go_to_object",
            _objects(
                "GoToObject-6x6-N2-v0", (5, 2), (6, 2), (7, 3), (8, 4), (10, 5), (12, 6)
            ),
            seek.beside,
            grounding,
            verbs="done",
            rules=done,
        ),
        _ladder(
            "fetch",
            _objects(
                "Fetch-5x5-N2-v0", (5, 2), (6, 2), (7, 3), (8, 4), (10, 5), (12, 6)
            ),
            seek.fetch,
            grounding,
            verbs="pickup",
            rules="pickup takes what is in front. a wrong one ends the game",
        ),
        _ladder(
            "put_near",
            _objects(
                "PutNear-6x6-N2-v0", (6, 2), (7, 2), (8, 3), (10, 4), (12, 5), (14, 6)
            ),
            seek.put_near,
            f"{grounding} subgoal_decomposition",
            verbs="pickup drop",
            rules="pickup and drop act on the tile in front. a wrong one ends the game",
        ),
    ]


def _chains() -> list[Ladder]:
    """Ladders in which doors and keys come first."""
    planning = "egocentric_transformation subgoal_decomposition shortest_path_planning"
    keys = "pickup takes the key in front. toggle opens the door in front"
    return [
        _ladder(
            "red_blue_doors",
            [
                _rung("RedBlueDoors-6x6-v0", _px(2 * n - 2), size=n)
                for n in (4, 5, 6, 7, 8, 10, 12)
            ],
            seek.red_then_blue,
            f"{planning} color_identification",
            verbs="toggle",
            rules="toggle opens the door in front. blue first ends the game",
        ),
        _ladder(
            "multi_room",
            _multi_rooms(),
            seek.to_goal,
            f"{planning} long_horizon_planning",
            verbs="toggle",
            rules="toggle opens the door in front",
            goal=GOAL,
        ),
        _ladder(
            "door_key",
            _sized("DoorKey-5x5-v0", 5, 6, 7, 8, 10, 12, 16, small=1),
            seek.to_goal,
            planning,
            verbs="pickup toggle",
            rules=keys,
            goal=GOAL,
        ),
        _ladder(
            "key_corridor",
            [
                _rung("KeyCorridorS3R1-v0", px, room_size=side, num_rows=rows)
                for side, rows, px in (
                    (3, 1, 96),
                    (3, 2, 96),
                    (3, 3, 96),
                    (4, 3, 96),
                    (5, 3, 128),
                    (6, 3, 128),
                )
            ],
            seek.take,
            f"{planning} long_horizon_planning",
            verbs="pickup drop toggle",
            rules=f"{keys}. hold one thing at a time",
        ),
        _ladder(
            "unlock_pickup",
            [
                _rung(f"{name}-v0")
                for name in ("Unlock", "UnlockPickup", "BlockedUnlockPickup")
            ],
            seek.take,
            f"{planning} long_horizon_planning",
            verbs="pickup drop toggle",
            rules=f"{keys}. hold one thing at a time",
        ),
    ]


@functools.cache
def environments() -> Mapping[str, type[ForeignEnv]]:
    """Returns the environment classes by id, easiest first."""
    return {ladder.id: adapt(ladder) for ladder in _ladders()}
