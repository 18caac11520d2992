"""What a hint says, worked by hand."""

import pytest

from aes_hdc.envs.actions import Choice, Int
from aes_hdc.envs.hints import Cue, default_cue


def anything(action):
    return True


@pytest.mark.parametrize(
    ("right", "coin", "text"),
    [
        (1, 0, "1 or 2"),
        (1, 1, "1 or 2"),
        (3, 0, "2 or 3"),
        (3, 1, "3 or 4"),
        (5, 0, "4 or 5"),
        (5, 1, "4 or 5"),
    ],
)
def test_a_number_stands_beside_a_neighbour(right, coin, text):
    cue = default_cue({"answer": (Int(1, 5),)}, ("answer", right), anything, coin)
    assert cue.text == text
    assert cue.options[0] == ("answer", right)
    assert cue.options[1][1] in (right - 1, right + 1)


def test_among_several_verbs_the_verb_is_named():
    grammar = {"turn": (Choice("left", "right"),), "forward": ()}
    cue = default_cue(grammar, ("turn", "left"), anything, 0)
    assert cue == Cue("use turn", (("turn", "left"), ("turn", "right")))


def test_of_few_choices_one_is_ruled_out():
    grammar = {"answer": (Choice("red", "green", "blue"),)}
    cue = default_cue(grammar, ("answer", "red"), anything, 0)
    assert cue == Cue("not green", (("answer", "red"), ("answer", "blue")))


def test_no_hint_where_only_the_right_action_is_legal():
    grammar = {"answer": (Int(1, 5),)}
    right = ("answer", 3)
    assert default_cue(grammar, right, lambda action: action == right, 0) == Cue()


def test_a_neighbour_that_is_not_legal_is_not_offered():
    # 2 or 3 would give 3 away, and so would ruling out one number.
    grammar = {"answer": (Int(1, 5),)}
    legal = {("answer", 3), ("answer", 5)}
    cue = default_cue(grammar, ("answer", 3), legal.__contains__, 0)
    assert cue == Cue("not 4", (("answer", 3), ("answer", 5)))
