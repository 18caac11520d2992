"""The rules of the offline annotator: patterns of events and the ability each shows.

No rule knows an environment: each names kinds of events, how many or how much of them,
and in which order. Subjects occur only where an ability is about them, such as shapes.
"""

from aes_hdc.profiles.annotator import Clue, Rule

# What a class was described by.
BY_SHAPE = ("shape", "colour shape")
BY_COLOUR = ("colour", "colour shape")


def _clue(
    kinds: str, amount: int = 0, *, count: int = 1, subjects: tuple[str, ...] = ()
) -> Clue:
    """Returns a clue; several kinds are separated by spaces."""
    return Clue(tuple(kinds.split()), amount, count, subjects)


_MOVEMENT = (
    Rule(
        "closes in on the goal without a detour",
        "shortest_path_planning",
        (_clue("moved"), _clue("came_closer", 2)),
        without=("went_away", "revisited", "blocked"),
        turns=3,
    ),
    Rule(
        "passes beside a hazard and stays clear of it",
        "obstacle_avoidance",
        (_clue("passed_by", 1), _clue("came_closer arrived")),
        without=("fell_in",),
        turns=2,
    ),
    Rule(
        "covers just the cells between two places",
        "grid_localization",
        (_clue("moved", 2), _clue("came_closer", 2)),
        without=("fell_in", "went_away", "blocked"),
    ),
    Rule(
        "turns toward where the way leads on",
        "egocentric_transformation",
        (_clue("turned"), _clue("improved")),
        without=("worsened",),
        turns=2,
    ),
    Rule(
        "follows its own heading closer after a turn",
        "orientation_recognition",
        (_clue("turned"), _clue("moved"), _clue("came_closer arrived")),
        without=("blocked", "fell_in"),
        turns=3,
        in_order=True,
    ),
)

_SWITCHING = (
    Rule(
        "presses what lowers the number of presses left",
        "parity_modular_reasoning",
        (_clue("toggled"), _clue("improved")),
        without=("worsened",),
    ),
    Rule(
        "leaves a balanced position to the opponent",
        "parity_modular_reasoning",
        (_clue("removed"), _clue("kept_win")),
        without=("lost_win",),
    ),
    Rule(
        "accepts a worse look on the way to the goal",
        "lookahead_search",
        (_clue("toggled"), _clue("broke"), _clue("improved")),
    ),
    Rule(
        "brings the goal nearer press after press",
        "lookahead_search",
        (_clue("toggled", count=2), _clue("improved", 2, count=2)),
        without=("worsened", "repeated"),
        turns=2,
    ),
    Rule(
        "settles several cells with one change",
        "constraint_propagation",
        (_clue("toggled"), _clue("satisfied", 2), _clue("improved")),
        without=("worsened",),
    ),
    Rule(
        "presses a lamp on until its colour is the wanted one",
        "color_identification",
        (_clue("toggled", count=2), _clue("revisited"), _clue("improved", count=2)),
        without=("worsened", "undone"),
        turns=2,
    ),
    Rule(
        "aims at the middle of a pattern",
        "grid_localization",
        (_clue("toggled", 2), _clue("matched", 2), _clue("improved")),
    ),
)

_GAMES = (
    Rule(
        "holds the win whatever the opponent does",
        "adversarial_reasoning",
        (_clue("kept_win"), _clue("opponent_moved")),
        without=("lost_win",),
    ),
    Rule(
        "takes an exact number from a heap",
        "object_counting",
        (_clue("removed", 2), _clue("kept_win")),
    ),
)

_COUNTING = (
    Rule(
        "counts all instances of a class",
        "object_counting",
        (_clue("counted", 2),),
        without=("miscounted",),
    ),
    Rule(
        "leaves out what does not fit the description",
        "attribute_filtering",
        (_clue("excluded", 1), _clue("counted added_up")),
        without=("included_other",),
    ),
    Rule(
        "tells the wanted shape from others",
        "shape_identification",
        (_clue("excluded", 1), _clue("counted", subjects=BY_SHAPE)),
        without=("included_other",),
    ),
    Rule(
        "tells the wanted colour from others",
        "color_identification",
        (_clue("excluded", 1), _clue("counted", subjects=BY_COLOUR)),
        without=("included_other",),
    ),
    Rule(
        "tells apart outlines that overlap",
        "figure_ground_segmentation",
        (_clue("separated", 2),),
        without=("merged",),
    ),
    Rule(
        "counts what is partly hidden by others",
        "occlusion_reasoning",
        (_clue("separated"), _clue("counted")),
        without=("merged",),
    ),
    Rule(
        "adds up several parts exactly",
        "arithmetic_computation",
        (_clue("added_up", 2),),
        without=("missed_sum",),
    ),
)

_READING = (
    Rule(
        "reads a mark against the axis",
        "axis_scale_reading",
        (_clue("read_value", 1),),
        without=("misread_value", "counted"),
    ),
    Rule(
        "finds the wanted rank among values",
        "numeric_ordering",
        (_clue("in_order", 1), _clue("read_value")),
        without=("misread_value",),
    ),
    Rule(
        "finds the item that goes by a drawn name",
        "text_in_image_reading",
        (_clue("located", 2), _clue("read_value")),
        without=("misread_value", "in_order"),
    ),
    Rule(
        "brings several items into their order",
        "numeric_ordering",
        (_clue("swapped reversed"), _clue("in_order", 2)),
    ),
    Rule(
        "exchanges two items that stand wrong",
        "size_comparison",
        (_clue("swapped reversed"), _clue("improved")),
        without=("worsened",),
    ),
    Rule(
        "spends no change on anything else",
        "resource_budgeting",
        (_clue("swapped reversed", count=2), _clue("improved", 2, count=2)),
        without=("worsened", "repeated", "undone", "rejected"),
        turns=2,
    ),
)

_PLACING = (
    Rule(
        "gives a place a value that fits its neighbours",
        "constraint_propagation",
        (_clue("placed"), _clue("satisfied", 1)),
        without=("broke",),
    ),
    Rule(
        "keeps touching regions of different colours",
        "region_topology",
        (_clue("placed"), _clue("satisfied", 2)),
        without=("broke",),
        turns=2,
    ),
    Rule(
        "names the colours in use apart",
        "color_identification",
        (_clue("placed", count=2), _clue("satisfied", 2)),
        without=("rejected", "broke"),
        turns=2,
    ),
)

_SEARCHING = (
    Rule(
        "finds the odd item among many",
        "visual_search",
        (_clue("located", 6),),
        without=("chose_other", "chose_neighbour", "read_value"),
    ),
    Rule(
        "sees the small difference of one item",
        "fine_detail_discrimination",
        (_clue("located", 2), _clue("excluded matched")),
        without=("chose_other", "chose_neighbour", "read_value"),
    ),
    Rule(
        "names the row and column of what it found",
        "grid_localization",
        (_clue("located", 4),),
        without=("chose_other", "chose_neighbour", "mirrored", "read_value"),
    ),
)

_RECOVERY = (
    Rule(
        "mends a rejected reply",
        "error_recovery",
        (_clue("rejected"), _clue("recovered")),
        turns=3,
        in_order=True,
    ),
    Rule(
        "makes good a step in the wrong direction",
        "closed_loop_control",
        (_clue("worsened went_away"), _clue("improved came_closer")),
        turns=2,
        in_order=True,
    ),
)

RULES: tuple[Rule, ...] = (
    *_MOVEMENT,
    *_SWITCHING,
    *_GAMES,
    *_COUNTING,
    *_READING,
    *_PLACING,
    *_SEARCHING,
    *_RECOVERY,
)

# Atoms that mean the same meta-ability; the argument `merge` of `annotate_all`.
MERGE = {rule.atom: rule.ability for rule in RULES}
