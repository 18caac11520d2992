"""Strict readers of a saved curriculum: a wrong state must stop a run, not bend it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from aes_hdc.errors import UserError


@contextmanager
def as_user_error() -> Iterator[None]:
    """Turns a complaint about a value read from a file into one for the user."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise UserError(
            f"curriculum state: {error}; restore another checkpoint"
        ) from error


def check_keys(data: Any, keys: Sequence[str], where: str) -> None:
    """Raises UserError unless `data` is a mapping with exactly these keys."""
    if not isinstance(data, Mapping):
        raise UserError(f"{where}: {type(data).__name__} given, an object is needed")
    missing, unknown = sorted(set(keys) - set(data)), sorted(set(data) - set(keys))
    if missing or unknown:
        raise UserError(
            f"{where}: missing {missing}, unknown {unknown}; "
            f"it has exactly {sorted(keys)}"
        )


def check_header(data: Any, keys: Sequence[str], *, kind: str, schema: int) -> None:
    """Raises UserError unless the object is of this kind and schema."""
    check_keys(data, keys, "curriculum state")
    if (data["kind"], data["schema"]) != (kind, schema):
        raise UserError(
            f"curriculum state is {data['kind']!r}, schema {data['schema']!r}; "
            f"this version reads {kind!r}, schema {schema}: restart in a new folder"
        )


def read_int(value: Any, low: int, high: int | None, where: str) -> int:
    """Returns an integer in [low, high], or raises UserError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UserError(f"{where} is {value!r}; an integer is needed")
    if value < low or (high is not None and value > high):
        top = "unbounded" if high is None else high
        raise UserError(f"{where} is {value}; it must lie in {low}..{top}")
    return value


def read_bool(value: Any, where: str) -> bool:
    """Returns a truth value, or raises UserError."""
    if not isinstance(value, bool):
        raise UserError(f"{where} is {value!r}; true or false is needed")
    return value


def read_targets(data: Any) -> dict[str, int]:
    """Returns the target scale level of every environment, or raises UserError."""
    if not isinstance(data, Mapping):
        raise UserError(
            f"env_targets: {type(data).__name__} given, an object is needed"
        )
    return {
        key: read_int(value, 0, None, f"target of {key}") for key, value in data.items()
    }


def read_groups(data: Any, limit: int, where: str) -> list[tuple[int, int]]:
    """Returns at most `limit` pairs of successes and episodes, or raises UserError."""
    if not isinstance(data, list) or len(data) > limit:
        raise UserError(f"{where}: a list of at most {limit} groups is needed")
    groups = []
    for group in data:
        if not isinstance(group, list) or len(group) != 2:
            raise UserError(f"{where}: {group!r} is no pair of successes and episodes")
        episodes = read_int(group[1], 1, None, where)
        groups.append((read_int(group[0], 0, episodes, where), episodes))
    return groups
