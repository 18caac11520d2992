"""Segments of an episode: their form, their checks, and their text form."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

# Labels that would fit any episode of any environment say nothing about one.
TOO_COARSE = frozenset(
    (
        "ability",
        "acting",
        "answering",
        "memory",
        "movement",
        "moving",
        "observation",
        "perception",
        "planning",
        "playing",
        "reasoning",
        "seeing",
        "thinking",
        "understanding",
        "vision",
    )
)
_LABEL = re.compile(r"[a-z0-9][a-z0-9_ '-]{2,79}")
_KEYS = {"first_turn", "last_turn", "ability"}


class AnnotationError(ValueError):
    """A segmentation that cannot be used; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of an episode in which one ability was at work.

    Attributes:
        first_turn: index of its first turn, from 0.
        last_turn: index of its last turn, included.
        label: the atomic ability, lower case.
    """

    first_turn: int
    last_turn: int
    label: str


def check_segments(segments: Sequence[Segment], num_turns: int) -> tuple[Segment, ...]:
    """Returns the segments if they are a sound segmentation.

    Segments stand in order and do not overlap, except that neighbours may share a turn:
    one reply, and so a whole single-turn episode, can show several abilities.

    Raises:
        AnnotationError: if a span is empty, out of order, overlapping or outside the
            episode, if a label is malformed or too coarse, or if an entry repeats.
    """
    previous = 0
    for segment in segments:
        first, last, label = segment.first_turn, segment.last_turn, segment.label
        if not 0 <= first <= last < num_turns:
            raise AnnotationError(
                f"{label!r} spans turns {first}..{last} of an episode of {num_turns}"
            )
        if first < previous:
            raise AnnotationError(
                f"{label!r} begins in turn {first}, before turn {previous}, where the "
                "segment before it ends"
            )
        if not _LABEL.fullmatch(label):
            raise AnnotationError(
                f"{label!r} is no label of 3 to 80 lower-case characters"
            )
        if label in TOO_COARSE:
            raise AnnotationError(
                f"{label!r} is too coarse; name what exactly was done"
            )
        previous = last
    if len(set(segments)) < len(segments):
        raise AnnotationError("the same segment is listed twice")
    return tuple(segments)


def parse_segments(text: str, num_turns: int) -> tuple[Segment, ...]:
    """Reads a JSON list of {"first_turn", "last_turn", "ability"} and checks it.

    Args:
        text: an annotator's answer, untrusted.
        num_turns: turns of the annotated episode.

    Raises:
        AnnotationError: if the text is anything but such a list, or fails a check.
    """
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AnnotationError(f"no JSON: {error}") from error
    if not isinstance(entries, list):
        raise AnnotationError(f"{type(entries).__name__} given, a list is needed")
    segments = []
    for entry in entries:
        if not isinstance(entry, dict) or set(entry) != _KEYS:
            raise AnnotationError(f"an entry has exactly the keys {sorted(_KEYS)}")
        turns = [entry["first_turn"], entry["last_turn"]]
        if not all(type(turn) is int for turn in turns):
            raise AnnotationError(f"turns must be integers, not {turns!r}")
        if not isinstance(entry["ability"], str):
            raise AnnotationError(f"ability must be text, not {entry['ability']!r}")
        label = " ".join(entry["ability"].lower().split())
        segments.append(Segment(turns[0], turns[1], label))
    return check_segments(segments, num_turns)
