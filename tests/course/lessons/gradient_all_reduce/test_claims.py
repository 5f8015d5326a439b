"""Each claim of lesson 02 fails with records in which it is false."""

import dataclasses
from types import SimpleNamespace

from course.lessons.gradient_all_reduce import experiment as problem
from course.runs import by_case
from labkit.measure.records import load
from tests.course.lessons.cells import Cells

CELLS = Cells("02_gradient_all_reduce", gate=lambda key: None, reconcile=lambda *_, **__: None)
RUNS = by_case(load(problem.RECORDING, recorded=True))
BENCHMARK = [record for record in RUNS.values() if record.collective]


def stub(**cases):
    """The experiment, that answers with these records instead of measuring."""
    given = RUNS | cases
    answers = {
        "on_hosts": lambda *args, case=None, **__: given[case],
        "benchmark": lambda *_: cases.get("benchmark", BENCHMARK),
    }
    return {"problem": SimpleNamespace(**vars(problem) | answers), "train": None}


def slower(record, seconds):
    return dataclasses.replace(record, samples=[[x + seconds for x in s] for s in record.samples])


def test_a_call_costs_too_little_to_explain_it():
    CELLS.hold("alpha", true=stub(), words="a call costs less",
               false=stub(benchmark=[slower(record, 0.05) for record in BENCHMARK]))  # fmt: skip


def longer_first_call(record, factor):
    rows = [list(row) for row in record.values["spans"]]
    for row in rows:
        row[4] = row[3] + (row[4] - row[3]) * (factor if row[1].startswith("features") else 1)
    return dataclasses.replace(record, values=record.values | {"spans": rows})


def test_thin_links_show_in_the_last_six():
    thin = longer_first_call(RUNS["thin links"], 20)
    CELLS.hold("thin", true=stub(), false=stub(**{"thin links": thin}), words="in the last six")


def test_overlap_hides():
    names = {"programs": CELLS.imported["programs"], "DuringBackward": None}
    rounds = ([0.2] * 3, [0.05] * 3, [0.06] * 3, [0.02, 0.03, 0.07])
    calm = dict(zip(problem.programs.RUNGS, rounds, strict=True))
    slow = calm | {list(calm)[3]: [0.02, 0.07, 0.07]}
    true, false = (stub() | names for _ in range(2))
    true["problem"].exposed, false["problem"].exposed = (lambda _: calm), (lambda _: slow)
    CELLS.hold("climb", true=true, false=false, words="less than rung 3")


def test_every_claim_of_the_lesson_is_tried():
    assert CELLS.untried(__file__) == []
