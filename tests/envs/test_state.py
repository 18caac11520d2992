from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest

from aes_hdc.envs import state
from aes_hdc.envs.state import State, cell, choice, dump, grid, load

TEXT = """\
row 1 off on
row 2 on on
cost 1 7 8
agent 2 1
facing right
heaps 3 0 1
wanted red disc
taken yes
left 4
thing red 1 2
thing blue 3 4
names a b
bars 5 6"""


@dataclass(slots=True)
class Zoo(State):
    """One field of each kind."""

    lit: Annotated[np.ndarray, grid("off", "on")]
    weights: Annotated[np.ndarray, grid(label="cost")]
    agent: Annotated[tuple[int, int], cell()]
    facing: Annotated[int, choice("up", "right")]
    heaps: tuple[int, ...]
    wanted: str
    taken: bool
    left: int
    thing: tuple[tuple[str, int, int], ...]
    names: tuple[str, ...]
    bars: np.ndarray
    _seen: frozenset[int] = frozenset()


@pytest.fixture
def zoo():
    return Zoo(
        lit=np.array([[0, 1], [1, 1]]),
        weights=np.array([[7, 8]]),
        agent=(1, 0),
        facing=1,
        heaps=(3, 0, 1),
        wanted="red disc",
        taken=True,
        left=4,
        thing=(("red", 1, 2), ("blue", 3, 4)),
        names=("a", "b"),
        bars=np.array([5, 6]),
        _seen=frozenset([9]),
        budget=7,
    )


def test_text_lists_visible_fields_in_order(zoo):
    assert dump(zoo) == TEXT


def test_text_reads_back(zoo):
    twin = load(Zoo, TEXT)
    assert dump(twin) == TEXT
    assert twin.thing == zoo.thing
    assert np.array_equal(twin.lit, zoo.lit)
    assert (twin.budget, twin._seen) == (0, frozenset())


def test_empty_lists_read_back(zoo):
    zoo.thing, zoo.heaps = (), ()
    twin = load(Zoo, dump(zoo))
    assert (twin.thing, twin.heaps) == ((), ())


def test_lines_of_no_field_are_refused():
    with pytest.raises(ValueError, match="fish"):
        load(Zoo, TEXT + "\nfish 3")


def test_a_field_without_a_text_form_says_what_to_use():
    @dataclass(slots=True)
    class Odd(State):
        ratio: float

    with pytest.raises(TypeError, match="use int, bool"):
        dump(Odd(0.5))


def test_clone_copies_arrays(zoo):
    twin = state.clone(zoo)
    twin.lit[0, 0] = 1
    assert zoo.lit[0, 0] == 0
    assert twin.thing is zoo.thing


def test_fingerprint_sees_hidden_fields_and_the_goal_but_no_bookkeeping(zoo):
    first = state.fingerprint(zoo, "win")
    assert state.fingerprint(zoo, "lose") != first
    twin = state.clone(zoo)
    twin.turn, twin.budget, twin._key = 3, 1, 5
    assert state.fingerprint(twin, "win") == first
    twin._seen = frozenset()
    assert state.fingerprint(twin, "win") != first
