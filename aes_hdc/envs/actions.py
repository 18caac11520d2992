"""Action text: typed grammars, the parser for untrusted replies, random actions.

An action is a tuple, the verb and then its arguments, such as ("move", "right", 2); its
text is the same words joined by spaces. A grammar maps each verb to its arguments.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Action = tuple[Any, ...]  # the verb, then str or int values

ECHO_LIMIT = 40  # characters of a reply that feedback may repeat
FEEDBACK_LIMIT = 400  # characters of feedback to a rejected reply
_DROPPED = str.maketrans(dict.fromkeys("()[]{}\"'`,", " "))
_TAG = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)
_BOXED = re.compile(r"\\boxed\{([^{}]*)\}")
_FINAL = re.compile(r"final answer:([^\n]*)")
_INTEGER = re.compile(r"[+-]?[0-9]{1,9}")


class RejectedError(Exception):
    """A reply that is no legal action; the environment answers it, no caller sees it.

    Attributes:
        code: NO_ANSWER, UNKNOWN_ACTION, MISSING_ARG, TOO_MANY_ARGS, BAD_VALUE, ILLEGAL.
        reason: what is wrong, one clause without a full stop.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


@dataclass(frozen=True)
class Int:
    """A whole number in [lo, hi].

    Attributes:
        lo: smallest value.
        hi: largest value.
        name: shown before the range; replies may repeat it, as in "press row 1".
        default: taken where the reply leaves the argument out; None makes it required.
    """

    lo: int
    hi: int
    name: str = ""
    default: int | None = None

    @property
    def options(self) -> Sequence[int]:
        """All values, ascending."""
        return range(self.lo, self.hi + 1)

    @property
    def text(self) -> str:
        """The argument as the grammar line shows it."""
        link = "-" if self.lo >= 0 else " to "
        span = f"{self.lo}{link}{self.hi}" if self.lo < self.hi else str(self.lo)
        return _decorate(span, self.name, self.default)

    def parse(self, word: str) -> int:
        """Reads one word; raises RejectedError outside the range."""
        if not _INTEGER.fullmatch(word) or not self.lo <= int(word) <= self.hi:
            raise RejectedError(
                "BAD_VALUE", f"{echo(word)} is not {self.lo} to {self.hi}"
            )
        return int(word)


@dataclass(frozen=True, init=False)
class Choice:
    """One of several lower-case words.

    Attributes:
        options: the words, in the order in which the grammar line lists them.
        name: shown before the words; replies may repeat it.
        default: taken where the reply leaves the argument out; None makes it required.
    """

    options: tuple[str, ...]
    name: str
    default: str | None

    def __init__(
        self, *options: str, name: str = "", default: str | None = None
    ) -> None:
        for word in options:
            if not re.fullmatch(r"[a-z0-9_+-]+", word):
                raise ValueError(f"choice {word!r}: use one lower-case word")
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "default", default)

    @property
    def text(self) -> str:
        """The argument as the grammar line shows it."""
        return _decorate("|".join(self.options), self.name, self.default)

    def parse(self, word: str) -> str:
        """Reads one word; raises RejectedError for any other word."""
        if word not in self.options:
            raise RejectedError("BAD_VALUE", f"{echo(word)} is no choice")
        return word


@dataclass(frozen=True)
class Rest:
    """A list of values that takes all remaining words; only as the last argument.

    Attributes:
        item: what each value is; its default is not used.
        lo: fewest values.
        hi: most values.
    """

    item: Int | Choice
    lo: int
    hi: int
    default: None = None

    @property
    def name(self) -> str:
        """The name of the items."""
        return self.item.name

    @property
    def text(self) -> str:
        """The argument as the grammar line shows it, such as "1-5 x2-4"."""
        count = f"{self.lo}-{self.hi}" if self.lo < self.hi else str(self.lo)
        return f"{self.item.text} x{count}"


Arg = Int | Choice | Rest
Grammar = Mapping[str, tuple[Arg, ...]]


def _decorate(span: str, name: str, default: object) -> str:
    """Adds the name and the brackets of an optional argument."""
    named = f"{name} {span}" if name else span
    return named if default is None else f"[{named}]"


def to_text(action: Action) -> str:
    """Returns the canonical text of an action; `parse` reads it back."""
    return " ".join(map(str, action))


def grammar_text(grammar: Grammar) -> str:
    """Returns the line of legal actions, as prompts and feedback show it."""
    return " or ".join(
        " ".join([verb, *(arg.text for arg in args)]) for verb, args in grammar.items()
    )


def echo(text: str) -> str:
    """Returns at most `ECHO_LIMIT` printable ASCII characters of a reply."""
    plain = text[: 4 * ECHO_LIMIT].encode("ascii", "replace").decode()
    plain = "".join(char if char.isprintable() else "?" for char in plain)
    return plain if len(plain) <= ECHO_LIMIT else plain[: ECHO_LIMIT - 2] + ".."


def clauses(reply: str, *, strict: bool = False) -> list[str]:
    """Finds the answer in a reply and splits it into the texts of single actions.

    Args:
        reply: the policy's text, untrusted.
        strict: accept only an answer tag; otherwise a box, a line "final answer:" or
            the whole reply will do.

    Raises:
        RejectedError: NO_ANSWER, if there is nothing to read.
    """
    text = reply.lower().rpartition("</think>")[2]
    if found := _TAG.findall(text):
        text = found[-1]
    elif strict or "<answer>" in text:
        raise RejectedError(
            "NO_ANSWER", "put the action between <answer> and </answer>"
        )
    elif found := _BOXED.findall(text) or _FINAL.findall(text):
        text = found[-1]
    parts = [part.translate(_DROPPED).strip().rstrip(".") for part in text.split(";")]
    parts = [part for part in parts if part.strip()]
    if not parts:
        raise RejectedError("NO_ANSWER", "the reply is empty")
    return parts


def parse(clause: str, grammar: Grammar) -> Action:
    """Reads one action.

    Args:
        clause: one text from `clauses`.
        grammar: the legal verbs and their arguments.

    Returns:
        The action with defaults filled in.

    Raises:
        RejectedError: if the text does not fit the grammar.
    """
    verb, *words = clause.lower().split()
    if verb not in grammar:
        raise RejectedError("UNKNOWN_ACTION", f"{echo(verb)} is no action")
    values: list[str | int] = []
    for arg in grammar[verb]:
        if words and arg.name and words[0] == arg.name:
            words = words[1:]
        if isinstance(arg, Rest):
            values += _parse_rest(verb, words, arg)
            words = []
        elif words:
            values.append(arg.parse(words[0]))
            words = words[1:]
        elif arg.default is None:
            raise RejectedError("MISSING_ARG", f"{verb} needs {arg.text}")
        else:
            values.append(arg.default)
    if words:
        raise RejectedError("TOO_MANY_ARGS", f"{echo(words[0])} is one word too many")
    return (verb, *values)


def _parse_rest(verb: str, words: list[str], arg: Rest) -> list[str | int]:
    """Reads the values of a list argument."""
    if len(words) < arg.lo:
        raise RejectedError("MISSING_ARG", f"{verb} needs {arg.text}")
    if len(words) > arg.hi:
        raise RejectedError("TOO_MANY_ARGS", f"{verb} takes at most {arg.hi} values")
    return [arg.item.parse(word) for word in words]


def rejection(error: RejectedError, grammar: Grammar) -> str:
    """Returns the feedback to a rejected reply; it ends with the legal grammar."""
    remedy = f". say {grammar_text(grammar)}"
    reason = f"{error.code.lower().replace('_', ' ')}: {error.reason}"
    return reason[: max(0, FEEDBACK_LIMIT - len(remedy))] + remedy


def sample(grammar: Grammar, rng: np.random.Generator) -> Action:
    """Draws a well-typed action: the verb, then each argument, uniformly."""
    verb = list(grammar)[rng.integers(len(grammar))]
    values: list[str | int] = []
    for arg in grammar[verb]:
        if isinstance(arg, Rest):
            count = int(rng.integers(arg.lo, arg.hi + 1))
            options = arg.item.options
            values += [options[i] for i in rng.integers(len(options), size=count)]
        else:
            values.append(arg.options[int(rng.integers(len(arg.options)))])
    return (verb, *values)


def every(grammar: Grammar) -> Iterator[Action]:
    """Yields all well-typed actions; lists only at their shortest length."""
    for verb, args in grammar.items():
        pools: list[Sequence[str | int]] = []
        for arg in args:
            if isinstance(arg, Rest):
                pools += [arg.item.options] * arg.lo
            else:
                pools.append(arg.options)
        for values in itertools.product(*pools):
            yield (verb, *values)
