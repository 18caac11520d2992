"""Take-away games on heaps of tokens against an opponent that never errs."""

from dataclasses import dataclass
from functools import reduce
from operator import xor

import numpy as np

from aes_hdc.envs import draw
from aes_hdc.envs.actions import Action, Grammar, Int
from aes_hdc.envs.base import Cue, Level, Step, VisualEnv, register
from aes_hdc.envs.state import State
from aes_hdc.episode import Event

Take = tuple[int, int]  # heap, 0-based, and number of tokens

COLORS = ("red", "blue", "green", "orange", "purple", "cyan")


@dataclass(slots=True)
class Heaps(State):
    """Tokens in each heap, left to right, their colours, and the room of a heap."""

    heaps: tuple[int, ...]
    colors: tuple[str, ...]
    room: int


def winning_takes(heaps: tuple[int, ...]) -> list[Take]:
    """Returns the moves after which the exclusive or of all heaps is 0.

    Whoever leaves 0 can do so again after every reply, down to the last token; in a
    position that is at 0 already the list is empty.
    """
    odd = reduce(xor, heaps)
    return [(at, n - (n ^ odd)) for at, n in enumerate(heaps) if n ^ odd < n]


def opponent_take(heaps: tuple[int, ...]) -> Take:
    """Returns a winning move or, where none exists, the whole of a largest heap.

    It depends on nothing but the heaps, so a plan can foresee it.
    """
    if winning := winning_takes(heaps):
        return winning[0]
    return heaps.index(max(heaps)), max(heaps)


def _after(heaps: tuple[int, ...], take: Take) -> tuple[int, ...]:
    """The heaps that a move leaves."""
    at, count = take
    return (*heaps[:at], heaps[at] - count, *heaps[at + 1 :])


def _part(heaps: tuple[int, ...], at: int) -> str:
    """What a move took from a heap, by what it left there."""
    return "tokens" if heaps[at] else "heap"


@register(
    "nim_heaps",
    family="board",
    turns="M",
    levels=(  # heaps, most tokens in one
        Level((2, 5)),
        Level((3, 5)),
        Level((3, 7)),
        Level((4, 7)),
        Level((4, 9), 128),
        Level((5, 11), 160),
        Level((6, 15), 192),
    ),
    abilities=("parity_modular_reasoning", "object_counting", "adversarial_reasoning"),
)
class NimHeaps(VisualEnv[Heaps]):
    """Take any number of one heap's tokens in turn; who takes the last one wins."""

    def generate(self, rng: np.random.Generator, params: tuple[int, int]) -> Heaps:
        count, room = params
        while True:
            heaps = tuple(int(n) for n in rng.integers(0, room + 1, size=count))
            if sum(n > 0 for n in heaps) > 1 and winning_takes(heaps):
                order = rng.permutation(len(COLORS))[:count]
                return Heaps(heaps, tuple(COLORS[i] for i in order), room)

    def grammar(self, game: Heaps) -> Grammar:
        return {"take": (Int(1, len(game.heaps), "heap"), Int(1, game.room, "count"))}

    def apply(self, game: Heaps, action: Action) -> Step:
        take = at, count = int(action[1]) - 1, int(action[2])
        if count > game.heaps[at]:
            return Step.illegal(f"heap {at + 1} has fewer than {count}")
        winning = winning_takes(game.heaps)
        losing = sum(game.heaps) - len(winning)  # Each token of a heap is one move.
        game.heaps = _after(game.heaps, take)
        happened = [Event("removed", _part(game.heaps, at), count)]
        if winning:
            kind = "kept_win" if take in winning else "lost_win"
            happened.append(Event(kind, "game", losing))
        if game.heaps[at] and game.heaps.count(game.heaps[at]) > 1:
            happened.append(Event("matched", "heaps", game.heaps[at]))
        if not any(game.heaps):
            return Step.won("you took the last token", happened)
        at, count = opponent_take(game.heaps)
        game.heaps = _after(game.heaps, (at, count))
        happened.append(Event("opponent_moved", _part(game.heaps, at), count))
        if not any(game.heaps):
            return Step.lost("the opponent took the last token", happened)
        return Step(
            feedback=f"opponent took {count} from heap {at + 1}", events=tuple(happened)
        )

    def draw(self, game: Heaps, out: np.ndarray) -> None:
        """Paints heaps as columns of flat tokens, the free room above as dots."""
        draw.fill(out, "white")
        size, count = len(out), len(game.heaps)
        wide, tall = size // max(3, count), size // (game.room + 1)
        for at, (tokens, color) in enumerate(zip(game.heaps, game.colors, strict=True)):
            # Two heaps stand at the edges of three columns.
            x = (at * 2 if count == 2 else at) * wide + wide / 2
            for height in range(game.room):
                y = size - height * tall - tall / 2
                if height < tokens:
                    _token(out, x, y, wide - 4, tall - 2, color)
                else:
                    draw.shape(out, "disc", x, y, max(3, tall / 4), color)
            if size >= draw.NUMBERS_PX:
                draw.text(out, str(at + 1), x, tall / 2, max(8, min(16, tall - 4)))

    def goal(self, game: Heaps) -> str:
        return "take the last token"

    def rules(self, game: Heaps) -> str:
        return (
            "take tokens from one heap, then the opponent does. it plays perfectly, "
            "and when it cannot win it takes all of the biggest heap"
        )

    def caption(self, game: Heaps) -> str:
        heaps = zip(game.heaps, game.colors, strict=True)
        return ", ".join(f"heap {i} has {n} {c}" for i, (n, c) in enumerate(heaps, 1))

    def solve(self, game: Heaps) -> list[Action] | None:
        heaps, plan = game.heaps, []
        while any(heaps):
            winning = winning_takes(heaps)
            if not winning:
                return None
            at, count = winning[0]
            plan.append(("take", at + 1, count))
            heaps = _after(heaps, winning[0])
            if any(heaps):
                heaps = _after(heaps, opponent_take(heaps))
        return plan or None

    def size(self, game: Heaps) -> int:
        return sum(game.heaps)

    def cue(self, game: Heaps, plan: list[Action]) -> Cue:
        """Names the next move's heap or, where that holds one token, the count."""
        _, heap, _ = plan[0]
        held = game.heaps[int(heap) - 1]
        if held > 1:
            takes = tuple(("take", heap, count) for count in range(1, held + 1))
            return Cue(f"from heap {heap}", takes)
        others = [at for at, tokens in enumerate(game.heaps, 1) if tokens]
        if len(others) > 1:
            return Cue("only one token", tuple(("take", at, 1) for at in others))
        return Cue()


def _token(
    out: np.ndarray, x: float, y: float, width: float, height: float, color: str
) -> None:
    """Paints a flat token with round ends, centred at (x, y)."""
    straight = (width - height) / 2
    draw.rect(out, y - height / 2, x - straight, y + height / 2, x + straight, color)
    for end in (x - straight, x + straight):
        draw.shape(out, "disc", end, y, height, color)
