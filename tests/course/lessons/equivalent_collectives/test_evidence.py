"""Lesson 06's board: what noise cannot decide, and what bytes do."""

import dataclasses

import pytest

from course import catalogue
from course.lessons.equivalent_collectives import evidence, experiment

KEPT = catalogue.experiment(experiment.NAME).recorded()


def made_up(**seconds):
    """Records of three rounds of each way, of these seconds."""
    model = next(r for r in KEPT if r.case == evidence.ONE)
    records = {}
    for name, times in seconds.items():
        part = evidence.QUARTER if name.endswith("_4") else ""
        case = getattr(evidence, name.removesuffix("_4")) + part
        records[case] = dataclasses.replace(model, samples=[times] * 4)
    return records


LOADS = [
    (0.06, (0.06, 0.06, 0.06), "stands"),
    (0.06, (0.015, 0.06, 0.015), "not judged"),  # a load in one round, between honest ones
    (0.06, (0.114, 0.11, 0.12), "not judged"),  # in all of them: 1.9 times, as no latency does
    (-0.001, (0.06, 0.06, 0.06), "not judged"),  # of no excess there is no share
    (0.06, (0.015, 0.015, 0.015), "fell"),
]


@pytest.mark.parametrize("whole, quarter, state", LOADS)
def test_a_loaded_machine_does_not_read_as_rounds(whole, quarter, state):
    board = evidence.INVESTIGATION.empty()
    plain = {"ONE": [0.1] * 3, "TWO": [0.1 + whole] * 3, "ONE_4": [0.025] * 3}
    evidence.rounds(board, made_up(**plain, TWO_4=[0.025 + more for more in quarter]))
    assert board.state("b") == state


def test_without_an_excess_order_and_sums_are_not_judged():
    records = made_up(ONE=[0.1] * 3, TWO=[0.098] * 3, FIRST=[0.05] * 3, SECOND=[0.05] * 3)
    board = evidence.INVESTIGATION.empty()
    evidence.order(board, records)
    evidence.sums(board, [0.002] * 5, records)
    assert board.state("a") == board.state("d") == "not judged"


def test_equal_bytes_refute_bytes_whatever_the_clock_says():
    board = evidence.INVESTIGATION.empty()
    by_way = {evidence.ONE: 1.5, evidence.FIRST: 0.75, evidence.SECOND: 0.75}
    evidence.sent(board, by_way, made_up(ONE=[0.1, 0.1, 0.1], TWO=[0.15, 0.1, 0.3]))
    assert board.state("c") == "fell"
