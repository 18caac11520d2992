"""The closed list of things that can happen in a turn.

A kind says what happened to the board, never which skill it took: annotators must find
abilities in patterns of events, and an event named after one would hand it over.
"""

from aes_hdc.episode import Event

# kind -> what it reports; subject and amount in brackets where they carry meaning.
KINDS = {
    "moved": "the agent or a piece changed place [what moved, cells]",
    "turned": "the agent changed heading [direction]",
    "blocked": "a move had no effect because something was in the way [what]",
    "revisited": "the agent entered a cell it had been in before",
    "came_closer": "the remaining distance to the goal fell [goal, by how much]",
    "went_away": "the remaining distance to the goal grew [goal, by how much]",
    "arrived": "the agent stands on the goal [goal]",
    "passed_by": "the agent went beside something deadly without entering it [what]",
    "fell_in": "the agent entered something deadly [what]",
    "picked": "an object was taken up [object]",
    "dropped": "an object was laid down [object]",
    "placed": "a value, piece or colour was put somewhere [what]",
    "removed": "a value or piece was taken away [what, how many]",
    "toggled": "cells or switches changed state [what, how many]",
    "swapped": "two items changed places [what, distance between them]",
    "reversed": "a run of items was turned around [what, length]",
    "undone": "the last change was taken back [what]",
    "repeated": "the same action was given again with no new effect",
    "waited": "nothing was done on purpose",
    "opponent_moved": "the other player acted [what, how many]",
    "kept_win": "the position after the move is still won [margin]",
    "lost_win": "the position was won and no longer is [margin]",
    "improved": "fewer steps are needed than before [measure, by how much]",
    "worsened": "more steps are needed than before [measure, by how much]",
    "satisfied": "a constraint now holds [which, how many]",
    "broke": "a constraint is now violated [which, how many]",
    "matched": "two things that belong together were paired [what]",
    "mismatched": "two things that differ were paired [what]",
    "revealed": "something hidden was shown [what]",
    "counted": "an answer counted instances correctly [class, how many]",
    "miscounted": "an answer counted instances wrongly [class, signed error]",
    "read_value": "an answer read a mark on a scale correctly [what, value]",
    "misread_value": "an answer read a mark on a scale wrongly [what, signed error]",
    "excluded": "instances of other classes were left out of an answer [class, number]",
    "included_other": "instances of another class were taken into an answer [class]",
    "separated": "shapes that touch or overlap were told apart [what, how many]",
    "merged": "shapes that overlap were taken for one [what, how many]",
    "added_up": "an answer is the exact sum of several parts [what, number of parts]",
    "missed_sum": "an answer differs from the sum of its parts [what, signed error]",
    "located": "an answer named the right cell [what, number of cells to choose from]",
    "chose_neighbour": "an answer named a cell beside the right one [what, distance]",
    "chose_other": "an answer named a wrong option or cell [what, distance]",
    "mirrored": "an answer is right after a reflection [axis]",
    "in_order": "an item stands in its final order [what, how many]",
    "recovered": "a legal action followed a rejected one",
    "rejected": "the reply was no legal action [error code]",
}


def check(event: Event) -> Event:
    """Returns the event; an unknown kind is a bug in the environment."""
    if event.kind not in KINDS:
        raise ValueError(f"event kind {event.kind!r} is not in envs.events.KINDS")
    return event
