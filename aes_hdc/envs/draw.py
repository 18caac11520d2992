"""The drawing kit: palette, tiles, shapes, lines and digits on uint8 frames.

Everything is painted at four times its size and reduced, once, and then kept; a frame
is a few array copies. Positions are pixels, y down and x right; shapes are given by
their centre. A board fills the frame edge to edge; row and column numbers appear in a
margin from `NUMBERS_PX` on, where they are asked for.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

PALETTE: dict[str, tuple[int, int, int]] = {
    "red": (220, 25, 30),
    "green": (20, 150, 60),
    "blue": (30, 80, 225),
    "yellow": (250, 215, 0),
    "orange": (255, 130, 0),
    "purple": (135, 35, 175),
    "pink": (255, 140, 195),
    "brown": (125, 70, 25),
    "cyan": (90, 215, 235),
    "gray": (135, 135, 135),
    "black": (20, 20, 20),
    "white": (255, 255, 255),
}
NUMBERS_PX = 192  # frames from here on have room for a margin with numbers
FINE = 4  # painting scale before reduction

Point = tuple[float, float]  # (x, y)


def _star(points: int, inner: float) -> list[Point]:
    """A star's outline on the unit circle, one tip up."""
    radii = [1.0, inner] * points
    return _around(radii)


def _around(radii: Sequence[float], start: float = -90.0) -> list[Point]:
    """Points at equal angles around the origin."""
    turns = [math.radians(start + 360 * i / len(radii)) for i in range(len(radii))]
    return [
        (r * math.cos(t), r * math.sin(t)) for r, t in zip(radii, turns, strict=True)
    ]


def _cross(arm: float) -> list[Point]:
    """A plus sign with arms of half-width `arm`."""
    a = arm
    return [
        (-a, -1), (a, -1), (a, -a), (1, -a), (1, a), (a, a),
        (a, 1), (-a, 1), (-a, a), (-1, a), (-1, -a), (-a, -a),
    ]  # fmt: skip


# Outlines in [-1, 1] squared; all point up where they point anywhere.
SHAPES: dict[str, list[Point]] = {
    "disc": _around([1.0] * 64),
    "square": [(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)],
    "block": [(-1, -1), (1, -1), (1, 1), (-1, 1)],
    "triangle": [(0, -0.95), (0.95, 0.85), (-0.95, 0.85)],
    "arrow": [(0, -1), (0.85, 0.95), (0, 0.5), (-0.85, 0.95)],
    "diamond": [(0, -1), (0.8, 0), (0, 1), (-0.8, 0)],
    "pentagon": _around([1.0] * 5),
    "hexagon": _around([1.0] * 6),
    "star": _star(5, 0.42),
    "spark": _star(4, 0.35),
    "cross": _cross(0.36),
    "bar": [(-1, -0.3), (1, -0.3), (1, 0.3), (-1, 0.3)],
    "heart": [(0, 0.95), (-0.95, -0.1), (-0.9, -0.6), (-0.5, -0.85), (0, -0.45),
              (0.5, -0.85), (0.9, -0.6), (0.95, -0.1)],
    "half": [(-1, 0), (1, 0), (1, 1), (-1, 1)],
}  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """A filled shape on a tile.

    Attributes:
        shape: a key of `SHAPES`.
        colour: a key of `PALETTE`.
        scale: half-width as a share of half the tile, 1 fills it.
        angle: degrees clockwise.
        hollow: share of the shape cut out of its middle; 0 fills it.
    """

    shape: str
    colour: str
    scale: float = 0.7
    angle: float = 0.0
    hollow: float = 0.0


@dataclass(frozen=True)
class Tile:
    """A square picture: a ground colour, an edge line and layers, bottom first.

    Attributes:
        ground: a key of `PALETTE`.
        layers: what lies on it.
        edge: colour of the line around it; empty for none.
    """

    ground: str
    layers: tuple[Layer, ...] = ()
    edge: str = "gray"


@dataclass(frozen=True)
class Board:
    """Where a lattice of square cells lies in a frame, in pixels.

    Attributes:
        top: first pixel row.
        left: first pixel column.
        cell: side of a cell.
        rows: number of rows.
        columns: number of columns.
    """

    top: int
    left: int
    cell: int
    rows: int
    columns: int

    def centre(self, row: float, column: float) -> Point:
        """Returns (x, y) of the middle of a cell, 0-based."""
        half = self.cell / 2
        return self.left + self.cell * column + half, self.top + self.cell * row + half


def rgb(colour: str) -> np.ndarray:
    """Returns a palette colour, [3] uint8."""
    return np.array(PALETTE[colour], np.uint8)


def fill(out: np.ndarray, colour: str) -> None:
    """Paints the whole frame."""
    out[:] = PALETTE[colour]


def rect(
    out: np.ndarray, top: float, left: float, bottom: float, right: float, colour: str
) -> None:
    """Fills rows [top, bottom) and columns [left, right), rounded and clipped."""
    size = out.shape[0]
    y0, x0, y1, x1 = (min(size, max(0, round(v))) for v in (top, left, bottom, right))
    out[y0:y1, x0:x1] = PALETTE[colour]


def board(out: np.ndarray, rows: int, columns: int, *, numbers: bool = False) -> Board:
    """Lays out a board as large as fits; with `numbers` in a margin on large frames.

    The caller paints the ground first: the margin and what is left over keep it.
    """
    size = out.shape[0]
    margin = max(14, size // 16) if numbers and size >= NUMBERS_PX else 0
    cell = (size - margin) // max(rows, columns)
    top = margin + (size - margin - cell * rows) // 2
    left = margin + (size - margin - cell * columns) // 2
    place = Board(top, left, cell, rows, columns)
    if margin:
        height = max(8, min(10 * size // 256, cell - 2))
        for row in range(rows):
            text(out, str(row + 1), left - margin / 2, place.centre(row, 0)[1], height)
        for column in range(columns):
            text(
                out,
                str(column + 1),
                place.centre(0, column)[0],
                top - margin / 2,
                height,
            )
    return place


def tiles(
    out: np.ndarray,
    grid: np.ndarray,
    sprites: Sequence[Tile],
    *,
    ground: str = "white",
    numbers: bool = False,
) -> Board:
    """Paints a board of tiles over the whole frame.

    Args:
        out: [size, size, 3] uint8.
        grid: [rows, columns] int, index into `sprites`.
        sprites: the tiles.
        ground: colour around the board.
        numbers: row and column numbers on frames of `NUMBERS_PX` and more.

    Returns:
        Where the board lies, for painting on top.
    """
    fill(out, ground)
    rows, columns = grid.shape
    place = board(out, rows, columns, numbers=numbers)
    size = place.cell
    blocks = _atlas(tuple(sprites), size)[grid].transpose(0, 2, 1, 3, 4)
    bottom, right = place.top + rows * size, place.left + columns * size
    out[place.top : bottom, place.left : right] = blocks.reshape(
        rows * size, columns * size, 3
    )
    return place


@functools.lru_cache(maxsize=256)
def _atlas(sprites: tuple[Tile, ...], size: int) -> np.ndarray:
    """All sprites at one size, [k, size, size, 3] uint8."""
    return np.stack([_paint(tile, size) for tile in sprites])


@functools.lru_cache(maxsize=4096)
def _paint(tile: Tile, size: int) -> np.ndarray:
    """One tile, painted fine and reduced."""
    picture = Image.new("RGB", (size * FINE, size * FINE), PALETTE[tile.ground])
    pen = ImageDraw.Draw(picture)
    if tile.edge:  # Half a pixel or more a side; two neighbours make the full line.
        width = max(2, size * FINE // 48)
        box = (0, 0, size * FINE - 1, size * FINE - 1)
        pen.rectangle(box, outline=PALETTE[tile.edge], width=width)
    for layer in tile.layers:
        mask = Image.new("L", picture.size, 0)
        points = _outline(layer.shape, size * FINE, layer.scale, layer.angle)
        ImageDraw.Draw(mask).polygon(points, fill=255)
        if layer.hollow:
            scale = layer.scale * layer.hollow
            points = _outline(layer.shape, size * FINE, scale, layer.angle)
            ImageDraw.Draw(mask).polygon(points, fill=0)
        picture.paste(PALETTE[layer.colour], (0, 0), mask)
    return np.asarray(picture.reduce(FINE))


def _outline(shape: str, size: float, scale: float, angle: float) -> list[Point]:
    """A shape's corners inside a square of `size` pixels."""
    half, turn = size / 2, math.radians(angle)
    cos, sin = math.cos(turn) * half * scale, math.sin(turn) * half * scale
    return [
        (half - 0.5 + x * cos - y * sin, half - 0.5 + x * sin + y * cos)
        for x, y in SHAPES[shape]
    ]


@functools.lru_cache(maxsize=4096)
def mask(shape: str, size: int, angle: float = 0.0, hollow: float = 0.0) -> np.ndarray:
    """Returns a shape's coverage, [size, size] uint8, 255 inside.

    Args:
        shape: a key of `SHAPES`.
        size: side of its square, in pixels.
        angle: degrees clockwise.
        hollow: share of the shape cut out of its middle, 0 for none.
    """
    picture = Image.new("L", (size * FINE, size * FINE), 0)
    pen = ImageDraw.Draw(picture)
    pen.polygon(_outline(shape, size * FINE, 1.0, angle), fill=255)
    if hollow:
        pen.polygon(_outline(shape, size * FINE, hollow, angle), fill=0)
    return np.asarray(picture.reduce(FINE))


def stamp(out: np.ndarray, cover: np.ndarray, left: int, top: int, colour: str) -> None:
    """Blends a colour into the frame through a coverage mask, clipped at the edges."""
    height, width = cover.shape
    y0, x0 = max(0, top), max(0, left)
    y1, x1 = min(out.shape[0], top + height), min(out.shape[1], left + width)
    if y0 >= y1 or x0 >= x1:
        return
    alpha = cover[y0 - top : y1 - top, x0 - left : x1 - left, None].astype(np.int32)
    region = out[y0:y1, x0:x1].astype(np.int32)
    target = np.array(PALETTE[colour], np.int32)
    out[y0:y1, x0:x1] = region + ((target - region) * alpha + 127) // 255


def shape(
    out: np.ndarray,
    name: str,
    x: float,
    y: float,
    size: float,
    colour: str,
    *,
    angle: float = 0.0,
    hollow: float = 0.0,
) -> None:
    """Draws a shape of `size` pixels across, centred at (x, y)."""
    side = max(1, round(size))
    cover = mask(name, side, angle, hollow)
    stamp(out, cover, round(x - side / 2), round(y - side / 2), colour)


def polygon(out: np.ndarray, points: Sequence[Point], colour: str) -> None:
    """Fills a polygon of (x, y) corners in pixels."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    left, top = math.floor(min(xs)) - 1, math.floor(min(ys)) - 1
    width, height = math.ceil(max(xs)) + 2 - left, math.ceil(max(ys)) + 2 - top
    picture = Image.new("L", (width * FINE, height * FINE), 0)
    corners = [((x - left) * FINE, (y - top) * FINE) for x, y in points]
    ImageDraw.Draw(picture).polygon(corners, fill=255)
    stamp(out, np.asarray(picture.reduce(FINE)), left, top, colour)


def line(
    out: np.ndarray, start: Point, end: Point, colour: str, *, width: float = 2.0
) -> None:
    """Draws a straight line between two (x, y) points, `width` pixels thick."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = math.hypot(dx, dy) or 1.0
    nx, ny = -dy / length * width / 2, dx / length * width / 2
    corners = [
        (start[0] + nx, start[1] + ny),
        (end[0] + nx, end[1] + ny),
        (end[0] - nx, end[1] - ny),
        (start[0] - nx, start[1] - ny),
    ]
    polygon(out, corners, colour)


@functools.lru_cache(maxsize=4096)
def _glyphs(string: str, height: int) -> np.ndarray:
    """Coverage of a text whose digits are `height` pixels high, cropped."""
    font = ImageFont.load_default(size=height * FINE * 1.4)
    box = font.getbbox(string)
    width = math.ceil((box[2] - box[0]) / FINE) * FINE + FINE
    tall = math.ceil((box[3] - box[1]) / FINE) * FINE
    picture = Image.new("L", (max(FINE, int(width)), max(FINE, int(tall))), 0)
    ImageDraw.Draw(picture).text((-box[0], -box[1]), string, fill=255, font=font)
    return np.asarray(picture.reduce(FINE))


def text(
    out: np.ndarray,
    string: str,
    x: float,
    y: float,
    height: int,
    colour: str = "black",
) -> None:
    """Writes a text centred at (x, y); digits and capitals are `height` pixels high."""
    cover = _glyphs(string, height)
    left, top = x - cover.shape[1] / 2, y - cover.shape[0] / 2
    stamp(out, cover, round(left), round(top), colour)


# Pips of a die in thirds of its side, by value.
_PIPS: dict[int, list[tuple[int, int]]] = {
    1: [(0, 0)],
    2: [(-1, -1), (1, 1)],
    3: [(-1, -1), (0, 0), (1, 1)],
    4: [(-1, -1), (-1, 1), (1, -1), (1, 1)],
    5: [(-1, -1), (-1, 1), (0, 0), (1, -1), (1, 1)],
    6: [(-1, -1), (-1, 0), (-1, 1), (1, -1), (1, 0), (1, 1)],
}


def die(
    out: np.ndarray,
    value: int,
    x: float,
    y: float,
    size: float,
    *,
    body: str = "white",
    pips: str = "black",
) -> None:
    """Draws a die showing 1 to 6, `size` pixels across, centred at (x, y)."""
    shape(out, "block", x, y, size, "black")
    shape(out, "block", x, y, size - max(2, round(size / 12)), body)
    for dx, dy in _PIPS[value]:
        shape(out, "disc", x + dx * size * 0.27, y + dy * size * 0.27, size * 0.2, pips)
