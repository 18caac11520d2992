import dataclasses
import tomllib
from importlib import resources

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aes_hdc.envs import events
from aes_hdc.episode import Episode, Event, Observation, Task, Turn
from aes_hdc.profiles.annotator import (
    Annotated,
    Clue,
    Rule,
    RuleAnnotator,
    annotate_all,
)
from aes_hdc.profiles.parsing import AnnotationError, Segment, check_segments
from aes_hdc.profiles.rules import MERGE, RULES


def play(*turns, label="success", policy="weak", env_id="any"):
    """An episode whose turns hold (kind, amount) or (kind, subject, amount)."""
    labels = ["running"] * (len(turns) - 1) + [label]
    made = [
        Turn(
            Observation("", None),
            "",
            "",
            "ok",
            0.0,
            True,
            state,
            tuple(Event(r[0], r[1] if len(r) > 2 else "", r[-1]) for r in records),
        )
        for records, state in zip(turns, labels, strict=True)
    ]
    return Episode(Task(env_id, seed=3, level=1), made, policy)


def abilities_in(*turns, shift=0):
    segments = RuleAnnotator(RULES, shift=shift).annotate(play(*turns))
    return {MERGE[segment.label] for segment in segments}


def test_rules_name_known_kinds_and_demand_a_pattern():
    for rule in RULES:
        named = {kind for clue in rule.clues for kind in clue.kinds} | set(rule.without)
        assert named <= set(events.KINDS), rule.atom
        records = sum(clue.count for clue in rule.clues)
        assert records >= 2 or any(clue.amount for clue in rule.clues), rule.atom


def test_rules_name_abilities_of_the_vocabulary():
    text = resources.files("aes_hdc").joinpath("abilities.toml").read_text("utf-8")
    vocabulary = {name for group in tomllib.loads(text).values() for name in group}
    assert set(MERGE.values()) <= vocabulary


def test_no_single_kind_without_an_amount_shows_anything():
    for kind in events.KINDS:
        assert not abilities_in([(kind, 0)])


@pytest.mark.parametrize(
    "rule",
    [{"clues": (Clue(("moved",)),)}, {"clues": ()}],
)
def test_a_lone_kind_makes_no_rule(rule):
    with pytest.raises(ValueError, match="two records"):
        Rule("x", "y", **rule)


def test_atoms_are_distinct():
    with pytest.raises(ValueError, match="repeat"):
        RuleAnnotator([RULES[0], RULES[0]])


# What an episode of each kind of environment can show.
@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        (
            [
                [("moved", 1), ("came_closer", 1)],
                [("moved", 2), ("came_closer", 2), ("passed_by", 1), ("arrived", 0)],
            ],
            {"shortest_path_planning", "obstacle_avoidance", "grid_localization"},
        ),
        ([[("moved", 2), ("fell_in", 2)]], set()),
        (
            [
                [("turned", 1), ("improved", 1)],
                [("moved", 1), ("came_closer", 1), ("passed_by", 1)],
                [("moved", 1), ("came_closer", 1), ("arrived", 0)],
            ],
            {
                "egocentric_transformation",
                "orientation_recognition",
                "obstacle_avoidance",
                "shortest_path_planning",
            },
        ),
        (
            [
                [("toggled", 3), ("improved", 1), ("broke", 2), ("satisfied", 1)],
                [("toggled", 3), ("improved", 1), ("satisfied", 3)],
            ],
            {"parity_modular_reasoning", "lookahead_search", "constraint_propagation"},
        ),
        (
            [
                [("toggled", 3), ("improved", 1), ("matched", 3)],
                [("toggled", 3), ("improved", 0), ("matched", 3), ("revisited", 0)],
            ],
            {"parity_modular_reasoning", "grid_localization", "color_identification"},
        ),
        ([[("toggled", 3), ("worsened", 1), ("satisfied", 3)]], set()),
        (
            [[("counted", "shape", 3), ("excluded", "other", 2)]],
            {"object_counting", "attribute_filtering", "shape_identification"},
        ),
        ([[("miscounted", -1), ("excluded", "square", 2)]], set()),
        (
            [[("separated", 4), ("counted", 4)]],
            {"object_counting", "figure_ground_segmentation", "occlusion_reasoning"},
        ),
        (
            [[("counted", "colour", 2), ("excluded", "other", 2), ("added_up", 2)]],
            {
                "object_counting",
                "arithmetic_computation",
                "attribute_filtering",
                "color_identification",
            },
        ),
        (
            [[("removed", 2), ("kept_win", 1), ("opponent_moved", 1)]],
            {"parity_modular_reasoning", "adversarial_reasoning", "object_counting"},
        ),
        (
            [[("read_value", 7), ("located", 3), ("excluded", 2), ("in_order", 1)]],
            {"axis_scale_reading", "numeric_ordering"},
        ),
        (
            [[("read_value", 7), ("located", 3), ("excluded", 2)]],
            {"axis_scale_reading", "text_in_image_reading"},
        ),
        (
            [
                [("swapped", 1), ("improved", 1), ("in_order", 2)],
                [("swapped", 1), ("improved", 1), ("in_order", 3)],
            ],
            {"size_comparison", "numeric_ordering", "resource_budgeting"},
        ),
        (
            [[("placed", 0), ("satisfied", 1)], [("placed", 0), ("satisfied", 2)]],
            {"constraint_propagation", "region_topology", "color_identification"},
        ),
        (
            [[("located", 9), ("excluded", 8)]],
            {"visual_search", "fine_detail_discrimination", "grid_localization"},
        ),
        ([[("rejected", 0)], [("recovered", 0)]], {"error_recovery"}),
        ([[("went_away", 1)], [("came_closer", 1)]], {"closed_loop_control"}),
        ([[("came_closer", 1)], [("went_away", 1)]], set()),
    ],
)
def test_patterns_show_the_abilities_they_should(turns, expected):
    assert abilities_in(*turns) == expected


def test_window_is_the_shortest_that_holds():
    rule = Rule("a b", "x", (Clue(("moved",)), Clue(("picked",))), turns=3)
    turns = [[("moved", 1)], [("moved", 1)], [("picked", 1)], [("picked", 1)]]
    segments = RuleAnnotator([rule]).annotate(play(*turns))
    assert segments == (Segment(1, 2, "a b"),)


def test_window_does_not_reach_over_its_length():
    rule = Rule("a b", "x", (Clue(("moved",)), Clue(("picked",))), turns=2)
    assert (
        RuleAnnotator([rule]).annotate(play([("moved", 1)], [], [("picked", 1)])) == ()
    )


def test_records_in_order_need_a_record_each():
    rule = Rule("a b", "x", (Clue(("moved",)), Clue(("moved",), 2)), in_order=True)
    annotator = RuleAnnotator([rule])
    assert annotator.annotate(play([("moved", 2)])) == ()
    assert len(annotator.annotate(play([("moved", 1), ("moved", 1)]))) == 1


def test_a_stricter_pass_finds_a_part_of_what_the_plain_one_finds():
    near = [[("counted", "circle", 2), ("excluded", "square", 1)]]
    far = [[("counted", "circle", 5), ("excluded", "square", 4)]]
    assert abilities_in(*near, shift=1) < abilities_in(*near)
    assert (
        abilities_in(*far, shift=1)
        == abilities_in(*far)
        == abilities_in(*far, shift=-1)
    )


_records = st.tuples(st.sampled_from(sorted(events.KINDS)), st.integers(-4, 9))
_turns = st.lists(st.lists(_records, max_size=5), min_size=1, max_size=6)


@hypothesis.settings(deadline=None)
@given(_turns, st.integers(-2, 2))
def test_segmentations_of_any_episode_are_sound(turns, shift):
    annotator = RuleAnnotator(RULES, shift=shift)
    segments = annotator.annotate(play(*turns))
    assert check_segments(segments, len(turns)) == segments
    assert annotator.annotate(play(*turns)) == segments


@hypothesis.settings(deadline=None)
@given(_turns)
def test_ids_texts_and_outcome_are_not_read(turns):
    episode = play(*turns)
    other = Episode(
        dataclasses.replace(episode.task, env_id="another"),
        [
            dataclasses.replace(t, reply="x", feedback="y", action="z")
            for t in episode.turns
        ],
        "strong",
    )
    annotator = RuleAnnotator(RULES)
    assert annotator.annotate(episode) == annotator.annotate(other)


def test_annotating_all_merges_atoms_and_leaves_out_broken_environments():
    good = play([("counted", 3)], policy="strong", env_id="count")
    broken = play([("counted", 3)], label="env_error")
    got = annotate_all([good, broken], RuleAnnotator(RULES), MERGE)
    assert got == [Annotated("count", (3, 1), "strong", True, ("object_counting",))]


def test_an_unsound_annotator_is_caught():
    class Coarse:
        def annotate(self, episode):
            return [Segment(0, 0, "perception")]

    with pytest.raises(AnnotationError, match="coarse"):
        annotate_all([play([])], Coarse(), {})
