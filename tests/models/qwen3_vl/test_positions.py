import numpy as np
import pytest

from aes_hdc.models.qwen3_vl.positions import rope_positions

IMAGE = 9


def test_the_worked_example():
    ids = [1, 1, 1, 1, *[IMAGE] * 10, 1]
    positions, following = rope_positions(ids, [(10, 4)], IMAGE)
    assert positions[:, :4].tolist() == [[0, 1, 2, 3]] * 3
    assert positions[0, 4:14].tolist() == [4] * 10
    assert positions[1, 4:14].tolist() == [4, 4, 5, 5, 6, 6, 7, 7, 8, 8]
    assert positions[2, 4:14].tolist() == [4, 5] * 5
    assert positions[:, 14].tolist() == [9, 9, 9]
    assert following == 10


def test_text_alone_counts_up():
    positions, following = rope_positions([1, 2, 3], [], IMAGE, start=5)
    assert positions.tolist() == [[5, 6, 7]] * 3
    assert following == 8


def test_chunks_continue_each_other():
    first, second = [1, IMAGE, IMAGE, 1], [1, 1, IMAGE, 1, 1]
    whole, end = rope_positions(first + second, [(2, 4), (2, 2)], IMAGE)
    left, middle = rope_positions(first, [(2, 4)], IMAGE)
    right, chunked_end = rope_positions(second, [(2, 2)], IMAGE, start=middle)
    np.testing.assert_array_equal(whole, np.concatenate([left, right], axis=1))
    assert end == chunked_end


def test_pictures_without_a_token_between_them_stay_two():
    positions, following = rope_positions([IMAGE, IMAGE], [(2, 2), (2, 2)], IMAGE)
    assert positions.tolist() == [[0, 1]] * 3
    assert following == 2


@pytest.mark.parametrize(
    ("ids", "message"),
    [([1, IMAGE], "1 image tokens"), ([IMAGE, 1, IMAGE], "text inside a picture")],
)
def test_placeholders_must_fit_the_grids(ids, message):
    with pytest.raises(ValueError, match=message):
        rope_positions(ids, [(2, 4)], IMAGE)
