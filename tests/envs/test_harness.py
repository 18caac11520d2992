import pytest

from aes_hdc import envs
from aes_hdc.episode import Harness, Task

BOARD = "row 1 ice ice gift\nrow 2 hole ice ice\nrow 3 ice ice ice\nagent 1 1"


@pytest.fixture
def lake():
    env = envs.make("frozen_lake")
    return env, env.load(BOARD)


def test_first_message_has_goal_actions_rules_and_help(lake):
    env, state = lake
    text = env.prompt(state, Task("frozen_lake", 0, 0, Harness.ALL), first=True)
    assert text == (
        "goal: reach the gift\n"
        "say move up|right|down|left [1-2]\n"
        f"rules: {env.rules(state)}\n"
        "see: you at row 1 column 1, gift at row 1 column 3, hole next to you down\n"
        f"state:\n{BOARD}\n"
        "hint: right or down"
    )


def test_later_messages_start_with_the_feedback(lake):
    env, state = lake
    task = Task("frozen_lake", 0, 0, Harness.RULES | Harness.HINT)
    text = env.prompt(state, task, first=False, feedback="ok")
    assert text == "ok\nhint: right or down"


def test_plan_form_asks_for_the_plan(lake):
    env, state = lake
    state.one = True
    text = env.prompt(state, Task("frozen_lake", 0, 0), first=True)
    assert "say the whole plan joined by ; from move up|right|down|left [1-2]" in text


def test_unknown_reply_format_is_refused(lake):
    env, state = lake
    with pytest.raises(ValueError, match="bare"):
        env.prompt(state, Task("x", 0, 0), first=True, reply_format="json")
