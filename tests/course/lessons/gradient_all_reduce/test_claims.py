"""Each claim of lesson 02 fails with records in which it is false."""

import dataclasses
from types import SimpleNamespace

import pytest

from course.lessons.gradient_all_reduce import experiment as problem
from course.lessons.gradient_all_reduce.faults import Fault
from course.lessons.gradient_all_reduce.model import expected_latest
from course.lessons.gradient_all_reduce.programs import (
    BARRIER,
    COMPRESSED,
    DELAYS,
    FINAL,
    LADDER,
    NOBODY_LATE,
    SWEEP,
    THREAD,
)
from course.runs import by_case
from labkit.measure.records import load
from labkit.measure.timeline import Timeline
from tests.course.lessons.cells import Cells, ClaimFailed

CELLS = Cells("02_gradient_all_reduce")
RUNS = by_case(load(problem.RECORDING, recorded=True))
BENCHMARK = [record for record in RUNS.values() if record.params["part"] == "benchmark"]
ONE_CALL = BENCHMARK[-1].summary.median


def with_values(record, **values):
    return dataclasses.replace(record, values=record.values | values)


def scaled(record, factor):
    """The same steps, so many times as long."""
    rows = [
        [*row[:3], row[3] * factor, row[4] * factor, *row[5:]] for row in record.values["spans"]
    ]
    return with_values(record, spans=rows)


def stub(records):
    """An experiment that returns these records, whatever it is asked."""
    return SimpleNamespace(
        **vars(problem) | {"measure": lambda *_, **__: records, "latest": lambda: records}
    )


def fails(claim, *cells, **names):
    with pytest.raises(ClaimFailed) as failure:
        CELLS.run(*cells, **names)
    assert claim in " ".join(str(failure.value).split())


def link(alpha):
    return CELLS.imported["AlphaBeta"](alpha, 4e-9)


def test_most_biases_are_latency_bound():
    CELLS.run("bound-picture", link=link(5e-3), benchmark=BENCHMARK)
    fails("most biases are latency-bound", "bound-picture", link=link(1e-9), benchmark=BENCHMARK)


def hunted(late):
    """A run of four ranks in which one comes 0.1 s late to its only collective, in five steps."""
    rows = []
    for step in range(1, 6):
        for rank in range(4):
            begin = step + (0.1 if rank == late else 0.0)
            rows.append([rank, "sum", "collective", begin, step + 0.2, "main", step, step, 4])
    seen = Timeline.from_rows(rows)
    return {"seen": seen, "in_calls": {r: [seen.seconds(r, "collective")] for r in seen.ranks}}


def test_the_late_rank_spends_least_time_in_its_calls(capsys):
    names = {"my_rank": 2, "my_cause": "slow input", "fault": Fault(4, rank=2, cause="slow input")}
    CELLS.run("reveal", **hunted(2), **names)
    assert "You had the rank right, the cause right." in capsys.readouterr().out
    fails("the late rank spends least time", "reveal", **hunted(1), **names)


def test_the_timers_show_more_than_the_benchmark(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))
    control = [RUNS[name] for name in (THREAD, BARRIER, NOBODY_LATE)]
    CELLS.run("experiment-run", problem=stub(control), one_call=ONE_CALL)
    fails("more than the benchmark", "experiment-run", problem=stub(control), one_call=1.0)


CONTROL = {"thread": RUNS[THREAD], "barrier": RUNS[BARRIER], "calm": RUNS[NOBODY_LATE]}


@pytest.mark.parametrize(
    ("claim", "false"),
    [
        ("the waiting is in the barrier now", {"barrier": RUNS[THREAD]}),
        ("take as long as before", {"barrier": scaled(RUNS[BARRIER], 3)}),
        ("on time, rank 2 delays nobody", {"calm": RUNS[THREAD]}),
        ("the moving stays", {"calm": scaled(RUNS[NOBODY_LATE], 0.1)}),
    ],
)
def test_the_control(claim, false):
    names = {"control": list(CONTROL.values()), "problem": problem}
    CELLS.run("control-run", **CONTROL, **names)
    fails(claim, "control-run", **CONTROL | false, **names)


def test_22_calls_take_longer_than_one():
    names = {"waiting": 0.1, "moving": 0.2, "one_call": 0.05, "link": link(5e-3), "control": []}
    CELLS.run("proportion-run", calm_moving=0.2, benchmark=[], **names)
    fails("22 calls take longer", "proportion-run", calm_moving=0.05, benchmark=[], **names)


def late(lost):
    """Records of the latest of n ranks that lost ``lost(name, n)`` seconds."""
    template = RUNS[THREAD]
    return [
        dataclasses.replace(
            template,
            case=f"late {name}, {n} ranks",
            params={"part": "latest", "delays": name},
            samples=[[lost(name, n)]] * n,
            values={"lost": lost(name, n), "calm": 0.0},
            predicted=expected_latest(DELAYS[name], n),
        )
        for name in DELAYS
        for n in problem.WORLD_SIZES
    ]


@pytest.mark.parametrize(
    ("claim", "lost"),
    [
        ("more than twice as much on 16 ranks as on 2", lambda name, n: 0.01),
        ("grow faster than frequent jitter", lambda name, n: 0.01 * n),
    ],
)
def test_the_latest_of_n(claim, lost, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))
    modelled = late(lambda name, n: expected_latest(DELAYS[name], n))
    CELLS.run("latest-run", problem=stub(modelled))
    fails(claim, "latest-run", problem=stub(late(lost)))


@pytest.mark.parametrize(
    ("claim", "case", "exposed"),
    [
        ("less than half of rung 1", FINAL, 1.0),
        ("one call exposes less than 22", "one flat tensor", 1.0),
    ],
)
def test_the_ladder(claim, case, exposed):
    ladder = [RUNS[name] for name in LADDER]
    CELLS.run("ladder-table", ladder=ladder, problem=problem)
    false = [with_values(r, exposed_best=exposed) if r.case == case else r for r in ladder]
    fails(claim, "ladder-table", ladder=false, problem=problem)


def test_every_rung_learns_the_same():
    ladder = [RUNS[name] for name in LADDER]
    CELLS.run("same-losses", thread=RUNS[THREAD], ladder=ladder)
    other = with_values(RUNS[FINAL], losses=[loss * 1.1 for loss in RUNS[FINAL].values["losses"]])
    fails("every rung learns the same", "same-losses", thread=RUNS[THREAD], ladder=[other])


def test_our_hooks_are_not_twice_as_slow_as_ddp():
    CELLS.run("ours-or-ddp", runs=RUNS, ladder=[])
    slow = dataclasses.replace(RUNS[FINAL], samples=[[9.0]])
    fails("not twice as slow", "ours-or-ddp", runs=RUNS | {FINAL: slow}, ladder=[])


@pytest.mark.parametrize(
    ("claim", "case", "values"),
    [
        ("22 calls keep the wire busy longer", "cap 2 MB", {"moving": 1.0}),
        ("one bucket for all hides behind nothing", "cap no limit", {"hidden": 0.05}),
    ],
)
def test_the_sweep(claim, case, values):
    sweep = [RUNS[name] for name in SWEEP]
    CELLS.run("sweep-run", problem=stub(sweep))
    false = [with_values(r, **values) if r.case == case else r for r in sweep]
    fails(claim, "sweep-run", problem=stub(false))


@pytest.mark.parametrize(
    ("claim", "case", "factor"),
    [
        ("2 (n - 1) / n = 1.5 S", "float32", 1.2),
        ("half of the bytes", "float16, DDP's hook", 2),
        ("half of the bytes", "bfloat16, our hooks", 2),
        ("half of the bytes", "every second step", 2),
        ("PowerSGD sends hardly anything", "PowerSGD of rank 2", 40),
    ],
)
def test_the_bytes(claim, case, factor):
    compressed = {name: RUNS[name] for name in COMPRESSED}
    CELLS.run("compress-claims", problem=problem, compressed=compressed)
    sent = factor * RUNS[case].values["sent"]
    false = compressed | {case: with_values(RUNS[case], sent=sent)}
    fails(claim, "compress-claims", problem=problem, compressed=false)


def test_every_claim_of_the_lesson_is_tried():
    assert CELLS.untried(__file__) == []
