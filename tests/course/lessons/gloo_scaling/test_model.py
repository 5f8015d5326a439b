"""The law's two bounds, and lesson 01's pictures."""

import dataclasses

from pytest import approx, mark

from course.lessons.gloo_scaling import evidence, experiment, pictures
from course.lessons.gloo_scaling.model import Saturation
from labkit.show import alt_text

ONE_CORE = experiment.recorded("sweep", case="one core")


def test_the_knee_is_where_the_bounds_meet():
    law = Saturation(alone=230, cpu_per_call=70)
    assert law.knee == approx(230 / 70)
    assert law.time(law.knee) == approx(230)
    assert law.time(2 * law.knee) == approx(460)


def test_recorded_ranks_on_one_cpu_use_it_up():
    assert all(0.9 < record.values["ours"] < 1.1 for record in ONE_CORE)


def posted():
    """Made-up runs of the posted script, on one CPU and on two."""
    sweep = experiment.recorded("sweep", case="one core")
    return [
        dataclasses.replace(r, case=f"on {n} CPUs", samples=[[t / n for t in r.samples[0]]],
                            params={"part": "posted", "pairs": r.params["pairs"], "cpus": n})
        for n in (1, 2) for r in sweep
    ]  # fmt: skip


def test_two_cpus_of_ours_come_out_as_two():
    made = posted()
    two = {r.params["pairs"]: r.seconds[0] for r in made if r.params["cpus"] == 2}
    assert evidence.cpus_of(made, two) == approx(2)


PICTURES = {
    "thread": pictures.thread,
    "on_cpus": lambda: pictures.on_cpus(experiment.recorded("sweep")),
    "posted": lambda: pictures.posted(posted(), divided=True),
    "like_ours": lambda: pictures.like_ours(posted()),
    "draw": lambda: pictures.draw(experiment.recorded("sweep")),
}


@mark.parametrize("picture", PICTURES)
def test_each_picture_is_described_and_stamped(picture):
    shown = alt_text.of(PICTURES[picture]())
    assert all(len(text) > 40 for text in shown.text)
    assert shown.stamps
