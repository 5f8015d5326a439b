"""What lesson 05 claims: each claim holds for figures that bear it out, and fails for others."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from course.lessons.pipeline_p2p import experiment, pictures
from course.lessons.pipeline_p2p.schedules import Channel
from course.runs import by_case
from labkit.measure.records import load
from labkit.measure.tables import Table
from labkit.ranks.errors import LaunchTimeout
from tests.course.lessons.cells import Cells, ClaimFailed, claim

LESSON = Cells("05_pipeline_p2p")
TOOK = {
    "gpipe, ordered": 0.69,
    "gpipe, tagged": 0.47,
    "1f1b, ordered": 0.57,
    "1f1b, tagged": 0.55,
    "eager 1f1b, ordered": 1.15,
    "eager 1f1b, edge": 1.04,
    "eager 1f1b, tagged": 0.47,
    "eager 1f1b, ordered, receives 1 early": 0.5,
    "eager 1f1b, edge, receives 1 early": 0.47,
}


def taking(record, seconds, **changes):
    return replace(record, samples=[[seconds]], **changes)


@pytest.fixture(scope="module")
def recorded():
    return by_case(load(experiment.RECORDING, recorded=True))


def run(cell, **names):
    """Run a cell of the notebook with these names, after the definition of `off`."""
    space = {"claim": claim, "torch": torch, "Table": Table, "by_case": by_case, **names}
    exec(LESSON.sources[cell], space)


def fails(cell, what, **names):
    with pytest.raises(ClaimFailed, match=what):
        run(cell, **names)


def test_the_bubble_is_held_to_the_formula():
    def free(bubble):
        return {
            "gpipe": lambda **sizes: None, "FREE": None, "ideal_bubble": lambda **sizes: 0.25,
            "simulate": lambda *plan: SimpleNamespace(bubble=bubble),
        }  # fmt: skip

    run("bubble-check", **free(0.25))
    fails("bubble-check", "agrees with the formula", **free(0.26))


@pytest.mark.parametrize(
    ("running", "source", "what"),
    [([0, 1], "dist.send(x, 1)", None), ([0], "dist.send(x, 1)", "both ranks hang"),
     ([0, 1], "dist.recv(x, 1)", "both stand in send")],
)  # fmt: skip
def test_who_hangs_where_is_looked_at(running, source, what):
    rank = SimpleNamespace(line=SimpleNamespace(source=source))

    class Hang(LaunchTimeout):
        def __init__(self):
            self.case = SimpleNamespace(running=running, ranks=[rank, rank])

    def launch(*program, **options):
        raise Hang

    names = {"launch": launch, "LaunchTimeout": LaunchTimeout}
    fails("deadlock-run", what, **names) if what else run("deadlock-run", **names)


def test_without_links_the_recorded_run_bears_part_1_out(monkeypatch, tmp_path):
    """The cells one after the other, as on a machine that cannot build links between hosts."""
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))
    names = Cells("05_pipeline_p2p").run(
        "program", "queue-yours", "queue-ours", "run-hol", "assert-hol", "run-ladder",
        "assert-ladder", "early-run", "early-assert", "recovered",
    )  # fmt: skip
    assert {record.tier for record in [*names["ran"], *names["early"]]} == {"RECORDED"}


def hol(recorded, **changes):
    first, second = recorded["gpipe, ordered"], recorded["gpipe, tagged"]
    return {"cost": 1.5, "first": first, "second": second} | changes


def test_the_queue_costs_what_the_model_says(recorded):
    run("assert-hol", **hol(recorded))
    first = recorded["gpipe, ordered"]
    fails("assert-hol", "a quarter longer", **hol(recorded, cost=1.1))
    slow = taking(first, 1.3 * first.predicted)
    fails("assert-hol", "right within 15 %", **hol(recorded, first=slow))
    other = replace(first, values=first.values | {"gradients": ["0"] * 4})
    fails("assert-hol", "the same, bit by bit", **hol(recorded, first=other))


@pytest.mark.parametrize(
    ("case", "seconds", "what"),
    [
        ("1f1b, ordered", 0.9, "1F1B hardly suffers"),
        ("eager 1f1b, ordered", 0.7, "eager 1F1B suffers most"),
        ("gpipe, ordered", 1.1, "slower than GPipe"),
        ("gpipe, tagged", 0.6, "ties with GPipe"),
        ("eager 1f1b, edge", 0.5, "does not save it"),
    ],
)
def test_what_the_queue_does_to_each_schedule(case, seconds, what):
    run("assert-ladder", took=TOOK, ran=[])
    fails("assert-ladder", what, took=TOOK | {case: seconds}, ran=[])


@pytest.mark.parametrize(
    ("changes", "left", "what"),
    [
        ({}, 0.9, "win back a good deal"),
        ({"eager 1f1b, ordered, receives 1 early": 0.7}, 0.4, "nearly as fast"),
        ({"eager 1f1b, edge, receives 1 early": 0.6}, 0.4, "with a queue per partner"),
    ],
)
def test_what_earlier_receives_win(recorded, changes, left, what):
    first = recorded["gpipe, ordered"]
    both = [recorded["eager 1f1b, ordered"]] * 2
    names = {"early": both, "first": first, "took": TOOK, "left": 0.4}
    run("early-assert", **names)
    fails("early-assert", what, **names | {"took": TOOK | changes, "left": left})
    other = replace(first, values=first.values | {"gradients": ["0"] * 4})
    fails("early-assert", "the same, bit by bit", **names | {"first": other})


def test_how_much_tags_recover(recorded):
    ran = [
        recorded[f"{name}, {way}"]
        for name in ("gpipe", "eager 1f1b")
        for way in ("ordered", "tagged")
    ]
    names = {"first": ran[0]}
    run("recovered", ran=ran, **names)
    slow = [taking(r, 1.4 * r.predicted) if "tagged" in r.case else r for r in ran]
    fails("recovered", "80 % of the loss", ran=slow, **names)


def test_legs_of_two_destinations(recorded):
    copies = {r.params["mode"]: r for r in recorded.values() if "mode" in r.params}
    base = copies["interleaved"].summary.median
    run("assert-two", copies=copies, base=base)

    def with_time(mode, share):
        return {
            "copies": copies | {mode: taking(copies[mode], share * base, predicted=share * base)}
        }

    fails("assert-two", "overlapping helps", base=base, **with_time("overlapped", 0.95))
    fails("assert-two", "taking turns helps more", base=base, **with_time("in turn", 0.75))
    late = copies | {"in turn": taking(copies["in turn"], 2 * base)}
    fails("assert-two", "the legs predict", base=base, copies=late)


def test_what_messages_cost_the_computing(recorded):
    loopback = recorded["computing beside messages, loopback"]
    link = recorded["computing beside messages, link"]

    def values(record, **changes):
        return replace(record, values=record.values | changes)

    good = (
        values(loopback, cpu_share=0.5, slow_down=1.5),
        values(link, cpu_share=0.1, slow_down=1.1),
    )
    run("assert-slow", loopback=loopback, link=link)
    run("assert-slow", loopback=good[0], link=good[1])
    busy = values(good[1], cpu_share=0.3)
    fails("assert-slow", "three times as busy", loopback=good[0], link=busy)
    for place, where in enumerate(("loopback", "link")):
        free = [*good[:place], values(good[place], slow_down=1.0), *good[place + 1 :]]
        names = {"loopback": free[0], "link": free[1]}
        fails("assert-slow", f"over {where} slow the products down", **names)
    run("early-end", loopback=good[0], link=good[1])
    waits = values(good[1], wait_ends_early_by=0.0001)
    fails("early-end", "milliseconds before", loopback=good[0], link=waits)


def test_the_librarys_gradients_are_compared():
    def layer(number):
        torch.manual_seed(number)
        return torch.nn.Linear(16, 16, bias=False)

    def loss(y, target):
        return (y * y).sum()

    names = {"layer": layer, "loss": loss}
    space = {"claim": claim, "torch": torch, "gradients": [torch.zeros(16, 16)] * 2, **names}
    with pytest.raises(ClaimFailed, match="those of one process"):
        exec(LESSON.sources["library-check"], space)
    right = space["alone"]()
    run("library-check", gradients=right, **names)
    fails("library-check", "those of one process", gradients=[2 * g for g in right], **names)


@pytest.mark.parametrize(
    ("stages", "ahead", "value", "what"),
    [(4, 1, 3.0, "four stages"), (8, 1, 1.0, "eight stages"), (16, 0, 1.0, "far slower")],
)
def test_what_the_model_says_at_scale(monkeypatch, stages, ahead, value, what):
    names = {"pictures": pictures, "ORDERED": Channel.ORDERED, "TAGGED": Channel.TAGGED}
    run("assert-scale", **names)
    true = pictures.slowness

    def false(schedule, channel, early=0, **sizes):
        wanted = ("eager 1f1b", Channel.ORDERED, ahead, stages)
        here = (schedule, channel, early, sizes["stages"])
        return value if here == wanted else true(schedule, channel, early, **sizes)

    monkeypatch.setattr(pictures, "slowness", false)
    fails("assert-scale", what, **names)
