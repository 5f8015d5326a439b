"""The law's two bounds, and lesson 01's pictures."""

from functools import partial

from pytest import approx, mark

from course.lessons.gloo_scaling import experiment, pictures
from course.lessons.gloo_scaling.model import Saturation
from labkit.show import alt_text

POSTED = experiment.recorded("posted")


def test_the_knee_is_where_the_bounds_meet():
    law = Saturation(alone=230, cpu_per_call=70)
    assert law.knee == approx(230 / 70)
    assert law.time(law.knee) == approx(230)
    assert law.time(2 * law.knee) == approx(460)


PICTURES = {
    "theirs_and_ours": lambda: pictures.theirs_and_ours(POSTED),
    "like_ours": lambda: pictures.like_ours(POSTED),
    "growing": lambda: pictures.growing(experiment.recorded("ways")),
    **{part: partial(pictures.arms, experiment.recorded(part), "01.wire") for part in "ABCD"},
    "draw": lambda: pictures.draw(POSTED),
}


@mark.parametrize("picture", PICTURES)
def test_each_picture_is_described_and_stamped(picture):
    shown = alt_text.of(PICTURES[picture]())
    assert all(len(text) > 40 for text in shown.text)
    assert shown.stamps
