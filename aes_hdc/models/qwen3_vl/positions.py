"""Rotary positions of tokens and pictures, computed on the host."""

from collections.abc import Sequence

import numpy as np


def rope_positions(
    ids: Sequence[int] | np.ndarray,
    grids: Sequence[tuple[int, int]],
    image_token_id: int,
    *,
    merge: int = 2,
    start: int = 0,
) -> tuple[np.ndarray, int]:
    """Assigns (time, height, width) positions to the tokens of one row, no padding.

    Text counts up on all axes. A picture that starts at position p gives its token in
    row i, column j the position (p, p + i, p + j), and moves the counter by its longer
    side.

    Args:
        ids: [T] token ids.
        grids: patches along height and width of each picture, in order.
        image_token_id: the id of image placeholders.
        merge: patches per token along each side.
        start: the first position, what an earlier chunk of the row returned as its
            next.

    Returns:
        Positions, [3, T] int32, and the position of the token that comes next. A token
        written n places later without pictures in between has that plus n on all axes.

    Raises:
        ValueError: if the number of image tokens is not what the grids ask for.
    """
    ids = np.asarray(ids)
    counts = [height * width // merge**2 for height, width in grids]
    is_image = ids == image_token_id
    if is_image.sum() != sum(counts):
        raise ValueError(
            f"{is_image.sum()} image tokens for pictures of {counts} tokens; write as "
            "many placeholders as the grids need"
        )
    positions = np.empty((3, len(ids)), np.int32)
    at, current = 0, start
    for (height, width), count in zip(grids, counts, strict=True):
        text = int(np.argmax(is_image[at:]))
        positions[:, at : at + text] = current + np.arange(text)
        at, current = at + text, current + text
        if not is_image[at : at + count].all():
            raise ValueError(
                f"text inside a picture: {count} placeholders in a row are needed from "
                f"token {at}"
            )
        rows, columns = height // merge, width // merge
        span = positions[:, at : at + count]
        span[0] = current
        span[1] = current + np.repeat(np.arange(rows), columns)
        span[2] = current + np.tile(np.arange(columns), rows)
        at, current = at + count, current + max(rows, columns)
    positions[:, at:] = current + np.arange(len(ids) - at)
    return positions, current + len(ids) - at
