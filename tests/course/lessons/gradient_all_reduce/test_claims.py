"""The claim of lesson 02 fails with records in which it is false."""

from types import SimpleNamespace

from pytest import mark

from course.lessons.gradient_all_reduce import experiment as problem
from course.runs import by_case
from labkit.measure.records import load
from tests.course.lessons.cells import Cells

CELLS = Cells("02_gradient_all_reduce", gate=lambda key: None, reconcile=lambda *_, **__: None)
RUNS = by_case(load(problem.RECORDING, recorded=True))


def found(after, during):
    """What the cells find by round: `during` on rung 4, `after` on all others."""
    by_rung = dict(zip(problem.programs.RUNGS, [*4 * [after], during], strict=True))
    answers = {"exposed": lambda _: by_rung, "ends": lambda _: by_rung, "lengths": lambda _: {}}
    answers |= {"on_hosts": lambda *_, case, **__: RUNS[case]}
    return {
        "problem": SimpleNamespace(**vars(problem) | answers),
        "DuringBackward": None,
        "pictures": SimpleNamespace(rungs=lambda _: None),
        "mark": lambda *_, **__: None,
    }


@mark.parametrize("during", [[0.05, 0.07, 0.08], [0.01, 0.02, 0.08]], ids=["nothing", "mixed"])
def test_overlap_hides_in_every_round(during):
    good, bad = (found([0.05, 0.06, 0.07], with_4) for with_4 in ([0.01, 0.02, 0.03], during))
    CELLS.hold("climb", true=good, false=bad, words="less than 3b")


@mark.parametrize("with_4", [[0.2] * 3, [0.15, 0.16, 0.21]], ids=["nothing", "mixed"])
def test_overlap_shortens_every_step_where_computing_sleeps(with_4):
    good, bad = (
        found([(0.1, 0.2)] * 3, [(0.1, step) for step in steps])  # (backward, step) by round
        for steps in ([0.15, 0.16, 0.17], with_4)
    )
    CELLS.hold("asleep", true=good, false=bad, words="shortens every step")


def test_every_claim_of_the_lesson_is_tried():
    assert CELLS.untried(__file__) == []
