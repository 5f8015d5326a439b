"""The board of lesson 01 follows the figures; noise decides nothing."""

import dataclasses
import operator

from pytest import approx, mark

from course.lessons.gloo_scaling import evidence, experiment
from course.predictions.board import FELL, NOT_JUDGED, STANDS


def changed(name, factor, *, rounds=range(experiment.ROUNDS), **settings):
    """The recorded records of an experiment, where one arm takes `factor` times as long."""
    records = experiment.recorded(name)
    hit = evidence.of(records, **settings)
    each = len(hit.samples[0]) // experiment.ROUNDS
    factors = [factor if i // each in rounds else 1 for i in range(len(hit.samples[0]))]
    samples = [list(map(operator.mul, rank, factors)) for rank in hit.samples]
    return [dataclasses.replace(r, samples=samples) if r is hit else r for r in records]


def held(records):
    board = evidence.INVESTIGATION.empty()
    evidence.hold(board, [*records])
    return board


OTHER_FIGURES = [
    ("A", {"pairs": 8}, 0.007, "a", STANDS),
    ("B", {"pairs": 8, "cpus": 2}, 9, "b", FELL),
    ("C", {"pairs": 8, "calling": 1}, 9, "c", STANDS),
    ("D", {"pairs": 8, "threads": 1}, 0.15, "d", STANDS),
]


@mark.parametrize(("name", "settings", "factor", "suspect", "state"), OTHER_FIGURES)
def test_other_figures_lead_to_another_verdict(name, settings, factor, suspect, state):
    board = held(changed(name, factor, **settings))
    assert board.state(suspect) == state, str(board)


def test_rounds_that_disagree_decide_nothing():
    board = held(changed("B", 9, pairs=8, cpus=2, rounds=[1]))
    assert board.state("b") == NOT_JUDGED
    assert "of 3 rounds 2 say yes, 1 says no" in str(board)


@mark.parametrize("name", "BCD")
def test_where_others_have_the_cpus_not_even_rounds_that_agree_decide(name):
    board = held(dataclasses.replace(record, others=99.0) for record in experiment.recorded(name))
    assert board.state(name.lower()) == NOT_JUDGED
    assert "other programs used 99.0 CPUs" in str(board)


def test_arms_are_known_by_their_values_and_a_missing_one_is_named(capsys):
    renamed = [dataclasses.replace(r, case=f"my {r.case}") for r in experiment.recorded("B")]
    board = evidence.INVESTIGATION.empty()
    assert evidence.hold(board, [*renamed[1:], renamed[0]]) == approx(54, abs=3)
    assert board.state("b") == STANDS
    assert evidence.hold(board, [r for r in renamed if r.params["cpus"] == 1]) is None
    assert "needs an arm with {'pairs': 8, 'cpus': 2}" in capsys.readouterr().out
    assert evidence.hold(board, []) is None
    assert capsys.readouterr().out == "The board says nothing: no arm was measured.\n"


def test_growth_that_stays_without_threads_acquits_them():
    """A share of what eight threads add; where nothing grows there is nothing to explain."""
    wholes, rests = (5, 5, 5, 1.1, 1.4, 1.4), (1.5, 4.5, 2.5, 1, 1, 1.4)
    outcomes = [True, False, None, False, None, False]
    assert evidence._left(wholes, rests, stands=0.25, fell=0.5) == outcomes
