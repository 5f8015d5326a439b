"""What lesson 00 claims holds for figures that bear it out, and fails for others."""

from course.catalogue import ROOT
from course.comm.costs import AlphaBeta
from course.lessons.start import experiment, pictures
from labkit import launch
from labkit.measure.records import load
from labkit.show.alt_text import text_of
from tests.course.lessons.cells import Cells

RECORDED = load(ROOT / "course" / "lessons" / "start" / "recording.json", recorded=True)
CELLS = Cells("00_start_here", gate=lambda key: None, reconcile=lambda *_, **__: None)


def test_a_late_rank_makes_the_others_clocks_run_on():
    CELLS.hold("meant", true={"five": {"Eve": 0.002, "Cleo": 0.052}},
               false={"five": {"Eve": 0.002, "Cleo": 0.003}}, words="run on")  # fmt: skip


def test_the_bytes_grow_more_than_the_time():
    small, large = RECORDED[0].summary.median, RECORDED[-1].summary.median
    names = {"small": small, "messages": RECORDED, "mine": experiment.fitted(RECORDED)}
    CELLS.hold("fit", true=names | {"large": large}, false=names | {"large": 1e6 * large},
               words="a hundred times more")  # fmt: skip


def test_every_claim_of_the_lesson_is_tried():
    assert CELLS.untried(__file__) == []


def test_each_argument_moves_the_clock_as_the_lesson_says():
    clock = CELLS.run("clock")["clock"]
    (waiting, _), (late, _) = launch(clock, True, True, 0.2, world_size=2)
    assert waiting > late and waiting > 0.1
    (started, _), _ = launch(clock, True, False, 0.2, world_size=2)
    assert started < waiting, "who does not wait does not see the late rank"


def test_pictures_say_what_they_show():
    assert "Ada 3 ms" in text_of(pictures.clocks({"Ada": 0.003, "Ben": 1e-5}))
    assert "bends at 10 kB" in text_of(pictures.ping_pong(RECORDED, AlphaBeta(10e-6, 1e-9)))
