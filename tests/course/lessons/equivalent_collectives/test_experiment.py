"""The ways to sum, on real ranks: right, counted, timed; and the lesson's own cells."""

import contextlib
import io
from unittest import mock

import numpy as np
import pytest
import torch.distributed as dist

from course import catalogue
from course.lessons.equivalent_collectives import evidence, experiment, pictures, programs
from course.place import Place, launch
from course.runs import in_world
from labkit.measure import wire
from labkit.measure.records import Tier
from labkit.show import plots
from tests.course.lessons.cells import Cells
from tests.course.lessons.equivalent_collectives.test_checks import crossing, folded, ring

pytestmark = pytest.mark.slow

ALL = programs.WAYS | programs.STEPS | programs.CONTROL
SMALL = 4 * 2 * 4096 * 4 * 4  # bytes; they and a quarter divide by 2 x 4096 x 4 ranks
LOCAL, THREE = Place(hosts=1, ranks_per_host=4), Place(hosts=1, ranks_per_host=3)
CELLS = Cells("06_equivalent_collectives")

counted = pytest.mark.skipif(wire.unavailable() is not None, reason="no wire meter here")


@pytest.fixture(scope="module")
def local():
    return experiment.compare(ALL, nbytes=SMALL, place=LOCAL, iters=2)


@counted
def test_bytes_are_those_of_the_algorithms(local):
    sent = {name: np.sum(r.values["matrix"], axis=1).tolist() for name, r in local.items()}
    assert sent["all_reduce"] == sent["reduce_scatter"] == sent["ring all_reduce"] == [1.5] * 4
    assert sent["reduce_scatter + all_gather"] == [2.25] * 4
    assert sent["my ring + all_gather"] == [1.5] * 4
    assert sent["my ring"] == sent["all_gather"] == [0.75] * 4
    assert sent["broadcast"] == [2, 1, 0, 0]


def test_every_record_says_what_it_is(local):
    sums = {name for name, record in local.items() if record.values["right"]}
    assert sums == {*programs.WAYS, "my ring + all_gather", "ring all_reduce"}
    assert {record.tier for record in local.values()} == {Tier.MEASURED}
    assert "all_reduce" in plots.alt_text.text_of(pictures.draw(list(local.values())))


def test_whole_and_quarter_take_turns_in_one_run():
    ways = {name: experiment.WAYS[name] for name in (evidence.ONE, evidence.TWO)}
    records = experiment.compare(ways, nbytes=SMALL, quarters=True, place=LOCAL, iters=3)
    assert {name: r.nbytes for name, r in records.items()} == {
        name + part: SMALL / (4 if part else 1) for part in ("", evidence.QUARTER) for name in ways
    }
    assert all(r.values["right"] and len(r.seconds) == 3 for r in records.values())


def test_without_links_the_recorded_run_is_shown(monkeypatch, capsys):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "test")
    assert list(experiment.compare(ALL)) == list(ALL)
    runs = experiment.compare(programs.WAYS, quarters=True)
    assert list(runs) == [name + part for part in ("", evidence.QUARTER) for name in programs.WAYS]
    assert {record.tier for record in runs.values()} == {Tier.RECORDED}
    assert runs["all_reduce, S/4"].nbytes == experiment.NBYTES / 4
    assert "Shown instead" in capsys.readouterr().out
    with pytest.raises(LookupError, match="nobody recorded"):
        experiment.compare({"all_reduce": dist.all_reduce, "other": print})


def test_a_learners_rule_runs_when_there_is_one(capsys):
    assert experiment.rule(max) is max  # a number, if a wrong one
    assert experiment.rule(lambda rank, step, n: ...)(3, 2, 4) == 0
    assert "of OUR ring" in capsys.readouterr().out


KEPT = in_world(catalogue.experiment(experiment.NAME).recorded(), "")
RUNS = {record.case: record for record in KEPT if record.nbytes == experiment.NBYTES}


def test_each_claim_can_fail():
    busiest = {name: max(map(sum, record.values["matrix"])) for name, record in RUNS.items()}
    halved = busiest | {"reduce_scatter": busiest["reduce_scatter"] / 2}
    whole, half = (
        {"runs": RUNS, "board": None, "longer": 1.5, "busiest": most} for most in (busiest, halved)
    )
    CELLS.hold("verdict", true=whole, false=half, words="sends as much as an all_reduce")
    slow = RUNS | {"my ring + all_gather": RUNS["reduce + broadcast"]}
    tie, loss = ({"controlled": x, "t": experiment.fastest(x)} for x in (RUNS, slow))
    CELLS.hold("control-verdict", true=tie, false=loss, words="as long as one all_reduce")
    spread = {record.case: record for record in KEPT if record.case in programs.TREES}
    shared = {"spread": spread | {"in turn": spread["gloo's broadcast"]}}
    words = "after two thirds of the time"
    CELLS.hold("turn-verdict", true={"spread": spread}, false=shared, words=words)


def groups_made(timed, function, *args):
    """Time a printed function; return how many groups were made meanwhile."""
    with mock.patch.object(dist, "new_group", wraps=dist.new_group) as new_group:
        timed(function, *args)
    return new_group.call_count


def test_ranks_that_do_not_divide_the_bytes_sum_a_little_less():
    records = experiment.compare(programs.WAYS, place=THREE, iters=1)
    assert all(record.values["right"] for record in records.values())
    (nbytes,) = {record.nbytes for record in records.values()}
    assert 0.9 * experiment.NBYTES < nbytes <= experiment.NBYTES and nbytes % (4 * 3) == 0


def test_the_printed_functions_are_timed_on_any_number_of_ranks_without_making_their_group(printed):
    names, _ = printed
    whole_sums = names["all_reduce_sum"], names["reduce_broadcast_sum"]
    records = experiment.as_printed(THREE, whole_sums, names["third"], 2**10)
    assert len(records) == 4 and {record.nbytes for record in records} == {4 * 1023}
    given = programs.timed, names["reduce_broadcast_sum"], 3, 1023
    assert launch(groups_made, *given, world_size=3) == [1] * 3


def test_the_long_repair_is_asked_for_no_more_than_memory_has():
    (room,) = launch(programs.most_floats, 2**20, world_size=1)
    assert room == 2**20, "on a CPU it is as wanted"
    assert launch(programs.most_floats, 2**20, world_size=3) == [2**20 - 1] * 3


@pytest.fixture(scope="module")
def printed():
    """What the cells of the printed functions leave, and what they print."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        names = CELLS.run("posted", "posted-run", "repair")
    return names, text.getvalue().splitlines()


def test_the_printed_functions_run_but_for_the_third(printed):
    _, lines = printed
    assert lines[:2] == ["all_reduce_sum runs", "reduce_broadcast_sum runs"]
    assert lines[2].startswith("reduce_scatter_all_gather_sum stops: ")
    assert len(lines) == 5 and lines[4].startswith("with your lengths it stops: ")


@pytest.mark.parametrize("counts", [pytest.param(True, marks=counted), False])
def test_the_long_repair_moves_n_times_the_bytes(counts, monkeypatch, capsys, printed):
    if not counts:  # by the recording
        monkeypatch.setattr(experiment, "_sent", lambda reports, nbytes: None)
    names = CELLS.run("repaired", **printed[0])
    assert names["more"] == 4
    assert "4 times the bytes" in capsys.readouterr().out


def test_the_tables_deeper_claims_hold():
    deeper = Cells("deeper/06_deeper")
    names = deeper.run("pipelining-table", "two-table")
    deeper.run("factor-run", "factor-verdict", **names)
    deeper.run("family-claim")
    with pytest.raises(AssertionError, match="kept out agree"):
        deeper.run("factor-verdict", fitted=30.0, found={("Ring", 2e9): 16.0})


def test_the_race_says_between_which_sizes_they_cross(capsys):
    table = experiment.race(crossing, ring, folded)
    assert len(table.rows) == 7
    assert "predicted: the two cross at" in capsys.readouterr().out
