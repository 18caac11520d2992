"""Laws of the oracle: it is pure, speaks the text interface, and wins."""

import pickle

import numpy as np

from aes_hdc import envs
from aes_hdc.envs import actions


def play(env, state):
    """Plays the oracle's next action, asked anew each turn, to the end."""
    while True:
        step = env.step(state, env.oracle_reply(state))
        if step.done:
            return step


def test_solver_wins_through_the_text_parser(env, starts):
    for state in starts:
        for action in env.solve(state):
            assert not state.over
            text = actions.to_text(action)
            assert actions.parse(text, env.grammar(state)) == action
            step = env.step(state, text)
            assert step.valid, step.feedback
            assert step.action == text
        assert (step.reward, step.terminated, step.success) == (1.0, True, True)
        assert step.label == "success"


def test_solver_asked_each_turn_wins_too(env, starts):
    for state in starts:
        assert play(env, state).success


def test_one_reply_can_hold_the_plan(env_id, level):
    env = envs.make(env_id)
    if not env.spec.has_plan:
        assert env.spec.no_plan_reason
        return
    for seed in range(3):
        state = env.reset(seed, level, turns="one")
        step = env.step(state, env.oracle_reply(state))
        assert (step.success, step.reward, step.label) == (True, 1.0, "success")


def test_solver_is_pure(env, start):
    before = pickle.dumps(start)
    first = env.solve(start)
    assert env.solve(start) == first
    env.hint(start)
    env.caption(start)
    env.rules(start)
    env.size(start)
    env.grammar(start)
    env.render(start, 448)
    assert pickle.dumps(start) == before


def test_solver_wins_or_gives_up_from_any_reachable_state(env, level, starts):
    rng = np.random.default_rng(level)
    for state in starts:
        for _ in range(int(rng.integers(1, 5))):
            if not env.step(state, env.random_reply(state, rng)).done:
                continue
            break
        if state.over:
            continue
        plan = env.solve(state)
        assert plan is None or plan  # [] never means failure
        if plan is not None:
            state.budget = state.turn + len(plan)  # The random moves cost turns.
            assert play(env, state).success


def test_answers_beside_the_right_one_are_wrong(env, starts):
    if env.spec.turns != "S":
        return
    for state in starts:
        verb, *values = env.solve(state)[0]
        arg = env.grammar(state)[verb][0]
        options = arg.item.options if isinstance(arg, actions.Rest) else arg.options
        for value in set(options) - {values[0]}:
            trial = env.clone(state)
            step = env.step(trial, actions.to_text((verb, value, *values[1:])))
            assert (step.success, step.reward) == (False, 0.0)
