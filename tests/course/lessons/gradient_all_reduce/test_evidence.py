"""The board of lesson 02 points at whoever is guilty, and acquits the lesson's own."""

import dataclasses

from pytest import approx

from course.lessons.gradient_all_reduce import evidence
from course.lessons.gradient_all_reduce import experiment as problem
from course.predictions.board import STANDS
from course.runs import by_case
from labkit.measure.records import load

RUNS = by_case(load(problem.RECORDING, recorded=True))


def test_our_own_calm_run_leaves_less_bandwidth_or_arithmetic_and_what_nobody_asked():
    board = evidence.INVESTIGATION.recorded()
    assert board.left == ["c", "d", "e"]
    assert board.fates == {"a": "fell, by A", "b": "fell, by B", "c": "still standing",
                           "d": "still standing"}  # fmt: skip
    assert "how many GPUs the benchmark ran" in board.verdict()


def test_what_is_known_of_the_thread_is_what_it_says():
    thread = evidence.THREAD
    assert thread.nbytes / 2**20 == approx(471.6, abs=0.1), "471MB, as the thread says"
    assert thread.of_the_link(thread.benchmark) == approx(1.288, abs=0.001)
    assert thread.of_the_link(thread.in_training) == approx(0.275, abs=0.001)
    two = dataclasses.replace(thread, ranks=2)
    assert two.of_the_link(two.benchmark) == approx(0.687, abs=0.001)


def test_a_run_in_which_the_six_grow_with_the_late_rank_speaks_against_us():
    late = RUNS["late"]
    board = evidence.INVESTIGATION.empty()
    pairs = [
        (before, {name: x + 0.05 * name.startswith("classifier") for name, x in after.items()})
        for before, after in problem.pairs(late)
    ]
    evidence.late_rank(board, late, pairs)
    assert board.state("a") == STANDS


def test_the_ends_of_backward_and_of_the_step_are_those_that_the_lesson_names():
    ends = list(problem.lengths(RUNS["rungs"]).values())[3:]
    assert [[round(1e3 * s) for s in rung] for rung in ends] == [[228, 288], [265, 278]]
