import numpy as np
import pytest

from labkit.measure.rounds import Message
from labkit.show import alt_text
from labkit.show import wire as pictures
from tests.comm import algorithm_bytes

RING = algorithm_bytes.ring_all_reduce(4, 400)


@pytest.mark.parametrize("draw", [pictures.heat_map, pictures.arrows])
def test_a_matrix_is_told_in_words(draw):
    text = alt_text.text_of(draw(RING, nbytes=400))
    assert "Rank 3 sends 1.5 S to rank 0." in text
    assert "Nobody sends" in alt_text.text_of(draw(np.zeros((2, 2)), nbytes=1))


def test_arrows_widen_with_the_bytes():
    sent = np.array([[0, 1], [4, 0]])
    thin, wide = (patch.get_linewidth() for patch in pictures.arrows(sent, nbytes=4).patches)
    assert wide > 2 * thin


def test_rounds_side_by_side_and_one_by_one():
    found = [[Message(0, 1, 8), Message(1, 0, 8)], [Message(0, 1, 4)], [Message(1, 0, 4)]]
    figure = pictures.all_rounds(found, world_size=2, nbytes=8, title="three rounds")
    assert len(figure.axes) == 3
    second = pictures.one_round(found, 2, world_size=2, nbytes=8, title="swap")
    assert "round 2 of 3" in alt_text.text_of(second)
    assert "Rank 0 sends 0.5 S to rank 1." in alt_text.text_of(second)


def test_the_player_shows_every_round():
    found = [[Message(0, 1, 8)], [Message(1, 0, 8)]]
    box = pictures.play(found, world_size=2, nbytes=8)
    slider = next(child for child in box.children if hasattr(child, "max"))
    assert (slider.min, slider.max, slider.value) == (1, 2, 1)
    picture = box.children[-1]
    before = picture.value
    slider.value = 2
    assert picture.value != before
    assert "Rank 1 sends 1 S to rank 0" in picture.value
