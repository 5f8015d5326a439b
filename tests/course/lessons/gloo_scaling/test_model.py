"""The queue of lesson 01: played out, it keeps the law; and its picture keeps still."""

from itertools import pairwise

from pytest import approx, mark

from course.lessons.gloo_scaling import experiment, pictures
from course.lessons.gloo_scaling.model import Saturation, queue, round_time
from labkit.show import alt_text

ONE_CORE = experiment.recorded("sweep", case="one core")


@mark.parametrize("customers", [1, 2, 4, 5, 6, 16])
@mark.parametrize("elsewhere", [0, 300, 1000])
def test_a_round_of_the_queue_takes_what_the_law_says(customers, elsewhere):
    law = Saturation(alone=200 + elsewhere, cpu_per_call=200)
    turns = queue(customers, work=200, elsewhere=elsewhere)
    assert round_time(turns) == approx(law.time(customers))


def test_nobody_has_the_cpu_at_the_same_time_and_nobody_is_served_early():
    turns = queue(3, work=2.0, elsewhere=1.0, rounds=4)
    assert all(a.end <= b.begin for a, b in pairwise(turns))
    assert all(turn.ready <= turn.begin for turn in turns)
    assert [turn.customer for turn in turns] == [0, 1, 2] * 4


def test_the_knee_is_where_the_bounds_meet():
    law = Saturation(alone=230, cpu_per_call=70)
    assert law.knee == approx(230 / 70)
    assert law.time(law.knee) == approx(230)
    assert law.time(2 * law.knee) == approx(460)


def test_recorded_ranks_on_one_cpu_use_it_up():
    assert all(0.9 < record.values["ours"] < 1.1 for record in ONE_CORE)


def test_the_saturated_server_s_axes_stay_while_a_slider_moves():
    def limits(*knobs):
        figure = pictures.saturated_server(*knobs, ONE_CORE)
        return [(ax.get_xlim(), ax.get_ylim()) for ax in figure.axes]

    assert limits(1, 20, 0) == limits(16, 600, 2000) == limits(5, 200, 1000)


def test_the_saturated_server_says_what_it_shows():
    figure = pictures.saturated_server(4, 200, 1000, ONE_CORE)
    assert "a lap takes 1200 µs, the CPU is idle 33% of the time" in alt_text.of(figure).text[1]


PICTURES = {
    "thread": pictures.thread,
    "on_cpus": lambda: pictures.on_cpus(experiment.recorded("sweep")),
    "draw": lambda: pictures.draw(experiment.recorded("sweep")),
}


@mark.parametrize("picture", PICTURES)
def test_each_picture_is_described_and_stamped(picture):
    shown = alt_text.of(PICTURES[picture]())
    assert all(len(text) > 40 for text in shown.text)
    assert shown.stamps
