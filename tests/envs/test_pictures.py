"""Laws of the picture: it shows the visible state, all of it, and nothing else."""

import numpy as np
import pytest

SIZES = (256, 320, 448)


def test_picture_fills_a_canvas_of_any_size(env, level, start):
    for px in (env.spec.levels[level].min_px, *SIZES):
        frame = env.render(start, px)
        assert (frame.shape, frame.dtype) == ((px, px, 3), np.uint8)
        assert frame.std() > 5


def test_drawing_stays_in_the_canvas_and_covers_it(env, level, start):
    px = env.spec.levels[level].min_px
    around = np.full((px + 16, px + 16, 3), 77, np.uint8)
    env.draw(start, around[8:-8, 8:-8])
    inner = around[8:-8, 8:-8].copy()
    around[8:-8, 8:-8] = 77
    assert (around == 77).all()
    assert np.array_equal(inner, env.render(start, px))  # Old content shows nowhere.


def test_picture_changes_exactly_with_the_visible_state(env, level, starts):
    px = env.spec.levels[level].min_px
    frames = {}
    rng = np.random.default_rng(level)

    def look(state):
        frame = env.render(state, px).tobytes()
        assert frames.setdefault(env.dump(state), frame) == frame

    for state in starts:
        other = env.clone(state)
        look(state)
        while not state.over:
            env.step(state, env.oracle_reply(state))
            look(state)
        for _ in range(3):
            if not other.over:
                env.step(other, env.random_reply(other, rng))
                look(other)
    # A field that is asked for and not drawn may tell dumps of equal frames apart only
    # where the goal differs; within one environment's play it cannot change.
    if env.spec.turns != "S":
        assert len(set(frames.values())) >= 0.9 * len(frames)


def test_rejected_reply_leaves_picture_and_dump(env, level, start):
    px = env.spec.levels[level].min_px
    before = (env.dump(start), env.render(start, px).tobytes())
    env.step(start, "zzz")
    assert (env.dump(start), env.render(start, px).tobytes()) == before


def test_instances_look_different(env, level):
    px = env.spec.levels[level].min_px
    frames = {env.render(env.reset(seed, level), px).tobytes() for seed in range(16)}
    assert len(frames) >= 8


@pytest.mark.parametrize("px", [96, 128, 160, 192, 224, 416])
def test_every_multiple_of_32_works(env, px):
    rungs = [k for k, rung in enumerate(env.spec.levels) if rung.min_px <= px]
    for level in {rungs[0], rungs[-1]} if rungs else ():
        assert env.render(env.reset(1, level), px).std() > 5


def test_three_levels_are_legible_on_the_smallest_canvas(env):
    assert sum(rung.min_px == 96 for rung in env.spec.levels) >= 3
