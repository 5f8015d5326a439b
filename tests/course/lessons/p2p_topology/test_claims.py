"""Every claim of the lesson fails where it is false: its cells, run on made-up records."""

import dataclasses
import os

import pytest

from course import runs
from course.lessons.p2p_topology import experiment, published
from course.lessons.p2p_topology.topology import NVSWITCH
from course.published import Published
from labkit.measure import records
from tests.course.lessons.cells import Cells, ClaimFailed

CELLS = Cells("04_p2p_topology").sources
FOUND = runs.by_case(records.load(experiment.RECORDING, recorded=True))
S = experiment.NBYTES


@pytest.fixture
def lesson(tmp_path, monkeypatch):
    """What a cell finds when all cells before it have run: here the recorded run's records."""
    monkeypatch.setitem(os.environ, "LABKIT_LEDGER", str(tmp_path / "ledger.json"))
    names = {}
    exec(CELLS["imports"], names)
    names |= {"copies": [FOUND[f"0 -> {dst}"] for dst in (1, 2, 4)]}
    names |= {"whole": FOUND[f"in turns, {S} B by {S}"], "S": S, "alpha": 1e-5}
    names |= {"pieces": FOUND[f"in turns, {S} B by 125000"]}
    names |= {"tiny": FOUND["in turns, 1000000 B by 2000"]}
    names |= {"ahead": FOUND["posted ahead, 1000000 B by 2000"]}
    names |= {"one": FOUND["via 5"], "two": FOUND["via 5 and 7"], "every": FOUND["every path"]}
    names |= {"sweep": [FOUND[f"via 5, {chunk} B"] for chunk in experiment.CHUNKS]}
    names |= {"together": [FOUND[case] for case in FOUND if case.startswith("together")]}
    names |= {"local": [taking(names["one"], s) for s in (0.01, 0.1, 0.3)], "paper": 37.3}
    for cell in ("published-trace", "calibrate", "start-fabric"):
        exec(CELLS[cell], names)
    names["seconds"] = {record.case: min(record.seconds) for record in names["copies"]}
    return names


def taking(record, seconds):
    """The same record with all its samples at one time."""
    return dataclasses.replace(record, samples=[[seconds] * 3])


def slower(record, times):
    return taking(record, min(record.seconds) * times)


def with_pair(figure, src, dst, value):
    """A published matrix in which one pair has another value."""
    lines = figure.quotation.splitlines()
    words = lines[2 + src].split()
    words[1 + dst] = str(value)
    lines[2 + src] = " ".join(words)
    return Published(figure.value, figure.unit, "\n".join(lines), figure.source)


CLAIMS = (
    "test-the-theory", "both-ways", "calibration", "in-pieces", "tiny-pieces", "two-relays",
    "check-ladder", "check-chunks", "check-contention", "twist", "check-local", "rings",
)  # fmt: skip
MEASURE = ("in-pieces", "tiny-pieces", "two-relays")


def run(cell, names):
    """Run a cell's claims; what it measures is there already."""
    source = CELLS[cell]
    if cell in MEASURE:
        lines = source.splitlines()
        source = "\n".join(line for line in lines if "= experiment.time_" not in line)
    exec(source, names)


@pytest.mark.parametrize("cell", CLAIMS)
def test_the_recorded_run_bears_the_claims_out(cell, lesson):
    run(cell, lesson)


def test_every_cell_that_claims_something_is_tried():
    claiming = {cell for cell, source in CELLS.items() if "claim(" in source or "assert " in source}
    assert claiming == set(CLAIMS)


@pytest.mark.parametrize(
    ("cell", "change"),
    [
        ("calibration", {"copies": lambda c: [c[0], slower(c[1], 2), c[2]]}),
        ("in-pieces", {"pieces": lambda r: slower(r, 1.4)}),
        ("in-pieces", {"seconds": lambda s: {**s, "0 -> 2": 0.5}}),
        ("tiny-pieces", {"ahead": lambda r: slower(r, 50)}),
        ("two-relays", {"one": lambda r: slower(r, 1.5)}),
        ("two-relays", {"two": lambda r: slower(r, 1.6)}),
        ("check-ladder", {"every": lambda r: taking(r, 0.12), "two": lambda r: slower(r, 9)}),
        ("check-ladder", {"two": lambda r: taking(r, 0.01)}),
        # The model's best chunk is not the best measured: small chunks win by far.
        ("check-chunks", {"sweep": lambda s: [*s[:5], *(slower(r, 0.5) for r in s[5:])]}),
        # A sharp optimum.
        ("check-chunks", {"sweep": lambda s: [slower(r, 1 + 0.3 * (r is not s[3])) for r in s]}),
        ("check-chunks", {"sweep": lambda s: [taking(r, 0.17) for r in s]}),
        ("check-contention", {"together": lambda t: [t[0], slower(t[1], 1.5), t[2]]}),
        ("check-contention", {"together": lambda t: [dataclasses.replace(
            slower(r, 0.5), predicted=r.predicted / 2) for r in t]}),
        ("check-local", {"local": lambda found: found[::-1]}),
        ("check-local", {"local": lambda found: [found[0], found[2], found[1]]}),
    ],
)  # fmt: skip
def test_a_false_claim_fails(cell, change, lesson):
    for name, to in change.items():
        lesson[name] = to(lesson[name])
    with pytest.raises(ClaimFailed):
        run(cell, lesson)


@pytest.mark.parametrize(
    ("cell", "name", "figure"),
    [
        ("test-the-theory", "ON", with_pair(published.ON, 0, 1, 80.0)),
        ("test-the-theory", "ON", with_pair(published.ON, 2, 3, 93.3)),
        ("both-ways", "BOTH_ON", with_pair(published.BOTH_ON, 2, 3, 166.0)),
    ],
)
def test_another_matrix_would_refute_the_theory(cell, name, figure, lesson, monkeypatch):
    monkeypatch.setattr(published, name, figure)
    exec(CELLS["calibrate"], lesson)
    exec(CELLS["test-the-theory"], lesson) if cell != "test-the-theory" else None
    with pytest.raises(AssertionError):
        run(cell, lesson)


def test_other_durations_would_refute_the_theory(lesson):
    lesson["durations"][4] = 9.3
    with pytest.raises(AssertionError):
        run("test-the-theory", lesson)


def test_the_twist_and_the_ring_could_be_otherwise(lesson, monkeypatch):
    lesson["server"] = experiment.PUZZLE
    monkeypatch.setattr(published, "OFF", published.ON)
    with pytest.raises(AssertionError):
        run("twist", lesson)
    lesson["server"] = NVSWITCH  # any order of its GPUs is as good
    with pytest.raises(AssertionError):
        run("rings", lesson)
