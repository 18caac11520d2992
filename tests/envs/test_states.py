"""Laws of the state: clones, text form, replay."""

import pickle

import numpy as np

from aes_hdc import envs


def walk(env, state, rng, limit=4):
    """A few random legal replies; returns the texts that were played."""
    texts = []
    while len(texts) < limit and not state.over:
        texts.append(env.random_reply(state, rng))
        env.step(state, texts[-1])
    return texts


def test_stepping_a_clone_leaves_the_original(env, level, starts):
    for state in starts[:3]:
        before = pickle.dumps(state)
        twin, copy = env.clone(state), pickle.loads(before)
        texts = walk(env, twin, np.random.default_rng(level))
        assert pickle.dumps(state) == before
        for text in texts:
            env.step(copy, text)
        assert env.dump(copy) == env.dump(twin)
        assert copy.over == twin.over


def test_replay_gives_the_same_steps(env_id, level):
    def record(texts):
        env = envs.make(env_id)
        state = env.reset(3, level)
        steps = [env.step(state, text) for text in texts]
        return steps, env.dump(state)

    env = envs.make(env_id)
    texts = walk(env, env.reset(3, level), np.random.default_rng(level))
    assert record(texts) == record(texts)


def test_load_reads_what_dump_writes(env, level, starts):
    px = env.spec.levels[level].min_px
    for state in starts:
        text = env.dump(state)
        twin = env.load(text)
        assert env.dump(twin) == text
        assert np.array_equal(env.render(twin, px), env.render(state, px))
        for method in (env.goal, env.caption, env.rules):
            assert method(twin) == method(state)
        assert env.grammar(twin) == env.grammar(state)
        assert len(env.solve(twin)) == len(env.solve(state))


def test_the_oracle_wins_on_the_visible_state(env, starts):
    for state in starts[:4]:
        twin = env.load(env.dump(state))
        while not twin.over:
            step = env.step(twin, env.oracle_reply(twin))
        assert step.success


def test_dump_is_plain_and_hides_the_bookkeeping(env, starts):
    for state in starts:
        text = env.dump(state)
        assert text.isascii()
        assert text == text.lower()
        before = text
        state.budget += 3
        state.turn += 1
        state.bad += 1
        assert env.dump(state) == before
