"""What lesson 01 claims: each claim holds for figures that bear it out, and fails for others."""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from pytest import mark

from course import runs
from course.lessons.gloo_scaling import experiment, model, programs
from labkit.measure import records, timing
from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.tables import Table
from labkit.ranks.machine import Machine
from tests.course.lessons.cells import Cells, Ledger

LESSON = Cells(
    "01_gloo_scaling", ledger=Ledger(), torch=torch, timing=timing, train=None, can_measure=True
)
MACHINE = Machine("a CPU", 2, None, 10**9, (), "Linux", "3.11", "2.13", False)
ORIGIN = Provenance(MACHINE, "gloo", "2026-01-01", "by hand")


def record(case, pairs, seconds, *, part="sweep", placement=None, others=0.0, **values):
    """A made-up record; times in microseconds."""
    params = {"part": part, "pairs": pairs, "placement": placement or case}
    used = {key: value if key == "ours" else value * 1e-6 for key, value in values.items()}
    samples = [[seconds * 1e-6]] * 2 * pairs
    tier = Tier.MEASURED
    return Record("x", case, params, samples, tier, ORIGIN, values=used, others=others)


def line(case, per_pair, **values):
    found = [record(case, p, per_pair * p, **values) for p in (1, 2, 4, 8)]
    return model.with_predictions(found)


def one_cpu(growth=240, waiting=(300, 2100), on_cpu=120, ours=1.0, others=0.0):
    rows = zip((1, 2, 4, 8), np.linspace(*waiting, 4), strict=True)
    return [
        record(
            "one core",
            p,
            growth * p,
            waiting=w,
            on_cpu=on_cpu,
            ours=ours,
            others=others,
            switches=0,
        )
        for p, w in rows
    ]


def flat():
    return [record("one core", p, 240, waiting=300 * p, on_cpu=120, ours=1.0) for p in (1, 8)]


def cause(awake, batch):
    loops = {"as it is": 900, "CPUs kept awake": awake, "no preemption": batch}
    return [record(case, 1, loop, part="cause", loop=loop) for case, loop in loops.items()]


def theirs(apart, on_cpu):
    return {
        ("apart", 1): record("apart", 1, apart, on_cpu=on_cpu),
        ("one core", 1): record("one core", 1, 240, on_cpu=120),
        ("together", 1): record("together", 1, 240, on_cpu=120),
    }


def rungs(fused, shared):
    times = {"blocking": 1300, "fused": fused, "shared memory": shared}
    return [record(case, 8, time, part="ladder") for case, time in times.items()]


def measured(*per_rank):
    return lambda *args, **options: list(per_rank)


def updates(times, values):
    """A stand-in for `launch`, called for one gradient after the other, then for all at once."""
    results = iter([[([t], torch.tensor(v))] * 2 for t, v in zip(times, values, strict=True)])
    return lambda *args, **options: next(results)


def metered(matrix):
    """A stand-in for `labkit.measure.wire`: ten calls sent this many bytes."""
    return SimpleNamespace(matrix=lambda reports: matrix, WireUnavailable=RuntimeError)


def listed(switches):
    return [SimpleNamespace(values={"threads": ["python"], "writes": 12, "switches": switches})]


def descriptors(at_once, lazily):
    """A stand-in for `launch`: what new groups of 8 ranks take, at once and then lazily."""
    results = iter([[([1e-3], number)] * 8 for number in (at_once, lazily)])
    return lambda *args, **options: next(results)


GROUPS = {"os": os, "Path": Path, "dist": None, "Table": Table}
NOT_IDLE = {"model": model, "Table": Table, "books": lambda found: None}
LAW = {"np": np, "model": model}
DETAIL = "TORCH_DISTRIBUTED_DEBUG=DETAIL"
EXCHANGED = np.array([[0, 9, 0, 0], [9, 0, 0, 0], [0, 0, 0, 9], [0, 0, 9, 0]]) * 1100.0
BEHIND_OUR_BACK = EXCHANGED + np.eye(4)[::-1] * 5
METER = {"programs": programs, "dist": None, "bytes_of_ten_calls": None}
COST = {"nothing set": 140, "A=1": 150, "B=1": 145, "C=1": 140, DETAIL: 600}
CUSTOMERS = {"busy": type("Busy", (), {"cpus": 0.0}), "queue": model.Saturation(1, 1, 1)}
CLAIMS = [
    ("one-cpu-claims", {"one_cpu": one_cpu()}, {"one_cpu": flat()}, "a line through zero"),
    (
        "one-cpu-claims",
        {"one_cpu": one_cpu()},
        {"one_cpu": one_cpu(waiting=(300, 310))},
        "the longer threads wait",
    ),
    (
        "balance",
        {**NOT_IDLE, "one_cpu": one_cpu(ours=0.99)},
        {**NOT_IDLE, "one_cpu": one_cpu(ours=0.6)},
        "the one CPU is never idle",
    ),
    (
        "customers-claims",
        {**CUSTOMERS, "rounds": [2.5, 2.5, 2.5, 3, 4, 6]},
        {**CUSTOMERS, "rounds": [2.5, 5, 10, 15, 20, 30]},
        "no longer than with one",
    ),
    (
        "customers-claims",
        {**CUSTOMERS, "rounds": [2.5, 2.5, 2.5, 3, 4, 6]},
        {**CUSTOMERS, "rounds": [2.5] * 6},
        "with twelve it takes more than 1.7 times",
    ),
    (
        "network-run",
        {**METER, "wire": metered(EXCHANGED), "launch": measured()},
        {**METER, "wire": metered(BEHIND_OUR_BACK), "launch": measured()},
        "not a byte goes from one pair to another",
    ),
    (
        "network-run",
        {**METER, "wire": metered(EXCHANGED), "launch": measured()},
        {**METER, "wire": metered(3 * EXCHANGED), "launch": measured()},
        "a call sends less than 2000",
    ),
    (
        "threads-listed",
        {"one_cpu": listed(switches=10)},
        {"one_cpu": listed(switches=1)},
        "a blocking call hands over several times",
    ),
    (
        "lazy-run",
        {**GROUPS, "launch": descriptors(14, 7)},
        {**GROUPS, "launch": descriptors(14, 14)},
        "at once, each of 8 ranks opens a connection",
    ),
    ("timer-claim", {"share": 0.05}, {"share": 0.6}, "less than a quarter"),
    (
        "recorded-claims",
        {"theirs": theirs(1800, 1000)},
        {"theirs": theirs(300, 1000)},
        "more than three times slower",
    ),
    (
        "recorded-claims",
        {"theirs": theirs(1800, 1000)},
        {"theirs": theirs(1800, 130)},
        "more than three times the CPU time",
    ),
    (
        "cause-verdict",
        {"runs": runs, "cause": cause(880, 80), "recorded": cause(880, 80)},
        {"runs": runs, "cause": cause(880, 80), "recorded": cause(80, 880)},
        "it is the spinning",
    ),
    (
        "law-check",
        {**LAW, "together": line("together", 100, on_cpu=100)},
        {**LAW, "together": line("together", 100, on_cpu=5)},
        "the law is typically within 50 %",
    ),
    (
        "asker-slope",
        {**LAW, "one_cpu": one_cpu()},
        {**LAW, "one_cpu": one_cpu(on_cpu=20)},
        "the slope is about 2c",
    ),
    ("ladder-claims", {"rungs": rungs(20, 120)}, {"rungs": rungs(200, 120)}, "20 times faster"),
    ("ladder-claims", {"rungs": rungs(20, 120)}, {"rungs": rungs(20, 900)}, "3 times faster"),
    (
        "variables-claims",
        {**LAW, "cost": COST},
        {**LAW, "cost": COST | {"A=1": 50}},
        "no variable halves",
    ),
    (
        "variables-claims",
        {**LAW, "cost": COST},
        {**LAW, "cost": COST | {DETAIL: 150}},
        "DETAIL makes every call cost more",
    ),
    (
        "update-run",
        {"launch": updates([1e-2, 1e-3], [1.0, 1.0])},
        {"launch": updates([1e-2, 1e-3], [1.0, 2.0])},
        "the parameters are the same",
    ),
    (
        "update-run",
        {"launch": updates([1e-2, 1e-3], [1.0, 1.0])},
        {"launch": updates([1e-2, 9e-3], [1.0, 1.0])},
        "more than 5 times faster",
    ),
]


@mark.parametrize(
    ("name", "true", "false", "said"), CLAIMS, ids=[c[0] + ": " + c[3] for c in CLAIMS]
)
def test_a_claim_holds_only_for_figures_that_bear_it_out(name, true, false, said):
    LESSON.hold(name, true=true, false=false, said=said)


def test_every_claim_of_the_lesson_is_tried():
    assert {*LESSON.claiming()} == {name for name, *_ in CLAIMS}


def test_the_lesson_says_of_the_recorded_run_what_it_shows():
    found = records.load(experiment.RECORDING, recorded=True)
    cost = {
        case: [r.values["on_cpu"] for r in found if r.case == case and r.params["part"] == "sweep"]
        for case in programs.PLACEMENTS
    }
    assert max(cost["together"]) < 2 * min(cost["together"])  # "within a factor of two"
    assert 4 < cost["free"][0] / cost["free"][-1] < 6  # "nearly five", "four or more"
    assert 0.7e-3 < cost["apart"][0] < 1.4e-3  # "about a millisecond"
    ladder = {r.case: r.summary.median for r in found if r.params["part"] == "ladder"}
    assert ladder["fused"] < 0.05 * ladder["blocking"]  # "a few per cent"


@mark.parametrize("way", ["blocking", "asynchronous", "fused", "accumulated"])
def test_the_ways_in_the_lesson_do_what_labkits_do(way):
    """Here without ranks: both reduce the same list of tensors, by the same calls."""
    given = {"torch": torch}
    exec(LESSON.sources["ways"], {"dist": (fake := Fake()), **given}, found := {})
    real = programs.dist
    tensors = [torch.arange(4.0).reshape(2, 2) + i for i in range(3)]
    ours = [tensor.clone() for tensor in tensors]
    pair = programs.Pair(0, 1, None)
    found[way](tensors, pair)
    calls, fake.calls = fake.calls, []
    try:
        programs.dist = fake
        programs.WAYS["async_op" if way == "asynchronous" else way](ours, pair)
    finally:
        programs.dist = real
    assert calls == fake.calls
    assert all(map(torch.equal, tensors, ours))


class Fake:
    """An all_reduce that adds one, and notes how many elements it was given."""

    def __init__(self):
        self.calls = []

    def all_reduce(self, tensor, group=None, async_op=False):
        self.calls.append((tensor.numel(), async_op))
        tensor += 1
        return self

    def wait(self):
        return True


def test_no_figure_of_the_thread_is_typed_in():
    typed = [name for name, source in LESSON.sources.items() if re.search(r"0\.386|2\.068", source)]
    assert typed == []
