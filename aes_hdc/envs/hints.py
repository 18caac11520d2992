"""Hints: a cue from the oracle that leaves at least two legal actions open."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from aes_hdc.envs.actions import Action, Arg, Grammar, Rest


@dataclass(frozen=True)
class Cue:
    """A hint and two or more of the actions it leaves open.

    Attributes:
        text: what is shown.
        options: legal actions that agree with the text, the oracle's among them.
    """

    text: str = ""
    options: tuple[Action, ...] = ()


def default_cue(
    grammar: Grammar, action: Action, is_legal: Callable[[Action], bool], coin: int
) -> Cue:
    """Derives a hint: the verb, two numbers, or one choice that is ruled out.

    Args:
        grammar: the legal actions by type.
        action: the oracle's next one.
        is_legal: whether an action would be executed now.
        coin: 0 or 1, decides which of two neighbours stands beside a number.

    Returns:
        A cue that leaves a second legal action open, or an empty one.
    """
    for text, others in _cues(grammar, action, coin):
        for other in others:
            if other != action and is_legal(other):
                return Cue(text, (action, other))
    return Cue()


def _cues(
    grammar: Grammar, action: Action, coin: int
) -> Iterator[tuple[str, list[Action]]]:
    """Possible hint texts, best first, with other actions that agree with each."""
    verb, args = str(action[0]), grammar[str(action[0])]
    spots = list(zip(range(1, len(action)), args, strict=False))
    if len(grammar) > 1:
        yield (
            f"use {verb}",
            [_swap(action, i, x) for i, a in spots for x in _options(a)],
        )
    for i, arg in spots:
        options, name = _options(arg), f"{arg.name} " if arg.name else ""
        if isinstance(options[0], int) and len(options) > 3:
            pair = _pair(options, action[i], coin)
            text = f"{name}{pair[0]} or {pair[1]}"
            yield text, [_swap(action, i, x) for x in pair]
    for i, arg in spots:
        options, name = _options(arg), f"{arg.name} " if arg.name else ""
        after = options.index(action[i]) + 1
        wrong = options[after % len(options)]
        rest = [_swap(action, i, x) for x in options if x != wrong]
        if wrong != action[i]:
            yield f"{name}not {wrong}", rest


def _pair(numbers: list[int], right: int, coin: int) -> list[int]:
    """The right number and a neighbour: the next where `coin` is 1, else the last."""
    start = min(max(numbers.index(right) - 1 + coin, 0), len(numbers) - 2)
    return numbers[start : start + 2]


def _options(arg: Arg) -> list[Any]:
    """All values of an argument, or of one item of a list."""
    return list(arg.item.options if isinstance(arg, Rest) else arg.options)


def _swap(action: Action, at: int, value: Any) -> Action:
    """The action with another word at position `at`."""
    return (*action[:at], value, *action[at + 1 :])
