"""What lesson 00 claims holds for figures that bear it out, and fails for others."""

import time
from dataclasses import replace

from pytest import approx, mark

from course import catalogue
from course.comm.costs import AlphaBeta
from course.lessons.start import experiment, pictures, programs
from labkit import launch
from labkit.show.alt_text import text_of
from tests.course.lessons.cells import Cells

RECORDED = catalogue.experiment("passport").recorded()
CELLS = Cells("00_start_here")


def test_a_late_rank_makes_the_others_clocks_run_on():
    names = {"five": {"Cleo": 0.052}, "late": [0.002] * 3}
    held = names | {"found": {"Cleo": [0.050, 0.052, 0.061]}}
    once = names | {"found": {"Cleo": [0.050, 0.003, 0.052]}}  # not in one round of three
    CELLS.hold("meant", true=held, false=once, words="in each of seven rounds")


CLOCKS = [
    ([0.053, 0.05, 0.061], [0.003] * 3, ["a"]),
    ([0.003] * 3, [0.053, 0.05, 0.061], ["b"]),
    ([0.055] * 3, [0.053] * 3, ["c"]),
    ([0.003] * 3, [0.004] * 3, ["d"]),
    ([0.053, 0.003, 0.061], [0.003] * 3, []),
]


@mark.parametrize(("on_time", "other", "verdict"), CLOCKS)
def test_the_verdict_on_the_late_rank_is_what_both_clocks_show(on_time, other, verdict, capsys):
    letters = []
    names = {"reconcile": lambda key, letter, **_: letters.append(letter)}
    names |= {"found": {"Cleo": on_time}, "late": other, "five": {"Cleo": on_time[0]}}
    CELLS.run("meant", **names, claim=lambda *_, **__: None)
    assert letters == verdict
    assert ("Not judged" in capsys.readouterr().out) == (verdict == [])


def test_the_bytes_grow_more_than_the_time():
    small, large = RECORDED[0].summary.median, RECORDED[-1].summary.median
    names = {"small": small, "messages": RECORDED, "mine": experiment.fitted(RECORDED)}
    grew, burst = names | {"large": large}, names | {"large": 1e6 * large}
    CELLS.hold("fit", true=grew, false=burst, words="less than 170,000 times as long")


def test_the_line_is_fitted_to_the_fastest_messages():
    took = [[cost + 1e-9 * r.nbytes for cost in (50e-6, 40e-6, 60e-6)] for r in RECORDED]
    line = experiment.fitted([replace(r, samples=[s]) for r, s in zip(RECORDED, took, strict=True)])
    assert line.alpha == approx(40e-6)
    assert line.beta == approx(1e-9)


def test_each_argument_moves_the_clock_as_the_lesson_says():
    clock = CELLS.run("clock")["clock"]
    changes = (0, True, 1.0), (5, True, 1.0), (5, False, 1.0), (5, True, 0.0)  # warm, wait, late
    ranks = launch(lambda: [clock(*change) > 0.5 for change in changes], world_size=2)
    assert list(zip(*ranks, strict=True)) == 2 * [(True, False)] + 2 * [(False, False)]


def test_pictures_say_what_they_show():
    drawn = text_of(pictures.clocks({"Ada": [0.002, 0.003, 0.009], "Ben": [1e-5]}))
    assert "Ada 3 ms, 2 to 9; Ben 0.01 ms" in drawn
    assert "bends at 10 kB" in text_of(pictures.ping_pong(RECORDED, AlphaBeta(10e-6, 1e-9)))


def test_the_timeline_shows_where_each_clock_starts_and_stops():
    began = time.perf_counter()
    ranks = launch(programs.five_clocks, world_size=2)
    text = text_of(pictures.stations(ranks, began, time.perf_counter()))
    assert all(f"{name}'s" in text for name in ("Dan", "Ada", "Ben", "Cleo", "Eve"))
    on_time, late = ranks[0]["with a late rank"], ranks[1]["with a late rank"]
    assert on_time[1] - on_time[0] > programs.LATE > late[1] - late[0]
    assert late[0] >= ranks[1]["late"][1]
