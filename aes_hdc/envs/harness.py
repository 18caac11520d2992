"""What the policy reads: the user message of each turn, put together from its parts.

The first message holds the goal, the legal actions, the rules where the harness shows
them, and the reply format; later ones start with the feedback. Every message ends with
the sections of the harness that describe the current state. A section is one block that
starts with its heading, so each flag adds exactly its own text.
"""

from typing import TYPE_CHECKING, Any

from aes_hdc.envs import actions
from aes_hdc.episode import Harness, Task

if TYPE_CHECKING:
    from aes_hdc.envs.base import VisualEnv

# Reply format -> the instruction line of the first message.
REPLY_FORMATS = {
    "bare": "",
    "answer_tag": "reply with <answer>action</answer> and nothing else",
    "reason_then_answer": "think step by step, then end with <answer>action</answer>",
}
HEADINGS = {
    Harness.RULES: "rules: ",
    Harness.OBSERVATION: "see: ",
    Harness.STATE: "state:\n",
    Harness.HINT: "hint: ",
}
NO_HINT = "none"


def compose(
    env: "VisualEnv[Any]",
    state: Any,
    task: Task,
    *,
    first: bool,
    feedback: str = "",
    reply_format: str = "bare",
) -> str:
    """Returns the user message for one turn.

    Args:
        env: the environment of the task.
        state: what the policy is about to act on.
        task: decides which sections are shown.
        first: whether this opens the episode.
        feedback: the environment's answer to the last reply.
        reply_format: a key of `REPLY_FORMATS`.

    Raises:
        ValueError: if the reply format is unknown.
    """
    if reply_format not in REPLY_FORMATS:
        raise ValueError(f"reply format {reply_format!r} is not in {[*REPLY_FORMATS]}")
    parts = []
    if first:
        parts += [f"goal: {env.goal(state)}", f"say {call(env, state)}"]
        if Harness.RULES in task.harness:
            parts.append(HEADINGS[Harness.RULES] + env.rules(state))
        parts.append(REPLY_FORMATS[reply_format])
    parts.append(feedback)
    if Harness.OBSERVATION in task.harness:
        parts.append(HEADINGS[Harness.OBSERVATION] + env.caption(state))
    if Harness.STATE in task.harness:
        parts.append(HEADINGS[Harness.STATE] + env.dump(state))
    if Harness.HINT in task.harness:
        parts.append(HEADINGS[Harness.HINT] + (env.hint(state) or NO_HINT))
    return "\n".join(part for part in parts if part)


def call(env: "VisualEnv[Any]", state: Any) -> str:
    """Returns the legal actions, and in the plan form how to join them."""
    line = actions.grammar_text(env.grammar(state))
    if state.one and env.spec.turns == "M":
        return f"the whole plan joined by ; from {line}"
    return line
