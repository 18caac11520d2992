from itertools import combinations

import numpy as np
import pytest

from aes_hdc.envs import draw
from aes_hdc.envs.draw import Layer, Tile


def lab(colour):
    """CIE 1976 coordinates of a palette colour under D65."""
    linear = np.array(draw.PALETTE[colour]) / 255
    linear = np.where(
        linear > 0.04045, ((linear + 0.055) / 1.055) ** 2.4, linear / 12.92
    )
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    ratio = to_xyz @ linear / [0.9505, 1.0, 1.089]
    root = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array(
        [116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])]
    )


@pytest.mark.parametrize("pair", list(combinations(draw.PALETTE, 2)))
def test_palette_colours_are_far_apart(pair):
    """Twenty-five units; just noticeable is two."""
    assert np.linalg.norm(lab(pair[0]) - lab(pair[1])) >= 25


def test_tiles_fill_the_frame_edge_to_edge():
    out = np.full((96, 96, 3), 7, np.uint8)
    grid = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 1]])
    place = draw.tiles(out, grid, (Tile("red", edge=""), Tile("blue", edge="")))
    assert (place.top, place.left, place.cell) == (0, 0, 32)
    for row in range(3):
        for column in range(3):
            block = out[32 * row : 32 * row + 32, 32 * column : 32 * column + 32]
            assert (block == draw.rgb(["red", "blue"][grid[row, column]])).all()


def test_numbers_need_a_large_frame():
    grid, sprites = np.zeros((4, 4), int), (Tile("green"),)
    small, large = np.zeros((96, 96, 3), np.uint8), np.zeros((256, 256, 3), np.uint8)
    assert draw.tiles(small, grid, sprites, numbers=True).top == 0
    place = draw.tiles(large, grid, sprites, numbers=True)
    assert place.top == place.left == 16
    assert (large[:16] != 255).any()  # The glyphs of the column numbers.


@pytest.mark.parametrize("shape", sorted(draw.SHAPES))
def test_shapes_are_centred_and_inside_their_square(shape):
    cover = draw.mask(shape, 32)
    assert cover.shape == (32, 32)
    assert 0.1 < cover.mean() / 255 <= 1
    hollow = draw.mask(shape, 32, 0.0, 0.6)
    assert 0 < hollow.sum() < cover.sum()
    half_turn = draw.mask(shape, 32, 180.0)[::-1, ::-1].astype(int)
    assert np.abs(half_turn - cover).mean() < 12  # One edge pixel on some sides.


def test_a_tile_layer_turns_clockwise():
    up, right = (
        draw._paint(Tile("white", (Layer("arrow", "blue", 0.9, angle),), ""), 24)
        for angle in (0.0, 90.0)
    )
    difference = np.abs(np.rot90(up, -1).astype(int) - right).mean()
    assert difference < 6


def test_shapes_are_clipped_at_the_edge():
    out = np.full((64, 64, 3), 255, np.uint8)
    draw.shape(out, "disc", 0, 0, 20, "black")
    draw.shape(out, "disc", 200, 200, 20, "black")
    draw.line(out, (-50, 32), (150, 32), "red", width=4)
    assert (out[0, 0] == draw.rgb("black")).all()
    assert (out[32, 10] == draw.rgb("red")).all()


def test_lines_and_polygons_cover_their_points():
    out = np.full((64, 64, 3), 255, np.uint8)
    draw.polygon(out, [(8, 8), (40, 8), (40, 40), (8, 40)], "green")
    assert (out[10:38, 10:38] == draw.rgb("green")).all()
    assert (out[44:] == 255).all()


@pytest.mark.parametrize("height", [8, 10, 16, 24])
def test_digits_have_the_asked_height(height):
    out = np.full((64, 64, 3), 255, np.uint8)
    draw.text(out, "8", 32, 32, height)
    rows = np.flatnonzero((out < 160).any(axis=(1, 2)))
    assert abs(len(rows) - height) <= 1  # Antialiasing may soften one edge row.
    assert abs((rows[0] + rows[-1]) / 2 - 31.5) <= 1


@pytest.mark.parametrize("value", range(1, 7))
def test_a_die_shows_its_pips(value):
    out = np.full((96, 96, 3), 255, np.uint8)
    draw.die(out, value, 48, 48, 60, pips="red")
    red = (out == draw.rgb("red")).all(axis=2).sum()
    one = np.pi * 6**2
    assert abs(red / one - value) < 0.25 * value  # Edge pixels are blended.
