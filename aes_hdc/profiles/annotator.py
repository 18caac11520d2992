"""Annotators: from an episode to a sequence of atomic abilities, offline by rules."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from aes_hdc.episode import Episode, Event
from aes_hdc.profiles.parsing import Segment, check_segments


class Annotator(Protocol):
    """Anything that can segment an episode."""

    def annotate(self, episode: Episode) -> Sequence[Segment]:
        """Returns the segments of the episode, in order."""


@dataclass(frozen=True, slots=True)
class Clue:
    """What part of a pattern looks for in the events of a window of turns.

    Attributes:
        kinds: event kinds that count; any of them.
        amount: least total of their absolute amounts; 0 asks for none.
        count: least number of records.
        subjects: subjects that count; any, where empty.
    """

    kinds: tuple[str, ...]
    amount: int = 0
    count: int = 1
    subjects: tuple[str, ...] = ()

    def fits(self, event: Event) -> bool:
        """Whether the event counts for this clue."""
        return event.kind in self.kinds and (
            not self.subjects or event.subject in self.subjects
        )

    def holds(self, events: Sequence[Event]) -> bool:
        """Whether the events have enough records and amount."""
        found = [event for event in events if self.fits(event)]
        return len(found) >= self.count and (
            sum(abs(event.amount) for event in found) >= self.amount
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern of events that shows an atomic ability.

    Attributes:
        atom: the atomic ability, a phrase of its own.
        ability: the meta-ability it belongs to.
        clues: all of them must hold in one window.
        without: event kinds that must not occur in the window.
        turns: longest window, in turns.
        in_order: whether the clues' first records must follow one another.
    """

    atom: str
    ability: str
    clues: tuple[Clue, ...]
    without: tuple[str, ...] = ()
    turns: int = 1
    in_order: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError at a rule that one lone event kind would satisfy."""
        records = sum(clue.count for clue in self.clues)
        if records < 2 and not any(clue.amount > 0 for clue in self.clues):
            raise ValueError(f"rule {self.atom!r} needs two records or an amount")

    def holds(self, events: Sequence[Event]) -> bool:
        """Whether the pattern is in these events."""
        if any(event.kind in self.without for event in events):
            return False
        if not all(clue.holds(events) for clue in self.clues):
            return False
        return not self.in_order or self._is_ordered(events)

    def _is_ordered(self, events: Sequence[Event]) -> bool:
        """Whether the clues can be met by records that follow one another."""
        rest = iter(events)
        return all(any(clue.fits(event) for event in rest) for clue in self.clues)

    def shifted(self, by: int) -> "Rule":
        """Returns a stricter (by > 0) or looser (by < 0) variant of the rule."""
        clues = tuple(
            replace(clue, amount=max(1, clue.amount + by)) if clue.amount else clue
            for clue in self.clues
        )
        # A window of one turn is what a pattern within a reply means; it stays.
        turns = max(2, self.turns - by) if self.turns > 1 else 1
        return replace(self, clues=clues, turns=turns)


class RuleAnnotator:
    """Finds patterns of events; reads neither ids nor texts nor pictures."""

    def __init__(self, rules: Sequence[Rule], *, shift: int = 0) -> None:
        """Takes the rules, every amount and window shifted toward strict or loose.

        Args:
            rules: with distinct atoms; their order settles the order within a turn.
            shift: added to every amount and taken off every window of several turns.
                Annotating once with 0 and once with another shift shows which abilities
                hang on where the lines were drawn.
        """
        atoms = [rule.atom for rule in rules]
        if len(set(atoms)) < len(atoms):
            raise ValueError(f"atoms of rules repeat: {sorted(atoms)}")
        self.rules = tuple(rule.shifted(shift) for rule in rules)

    def annotate(self, episode: Episode) -> tuple[Segment, ...]:
        """Returns the segments of the episode, in order."""
        turns = [turn.events for turn in episode.turns]
        found = []
        for order, rule in enumerate(self.rules):
            for first, last in _windows(rule, turns):
                found.append((last, first, order, rule.atom))
        segments: list[Segment] = []
        for last, first, _, atom in sorted(found):
            # A longer pattern begins where the segment before it ended.
            begin = max(first, segments[-1].last_turn) if segments else first
            segments.append(Segment(begin, last, atom))
        return check_segments(segments, len(turns))


def _windows(rule: Rule, turns: Sequence[Sequence[Event]]) -> Iterable[tuple[int, int]]:
    """Yields the shortest windows, one after another, in which the rule holds."""
    start = 0
    for last in range(len(turns)):
        for first in range(last, max(start, last - rule.turns + 1) - 1, -1):
            if rule.holds(
                [event for turn in turns[first : last + 1] for event in turn]
            ):
                yield first, last
                start = last + 1
                break


@dataclass(frozen=True, slots=True)
class Annotated:
    """What aggregation keeps of an annotated episode.

    Attributes:
        env_id: the environment.
        instance: seed and scale level.
        policy: who played.
        success: whether the task was solved.
        abilities: meta-abilities in the order of their segments; may repeat.
    """

    env_id: str
    instance: tuple[int, int]
    policy: str
    success: bool
    abilities: tuple[str, ...]


def annotate_all(
    episodes: Iterable[Episode], annotator: Annotator, merge: Mapping[str, str]
) -> list[Annotated]:
    """Annotates episodes and merges synonymous atoms into meta-abilities.

    Args:
        episodes: what was played; those that ended in an environment error are left
            out.
        annotator: cuts them into segments.
        merge: atom -> meta-ability; an atom that is not in it stands for itself.

    Raises:
        AnnotationError: if a segmentation fails its checks.
    """
    out = []
    for episode in episodes:
        if episode.label == "env_error":
            continue
        segments = check_segments(annotator.annotate(episode), len(episode.turns))
        task = episode.task
        out.append(
            Annotated(
                task.env_id,
                (task.seed, task.level),
                episode.policy,
                episode.success,
                tuple(merge.get(segment.label, segment.label) for segment in segments),
            )
        )
    return out
