"""Lesson 6's claims: each holds for the recorded run or the published table, and each can fail."""

import contextlib
import statistics
from collections import defaultdict
from dataclasses import replace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from course.comm import costs
from course.lessons.equivalent_collectives import experiment, programs, published
from course.runs import by_case
from labkit.measure import records
from labkit.measure.records import bus_factor
from labkit.measure.tables import Table
from tests.course.lessons.cells import Cells, ClaimFailed, claim

CELLS = Cells("06_equivalent_collectives").sources
RECORDED = records.load(experiment.RECORDING, recorded=True)
WAYS = list(published.ROWS)


def in_setting(setting):
    return by_case(r for r in RECORDED if r.experiment == experiment.NAME and setting.has(r))


def slower(record, factor):
    """Return the record with all its times multiplied."""
    return replace(record, samples=[[t * factor for t in row] for row in record.samples])


def two_hosts(share):
    """Two cases on two hosts, at these multiples of the card's speed."""
    one = in_setting(experiment.FOUR)["ring all_reduce"]
    return [replace(one, samples=[[one.predicted / s] * 2] * 4) for s in share]


@pytest.fixture
def names():
    """What the lesson's earlier cells have left, as on the machine of the recording."""
    four = in_setting(experiment.FOUR)
    found = {
        "claim": claim,
        "reconcile": lambda *args, **options: None,
        "predict": lambda *args: None,
        "print": lambda *args, **options: None,
        "np": np,
        "Table": Table,
        "defaultdict": defaultdict,
        "statistics": statistics,
        "bus_factor": bus_factor,
        "experiment": experiment,
        "programs": programs,
        "published": published,
        "ways": WAYS,
        "ours": "ring reduce_scatter + all_gather",
        "emulated": four,
        "on_eight": list(in_setting(experiment.EIGHT).values()),
        "eight": list(in_setting(experiment.EIGHT_FASTER).values()),
        "two_hosts": two_hosts([0.99, 1.45]),
        "sent": {name: np.array(four[name].values["matrix"]) for name in experiment.LIBRARY},
        "samples": {"as in the text, group inside": [0.02, 0.03], "warmed up": [0.006, 0.04]},
        "agree": {"ring_all_reduce": True, "all_reduce_by_exchange": False},
        "n": 8,
        "nbytes": 16 * 2**30,
    }
    run("emulated-claim", found)
    return found


def run(cell, names, **changed):
    """Run one cell of the lesson."""
    names.update(changed)
    exec(CELLS[cell], names)
    return names


TRIAL = [
    "trial-busbw", "trial-pipelining", "trial-pipelining-claim", "trial-clock", "trial-clock-claim",
    "trial-noise-run", "trial-factor-run", "trial-again", "trial-judge", "trial-judge-claim",
    "verdict-claim", "nvls-run", "nvls-claim",
]  # fmt: skip


def trial(names, cell):
    """Run the trial's cells before this one, without its picture; what they claim may be false."""
    names["pictures"] = type("", (), {"on_trial": staticmethod(lambda *a, **o: None)})
    for earlier in TRIAL[: TRIAL.index(cell)]:
        with contextlib.suppress(AssertionError):
            run(earlier, names)


HOLD = [
    "stopwatch-claim", "emulated-claim", "eight-claim", "meter-claim", "whodunit-claim",
    "control-claim", "swap-claim", "broadcast-claim", "above-claim",
    "numerics-claim",
]  # fmt: skip


@pytest.mark.parametrize("cell", HOLD)
def test_the_recorded_run_bears_the_claims_out(cell, names):
    run(cell, names)


def times(**changed):
    """Change the fastest time of some cases; names as keywords, `_` for every other sign."""

    def change(names):
        t = dict(names["t"])
        for name, factor in changed.items():
            key = next(k for k in t if "".join(c if c.isalnum() else "_" for c in k) == name)
            t[key] *= factor
        return {"t": t}

    return change


def case(where, name, factor):
    """Change all times of one case in a set of records."""

    def change(names):
        found = names[where]
        if isinstance(found, dict):
            return {where: found | {name: slower(found[name], factor)}}
        return {where: [slower(r, factor) if r.case == name else r for r in found]}

    return change


def matrix(name, change):
    return lambda names: {"sent": names["sent"] | {name: change(names["sent"][name])}}


@pytest.mark.parametrize(
    "cell, change, says",
    [
        (
            "stopwatch-claim",
            lambda names: {"samples": {k: v[::-1] for k, v in names["samples"].items()}
                           | {"warmed up": [0.05]}},
            "making groups",
        ),
        ("emulated-claim", case("emulated", WAYS[2], 0.7), "half more"),
        ("emulated-claim", case("emulated", WAYS[2], 3), "half more"),
        ("emulated-claim", case("emulated", WAYS[1], 0.4), "three times"),
        ("emulated-claim", case("emulated", "all_reduce", 1.21), "half more|nearly ideal"),
        ("eight-claim", case("on_eight", WAYS[2], 0.6), "half more"),
        ("eight-claim", case("on_eight", WAYS[1], 0.6), "further behind"),
        ("meter-claim", matrix("reduce_scatter", lambda m: m / 2), None),
        ("meter-claim", matrix("reduce", lambda m: m / 1.5), None),
        ("meter-claim", matrix("broadcast", lambda m: m[::-1]), None),
        ("whodunit-claim", times(reduce=0.7), "reduce takes what"),
        ("whodunit-claim", times(broadcast=0.5), "broadcast takes what"),
        ("whodunit-claim", times(reduce_scatter=1.4), "reduce_scatter takes what"),
        ("control-claim", times(ring_reduce_scatter___all_gather=1.5), "tie with one"),
        ("control-claim", times(reduce_scatter=0.5), "twice as long"),
        ("swap-claim", times(swap__send_posted_first=0.5), "send first takes"),
        ("broadcast-claim", case("eight", "tree broadcast, all at once", 0.5), "gloo's time"),
        ("broadcast-claim", case("eight", "tree broadcast", 2), "taking turns"),
        ("broadcast-claim", case("eight", "pipelined broadcast", 4), "in pieces"),
        ("above-claim", lambda names: {"two_hosts": two_hosts([1.4, 1.45])}, "flat ring stays"),
        ("above-claim", lambda names: {"two_hosts": two_hosts([0.9, 0.97])}, "two levels reach"),
        ("numerics-claim", lambda names: {"agree": dict.fromkeys(names["agree"], True)}, None),
        ("numerics-claim", lambda names: {"agree": dict.fromkeys(names["agree"], False)}, None),
    ],
)  # fmt: skip
def test_a_run_that_shows_otherwise_fails(cell, change, says, names):
    with pytest.raises(AssertionError, match=says):
        run(cell, names, **change(names))


@pytest.mark.parametrize("cell", TRIAL)
def test_the_published_table_bears_the_trial_out(cell, names):
    trial(names, cell)
    run(cell, names)


def as_if(change):
    """Return another table: each step's milliseconds changed."""

    def steps():
        return [replace(step, seconds=change(step)) for step in real()]

    real = published.steps
    return type("", (), {**vars(published), "steps": staticmethod(steps)})


@pytest.mark.parametrize(
    "cell, change",
    [
        # a last row without the factor of 16: nothing to explain
        ("trial-pipelining-claim", lambda s: s.seconds / (16 if s.way == WAYS[2] else 1)),
        # reduce + broadcast as slow as the last row: pipelining would explain it
        ("trial-pipelining-claim", lambda s: s.seconds * (16 if s.way == WAYS[1] else 1)),
        # a clock that timed the launch only
        ("trial-clock-claim", lambda s: 2e-3 if s.way == WAYS[0] else s.seconds),
        # another factor than the number of GPUs
        ("trial-factor-run", lambda s: s.seconds * (2 if s.way == WAYS[2] else 1)),
        # all times sixteen times longer: now it is the last row that moved 16 S
        ("trial-judge-claim", lambda s: s.seconds * 16),
        # a table that does not repeat itself better than the factor to explain
        (
            "trial-judge-claim",
            lambda s: s.seconds * (9 if (s.name, s.algorithm) == ("all_gather", "Ring") else 1),
        ),
        ("verdict-claim", lambda s: s.seconds / 2),
        ("verdict-claim", lambda s: s.seconds * (1.5 if s.name == "all_reduce" else 1)),
    ],
)
def test_another_table_fails(cell, change, names):
    names["published"] = as_if(change)
    trial(names, cell)
    with pytest.raises(AssertionError):
        run(cell, names)


@pytest.mark.parametrize(
    "name, factor", [("reduce_scatter", 0.8), ("all_reduce, the switch adds", 2)]
)
def test_other_figures_of_the_switch_fail(name, factor, names):
    trial(names, "nvls-claim")
    rows = [
        [row[0], row[1], row[2] / (factor if row[0] == name else 1), row[3]]
        for row in names["rows"]
    ]
    with pytest.raises(AssertionError):
        run("nvls-claim", names, rows=rows)


def test_what_gloo_refuses_is_looked_at():
    def launch(*program, **options):
        raise RuntimeError("Check failed: something else")

    with pytest.raises(AssertionError):
        run("as-posted-run", {"launch": launch, "print": print})


@pytest.mark.parametrize("cell", ["rounds-run", "doubling-run"])
def test_rounds_are_counted(cell):
    names = {"costs": costs, "launch": lambda *a, **o: None, "wires": MagicMock()}
    for counted in (6, 5):  # both have six
        names["rounds"] = lambda reports, counted=counted: [None] * counted
        names["play"] = lambda *a, counted=counted, **o: counted
        with contextlib.nullcontext() if counted == 6 else pytest.raises(AssertionError):
            run(cell, names)


@pytest.mark.parametrize(
    ("sharded", "weights", "holds"), [(1.0, 1.0, True), (1.6, 1.0, False), (1.0, 2.0, False)]
)
def test_memory_and_weights_of_two_steps_are_compared(sharded, weights, holds):
    one = torch.ones(4)
    names = {"launch": lambda *a, **o: [((3.0, one), (sharded, weights * one))], "torch": torch}
    with contextlib.nullcontext() if holds else pytest.raises(AssertionError):
        run("fsdp-run", names)


def test_sums_on_nccl_are_looked_at():
    names = {"one_gpu": MagicMock(why_not=lambda: None), "programs": programs, "claim": claim}
    for last, holds in ((21.0, True), (20.0, False)):
        sums = {name: [*(3.0 * place for place in range(7)), last] for name in programs.THREE_WAYS}
        names["launch"] = lambda *a, sums=sums, **o: [sums, sums]
        with contextlib.nullcontext() if holds else pytest.raises(ClaimFailed):
            run("one-gpu-run", names)
