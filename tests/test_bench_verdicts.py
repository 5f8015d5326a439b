import time

import pytest

from course import other_programs
from tools import bench_verdicts as bench


def line(state, **more):
    return {"suspect": "a", "experiment": "A", "state": state} | more


def claim(verdict):
    return {"expected": "it grows", "verdict": verdict}


def test_decided_not_judged_and_wrong_are_counted():
    tests = [line("fell"), line("fell"), line("not judged"), line("stands")]
    claims = [claim("held"), claim("not on this run"), claim("not judged")]
    table = bench.count(tests + claims, {"A a": "fell"})
    assert [row[1:] for row in table.rows] == [[4, 3, 1, 1], [3, 2, 1, 1]]


def test_cells_run_with_gates_open_and_what_they_judge_is_returned(monkeypatch):
    for name in ("LABKIT_LEDGER", "COURSE_GATES"):
        monkeypatch.setenv(name, "")
    cells = {
        "a": "from course.predictions.claims import claim\nx = 3",
        "b": "claim(x > 2, 'three', measured=x, exact=True)",
    }
    assert [one["verdict"] for one in bench.one_run(cells)] == ["held"]


@pytest.mark.slow
def test_bursts_are_other_programs():
    with bench.bursts(), other_programs.watch() as used:
        phase = time.monotonic() % bench.PERIOD
        time.sleep(1.0 if phase < 1.0 else bench.PERIOD + 1.0 - phase)  # they use the first two
    assert used.cpus > 0.1
