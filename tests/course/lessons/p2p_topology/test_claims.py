"""Every claim of lesson 04 fails where it is false: its cells, run on made-up records."""

import dataclasses

import pytest

from course.lessons.p2p_topology import experiment, programs
from course.lessons.p2p_topology.topology import PUZZLE
from tests.course.lessons.cells import Cells

CORE, DEEPER = Cells("04_p2p_topology"), Cells("deeper/04_deeper")


def record(way, chunk, seconds):
    fields = experiment.expected("way", [way], seconds, chunk=chunk)
    return dataclasses.replace(experiment.modelled("x", fields), others=0.0)


def long(whole, cut):
    return {"long": {"a": record([0, 4], 2e6, whole), "b": record([0, 4], 62_500, cut)}}


def swept(whole=0.35, fair=0.19):
    times = {2_000_000: whole, 125_000: fair, 32_000: 0.18, 8_000: 0.2}
    sweep = {size: record([0, 4, 3], size, time) for size, time in times.items()}
    return {"sweep": sweep, "sizes": list(times), "best": 30e3}


def paths(one, two):
    return {"every": {"one relay": record([0, 2], 1, one), "two relays": record([0, 2], 1, two)}}


CLAIMS = [
    (CORE, "long-verdict", long(0.69, 0.2), long(0.69, 0.4), "the hops overlap"),
    (DEEPER, "sweep-verdict", swept(), swept(whole=0.2), "one piece takes a fifth longer"),
    (DEEPER, "sweep-verdict", swept(), swept(fair=0.15), "within 15 % of the best"),
    (DEEPER, "every-claim", paths(0.18, 0.09), paths(0.18, 0.17), "less than three quarters"),
]


@pytest.mark.parametrize(("lesson", "cell", "true", "false", "words"), CLAIMS, ids=range(4))
def test_a_claim_holds_only_for_figures_that_bear_it_out(lesson, cell, true, false, words):
    lesson.hold(cell, true=true, false=false, words=words)


def test_the_theory_holds_as_the_lesson_says(capsys):
    names = CORE.run("alone", "predict-ratio", "theory")
    assert "for 27 of 28 pairs within 5 %, but not for [(2, 3)]" in capsys.readouterr().out
    assert PUZZLE.gpus == 8
    assert names["board"].state("b") == "stands"


SHOWN = {"copies": programs.three_copies, "relay": programs.two_slots, "pass-on": programs.pass_on}


@pytest.mark.parametrize(("cell", "program"), SHOWN.items())
def test_the_cell_has_the_program_that_our_run_has(cell, program):
    theirs, ours = CORE.both(cell, program)
    assert theirs == ours


def test_arms_are_added_and_renamed_as_one_likes(monkeypatch):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")
    arms = {"x": {"way": [0, 5, 2]}, "y": {"way": [0, 2]}, "z": {"way": [0, 7, 2]}}
    arms["last"] = {"way": [0, 5, 2], "chunk": experiment.CHUNK, "slots": 2}
    relayed = experiment.compare(programs.pass_on, arms)
    assert list(relayed) == list(arms)
    given = {"arms": arms, "relayed": relayed, "direct": experiment.time_copies()[1]}
    assert "times as fast over a relay" in CORE.run("best", **given)["by_relay"]


RECEIVERS = [(0, (1, 2, 4)), (3, (1, 2, 1)), (4, (1, 2, 3)), (8, (1, 2, 4))]


@pytest.mark.parametrize(("gpus", "to"), RECEIVERS)
def test_the_three_copies_go_to_gpus_that_are_there(gpus, to, monkeypatch):
    monkeypatch.setattr(programs, "gpu_count", lambda: gpus)
    assert programs.receivers() == to
