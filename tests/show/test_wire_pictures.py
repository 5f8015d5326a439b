import numpy as np

from course.comm.rounds import Message
from labkit.show import alt_text
from labkit.show import wire as pictures
from tests.course.comm import algorithm_bytes

RING = algorithm_bytes.ring_all_reduce(4, 400)


def test_a_matrix_is_told_in_words():
    for picture in (pictures.heat_map(RING, nbytes=400), pictures._arrows(RING / 400, "ring")):
        assert "Rank 3 sends 1.5 S to rank 0." in alt_text.text_of(picture)
    assert "Nobody sends" in alt_text.text_of(pictures.heat_map(np.zeros((2, 2)), nbytes=1))


def test_arrows_widen_with_the_bytes():
    sent = np.array([[0, 1], [4, 0]])
    thin, wide = (patch.get_linewidth() for patch in pictures._arrows(sent / 4, "two").patches)
    assert wide > 2 * thin


def test_the_player_shows_every_round():
    found = [[Message(0, 1, 8)], [Message(1, 0, 8)]]
    box = pictures.play(found, world_size=2, nbytes=8, title="swap")
    slider = next(child for child in box.children if hasattr(child, "max"))
    assert (slider.min, slider.max, slider.value) == (1, 2, 1)
    picture = box.children[-1]
    before = picture.value
    slider.value = 2
    assert picture.value != before
    assert "swap: round 2 of 2. Rank 1 sends 1 S to rank 0." in picture.value
