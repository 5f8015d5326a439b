"""The board of lesson 01 follows the figures; noise decides nothing."""

import dataclasses

from pytest import mark, raises

from course.lessons.gloo_scaling import evidence
from course.lessons.gloo_scaling import experiment as problem
from course.lessons.gloo_scaling.experiment import Arm
from course.predictions.board import FELL, NOT_JUDGED, STANDS


def changed(name, factor, *, of, rounds=None):
    """The recorded records of an experiment, where one arm takes `factor` times as long."""
    made = []
    for record in problem.recorded(name):
        arm = Arm(*(record.params[key] for key in Arm._fields))
        if (record.case, arm) == of:
            each = len(record.samples[0]) // record.params["rounds"]
            hit = range(record.params["rounds"]) if rounds is None else rounds
            samples = [
                [t * (factor if i // each in hit else 1) for i, t in enumerate(rank)]
                for rank in record.samples
            ]
            record = dataclasses.replace(record, samples=samples)
        made.append(record)
    return made


@mark.parametrize(
    ("name", "of", "factor", "suspect", "state"),
    [
        ("B", ("calls", Arm(8)), 9, "b", FELL),
        ("C", ("lesson 00's clock", Arm(8)), 0.15, "c", STANDS),
        ("C", ("their clock", Arm(8)), 0.1, "c", FELL),
        ("D", ("calls", Arm(8)), 0.15, "d", STANDS),
        ("A", ("the job", Arm(8)), 0.002, "a", STANDS),
    ],
)
def test_other_figures_lead_to_another_verdict(name, of, factor, suspect, state):
    board = evidence.INVESTIGATION.empty()
    evidence.hold(board, changed(name, factor, of=of))
    assert board.state(suspect) == state, str(board)


def test_rounds_that_disagree_decide_nothing():
    board = evidence.INVESTIGATION.empty()
    evidence.hold(board, changed("B", 9, of=("calls", Arm(8)), rounds=[1]))
    assert board.state("b") == NOT_JUDGED
    assert "2 of 3 rounds say yes, 1 say no" in board.verdict() + str(board)


@mark.parametrize(
    ("with_it", "without", "outcome"),
    [
        (5, 1.5, True),  # an eighth of the growth is left
        (5, 4.5, False),
        (5, 2.5, None),  # between the limits
        (1.1, 1.0, False),  # nothing grows: nothing to blame it for
        (1.4, 1.0, None),  # it grows too little to say that it goes with the suspect
        (1.4, 1.4, False),
    ],
)
def test_growth_that_stays_without_a_suspect_acquits_it(with_it, without, outcome):
    assert evidence.left(with_it, without) is outcome


def test_an_arm_that_was_not_measured_is_named():
    with raises(LookupError, match="'calls' and Arm"):
        evidence.of([], "calls", Arm(3))


@mark.parametrize("name", "BCD")
def test_where_others_have_the_cpus_not_even_rounds_that_agree_decide(name):
    crowded = [dataclasses.replace(record, others=99.0) for record in problem.recorded(name)]
    board = evidence.INVESTIGATION.empty()
    evidence.hold(board, crowded)
    assert board.state(name.lower()) == NOT_JUDGED
    assert "other programs used 99.0 CPUs" in str(board.tests[name.lower(), name])
