import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aes_hdc.envs import actions
from aes_hdc.envs.actions import Choice, Int, RejectedError, Rest

GRAMMAR = {
    "move": (Choice("up", "down"), Int(1, 4, default=1)),
    "press": (Int(1, 3, name="row"), Int(1, 3, name="column")),
    "take": (Rest(Int(-2, 9), 2, 3),),
    "submit": (),
}


def read(text, **kwargs):
    return [actions.parse(part, GRAMMAR) for part in actions.clauses(text, **kwargs)]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("move up", [("move", "up", 1)]),
        ("MOVE Down 3.", [("move", "down", 3)]),
        ("press 1 3", [("press", 1, 3)]),
        ("press(row 1, column 3)", [("press", 1, 3)]),
        ("press row 1 3", [("press", 1, 3)]),
        ("take -2 +4 09", [("take", -2, 4, 9)]),
        ("['submit']", [("submit",)]),
        ("move up; submit;", [("move", "up", 1), ("submit",)]),
        ("<answer>move up</answer>", [("move", "up", 1)]),
        ("<answer>submit</answer> no, <answer>move up</answer>", [("move", "up", 1)]),
        ("<answer>submit</answer> or <answer>move", [("submit",)]),
        ("<answer><answer>submit</answer></answer>", [("submit",)]),
        ("<think><answer>submit</answer></think>move up", [("move", "up", 1)]),
        ("so \\boxed{press 2 2} it is", [("press", 2, 2)]),
        ("I see.\nFinal answer: move down 2", [("move", "down", 2)]),
    ],
)
def test_replies_are_read(text, want):
    assert read(text) == want


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        ("", "NO_ANSWER", "the reply is empty"),
        ("<answer> ; </answer>", "NO_ANSWER", "the reply is empty"),
        (
            "<answer>move up",
            "NO_ANSWER",
            "put the action between <answer> and </answer>",
        ),
        ("fly up", "UNKNOWN_ACTION", "fly is no action"),
        ("move", "MISSING_ARG", "move needs up|down"),
        ("press 1", "MISSING_ARG", "press needs column 1-3"),
        ("take 4", "MISSING_ARG", "take needs -2 to 9 x2-3"),
        ("move up 1 2", "TOO_MANY_ARGS", "2 is one word too many"),
        ("take 1 2 3 4", "TOO_MANY_ARGS", "take takes at most 3 values"),
        ("move left", "BAD_VALUE", "left is no choice"),
        ("move up 5", "BAD_VALUE", "5 is not 1 to 4"),
        ("move up \u0663", "BAD_VALUE", "? is not 1 to 4"),
        ("press 1 1.5", "BAD_VALUE", "1.5 is not 1 to 3"),
        ("press 1 " + "9" * 99, "BAD_VALUE", "9" * 38 + ".. is not 1 to 3"),
    ],
)
def test_rejections_say_why(text, code, reason):
    with pytest.raises(RejectedError) as caught:
        read(text)
    assert (caught.value.code, caught.value.reason) == (code, reason)


def test_strict_reads_only_a_tag():
    assert read("<answer>submit</answer>", strict=True) == [("submit",)]
    for text in ("submit", "\\boxed{submit}", "final answer: submit"):
        with pytest.raises(RejectedError, match="NO_ANSWER"):
            actions.clauses(text, strict=True)


def test_grammar_line_shows_names_ranges_and_defaults():
    line = actions.grammar_text(GRAMMAR)
    assert line == (
        "move up|down [1-4] or press row 1-3 column 1-3 or take -2 to 9 x2-3 or submit"
    )


@given(st.integers(0, 2**32))
def test_drawn_actions_parse_back(seed):
    action = actions.sample(GRAMMAR, np.random.default_rng(seed))
    assert actions.parse(actions.to_text(action), GRAMMAR) == action
    wrapped = f"Well. <ANSWER>{actions.to_text(action).upper()}.</ANSWER>"
    assert read(wrapped) == [action]


@given(st.text())
def test_any_text_is_read_or_rejected(text):
    try:
        found = read(text)
    except RejectedError as error:
        feedback = actions.rejection(error, GRAMMAR)
        assert feedback.isascii()
        assert len(feedback) <= actions.FEEDBACK_LIMIT
        assert feedback.endswith(actions.grammar_text(GRAMMAR))
    else:
        assert all(action[0] in GRAMMAR for action in found)


@given(
    st.lists(st.sampled_from(["move", "up", "1", "press", "row", "take", "-2", ";"]))
)
def test_near_misses_are_read_or_rejected(parts):
    try:
        found = read(" ".join(parts))
    except RejectedError as error:
        actions.rejection(error, GRAMMAR)
    else:
        for action in found:
            assert actions.parse(actions.to_text(action), GRAMMAR) == action


def test_every_lists_all_well_typed_actions():
    found = list(actions.every(GRAMMAR))
    assert len(found) == len(set(found)) == 2 * 4 + 3 * 3 + 12 * 12 + 1


def test_choices_are_single_lower_case_words():
    with pytest.raises(ValueError, match="lower-case"):
        Choice("Up")
