import json

import pytest

from aes_hdc.profiles.parsing import (
    AnnotationError,
    Segment,
    check_segments,
    parse_segments,
)


def test_neighbours_may_share_a_turn():
    segments = (
        Segment(0, 0, "one thing"),
        Segment(0, 1, "another"),
        Segment(1, 2, "two"),
    )
    assert check_segments(segments, 3) == segments


@pytest.mark.parametrize(
    ("segments", "fault"),
    [
        ([Segment(1, 0, "abc")], "spans turns"),
        ([Segment(0, 3, "abc")], "spans turns"),
        ([Segment(-1, 0, "abc")], "spans turns"),
        ([Segment(0, 2, "abc"), Segment(1, 2, "abd")], "begins in turn 1"),
        ([Segment(1, 1, "abc"), Segment(0, 0, "abd")], "begins in turn 0"),
        ([Segment(0, 0, "perception")], "coarse"),
        ([Segment(0, 0, "")], "no label"),
        ([Segment(0, 0, "Upper case")], "no label"),
        ([Segment(0, 0, "<b>bold</b>")], "no label"),
        ([Segment(0, 0, "a" * 81)], "no label"),
        ([Segment(0, 0, "abc"), Segment(0, 0, "abc")], "twice"),
    ],
)
def test_unsound_segmentations_are_refused(segments, fault):
    with pytest.raises(AnnotationError, match=fault):
        check_segments(segments, 3)


def test_text_form_is_read():
    entry = {"first_turn": 0, "last_turn": 1, "ability": " Reading  the axis "}
    got = parse_segments(json.dumps([entry]), 2)
    assert got == (Segment(0, 1, "reading the axis"),)
    assert parse_segments("[]", 1) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "here is the list: []",
        "{}",
        "[1]",
        '[{"first_turn": 0, "last_turn": 0}]',
        '[{"first_turn": 0, "last_turn": 0, "ability": "abc", "score": 10}]',
        '[{"first_turn": 0.0, "last_turn": 0, "ability": "abc"}]',
        '[{"first_turn": true, "last_turn": 1, "ability": "abc"}]',
        '[{"first_turn": 0, "last_turn": 0, "ability": null}]',
        "[" * 100_000,
    ],
)
def test_other_text_is_refused(text):
    with pytest.raises(AnnotationError):
        parse_segments(text, 2)
