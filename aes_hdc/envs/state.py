"""States as text: the lossless STATE form derived from the fields of a dataclass.

Each visible field becomes a line, its name and then plain words: "agent 1 2" or, for a
grid, one line a row: "row 1 ice hole ice". Fields that start with "_" are hidden and
left out, and so is the bookkeeping every state inherits from `State`. A field's form
follows from its annotation: plain types by themselves, others through
`Annotated[tuple[int, int], cell()]`, `Annotated[np.ndarray, grid("ice", "hole")]` or
`Annotated[int, choice("up", "down")]`.
"""

import copy
import dataclasses
import typing
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np

S = TypeVar("S", bound="State")
Words = list[str]


@dataclass(slots=True, kw_only=True)
class State:
    """What every instance keeps besides its game.

    Attributes:
        budget: actions allowed; 0 lets the base class set it from the oracle's plan.
        turn: actions spent, rejected replies included.
        bad: rejected replies in a row.
        over: whether the episode has ended.
        one: whether a single reply is the whole answer or plan.
    """

    budget: int = 0
    turn: int = 0
    bad: int = 0
    over: bool = False
    one: bool = False
    _key: int = 0  # 128 bits; seeds what happens by chance after reset.


BOOKKEEPING = frozenset(field.name for field in dataclasses.fields(State))


@dataclass(frozen=True)
class Codec:
    """How one field turns into lines of words and back.

    Attributes:
        write: value -> the words of each line, without the leading key.
        read: the words of each line -> value.
        key: first word of its lines; empty for the field's name.
    """

    write: Callable[[Any], list[Words]]
    read: Callable[[list[Words]], Any]
    key: str = ""


def cell() -> Codec:
    """Annotates a (row, column) field, 0-based in code and 1-based in text."""
    return Codec(
        write=lambda value: [[str(value[0] + 1), str(value[1] + 1)]],
        read=lambda lines: (int(lines[0][0]) - 1, int(lines[0][1]) - 1),
    )


def grid(*words: str, label: str = "row") -> Codec:
    """Annotates an int array, [rows, columns], as one line a row: "row 1 ice hole".

    Args:
        *words: the word for each value; without any, the numbers themselves.
        label: first word of the lines; distinct where a state has two grids.
    """
    index = {word: i for i, word in enumerate(words)}

    def write(value: np.ndarray) -> list[Words]:
        return [
            [str(r + 1), *(words[v] if words else str(v) for v in row)]
            for r, row in enumerate(value.tolist())
        ]

    def read(lines: list[Words]) -> np.ndarray:
        rows = [[index[w] if words else int(w) for w in line[1:]] for line in lines]
        return np.array(rows, dtype=np.int64)

    return Codec(write, read, key=label)


def choice(*words: str) -> Codec:
    """Annotates an int field that is shown as one of the words."""
    return Codec(
        write=lambda value: [[words[value]]],
        read=lambda lines: words.index(lines[0][0]),
    )


def _codec_of(hint: Any) -> Codec:
    """Derives the codec from a type annotation."""
    if typing.get_origin(hint) is typing.Annotated:
        return next(x for x in typing.get_args(hint) if isinstance(x, Codec))
    if hint in _READERS:
        write, read = _READERS[hint]
        return Codec(lambda value: [write(value)], lambda lines: read(lines[0]))
    if hint is np.ndarray:
        return Codec(
            write=lambda value: [[str(v) for v in value.tolist()]],
            read=lambda lines: np.array([int(w) for w in lines[0]], dtype=np.int64),
        )
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and inner:
        if typing.get_origin(inner[0]) is tuple:
            return _records(typing.get_args(inner[0]))
        if inner[-1] is Ellipsis or len(set(inner)) == 1:
            return Codec(
                write=lambda value: [[str(v) for v in value]],
                read=lambda lines: tuple(inner[0](w) for w in lines[0]),
            )
    raise TypeError(
        f"no text form for a field of type {hint}; use int, bool, str, tuple of these, "
        "tuple of records, a 1-d array, or cell, grid or choice from envs.state"
    )


# Annotation -> (value to words, words to value); a str may hold several words.
_READERS: dict[Any, tuple[Callable[[Any], Words], Callable[[Words], Any]]] = {
    bool: (lambda value: ["yes" if value else "no"], lambda words: words == ["yes"]),
    int: (lambda value: [str(value)], lambda words: int(words[0])),
    str: (lambda value: str(value).split(), " ".join),
}


def _records(columns: tuple[Any, ...]) -> Codec:
    """A tuple of flat records of int and one-word str, one line each."""
    if columns[-1] is Ellipsis:
        return Codec(
            write=lambda value: [[str(v) for v in record] for record in value],
            read=lambda lines: tuple(tuple(columns[0](w) for w in x) for x in lines),
        )
    return Codec(
        write=lambda value: [[str(v) for v in record] for record in value],
        read=lambda lines: tuple(
            tuple(kind(word) for kind, word in zip(columns, line, strict=True))
            for line in lines
        ),
    )


_CODECS: dict[type, dict[str, Codec]] = {}


def _codecs(kind: type) -> dict[str, Codec]:
    """Visible field -> codec with its key filled in; derived once for each class."""
    if kind not in _CODECS:
        hints = typing.get_type_hints(kind, include_extras=True)
        _CODECS[kind] = {
            name: dataclasses.replace(codec, key=codec.key or name)
            for name in hints
            if not name.startswith("_") and name not in BOOKKEEPING
            for codec in [_codec_of(hints[name])]
        }
    return _CODECS[kind]


def dump(state: State) -> str:
    """Returns the visible state as lines of words; `load` reads it back."""
    lines = []
    for name, codec in _codecs(type(state)).items():
        for words in codec.write(getattr(state, name)):
            lines.append(" ".join([codec.key, *words]))
    return "\n".join(lines)


def load(kind: type[S], text: str) -> S:
    """Builds a state from the text of `dump`; hidden fields take their defaults.

    Raises:
        ValueError: if a line belongs to no field or a value does not fit.
    """
    lines: dict[str, list[Words]] = {}
    for line in text.splitlines():
        key, *words = line.split()
        lines.setdefault(key, []).append(words)
    codecs = _codecs(kind)
    if unknown := lines.keys() - {codec.key for codec in codecs.values()}:
        raise ValueError(f"state lines {sorted(unknown)} belong to no field of {kind}")
    values = {
        name: codec.read(lines.get(codec.key, [])) for name, codec in codecs.items()
    }
    return kind(**values)


def clone(state: S) -> S:
    """Returns an independent copy; immutable values are shared."""
    twin = copy.copy(state)
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if isinstance(value, np.ndarray):
            setattr(twin, field.name, value.copy())
        elif not isinstance(value, (int, str, tuple, frozenset, type(None))):
            setattr(twin, field.name, copy.deepcopy(value))
    return twin


def fingerprint(state: State, goal: str) -> bytes:
    """Returns 16 bytes that identify the instance: hidden fields and goal included."""
    digest = blake2b(goal.encode(), digest_size=16)
    for field in dataclasses.fields(state):
        if field.name not in BOOKKEEPING:
            value = getattr(state, field.name)
            if isinstance(value, np.ndarray):
                value = (value.shape, value.astype(np.int64).tolist())
            elif isinstance(value, (set, frozenset)):
                value = sorted(value)
            digest.update(f"/{field.name}={value!r}".encode())
    return digest.digest()
