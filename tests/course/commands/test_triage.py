"""Numbers or files go on a board of the field guide's rows, and lead to what to do next."""

import gzip
import json
import time

import torch
import torch.distributed as dist
from pytest import mark, raises
from torch.nn.parallel import DistributedDataParallel

from course.__main__ import main
from course.commands import triage
from course.lessons.casebook.cases import CASES
from course.logs import evidence, traces
from labkit import launch
from labkit.measure import Provenance, Record, Tier, records
from tests.course.logs import test_evidence as public

BYTES = {"wait": 0, "calls": 0}
LATE = {"wait": 0.9}
THREADS = [
    # name, the thread's milliseconds (step, without), what a checkup adds: shares of the
    # difference that it would find here, not published; the row of lesson or case, or the rows
    # among which these numbers cannot tell
    ("01", (2068.987, 0), {"queued": 0.6}, {3}),
    ("02", (280.682, 60), LATE, {2}),
    ("02, nobody late", (280.682, 60), BYTES, {5, 6, 7}),
    ("03", (43.6, 0), {"wait": 0, "calls": (43.6 - 26.8) / 43.6}, {4, 5, 6, 7}),
    ("05", (584.6, 396.8), BYTES, {5, 6, 7}),
    ("first-sum: 2.3 s its own", (742e3, 0), {"wait": 1 - 2.3 / 742}, {2}),
    ("stretches", (18458, 16715), LATE, {2}),
    ("averages", (43.7e3, 0), BYTES, {5, 6, 7}),
    ("idle-gpus: 73 % busy", (100, 73), {"queued": 1.2}, {3}),
    ("two-nodes", (2000, 910), BYTES, {5, 6, 7}),
    ("228-bytes", (4, 0), LATE, {2}),
    ("alltoall", (24160, 0), BYTES, {5, 6, 7}),
    ("above-the-wire: 4 MiB at 4.07 GB/s", (1.03, 0), BYTES, {5, 6, 7}),
]


def suspected(*times, **measured):
    """Rows that stand, on the board; if none does, those that these numbers cannot tell apart."""
    findings = evidence.of_numbers(*times, **measured)
    board = triage.board_of({"numbers": ("checkup", findings)})
    stand = {int(row) for row in board.suspects if board.state(row) == "stands"}
    return stand or {one.row for one in findings if one.guilty is None}


@mark.parametrize(("name", "times", "shares", "rows"), THREADS, ids=[one[0] for one in THREADS])
def test_public_threads_lead_to_their_row(name, times, shares, rows):
    lost = times[0] - times[1]
    assert suspected(*times, **{key: share * lost for key, share in shares.items()}) == rows
    assert 2 in suspected(*times), "a thread's figures alone do not say who waits"


def test_every_case_was_tried():
    assert set(CASES) < {name.split(":")[0].split(",")[0] for name, *_ in THREADS}


def test_computing_stands_or_falls_and_nonsense_is_refused():
    assert suspected(100, 96) == {1}
    computing = [evidence.of_numbers(100, without)[0].guilty for without in (50, 88)]
    assert computing == [False, None], "88 %: some of both"
    for nonsense in ((100, -1), (0, 0), (float("nan"), 0)):
        with raises(ValueError, match="milliseconds"):
            evidence.of_numbers(*nonsense)


VALUES = {
    "input": [0.003, 0.02, 0.003], "compute": [0.011, 0.011, 0.009],
    "exposed": [0.032, 0.015, 0.034], "wait": [0.018, 0.0, 0.02],
    "queued for CPU": [0.001, 0.001, 0.001], "calls": 4, "latency": 0.0002,
}  # fmt: skip


def checkup(path, values=VALUES):
    here = Provenance.here()
    made = Record("checkup", "a step", {}, [[0.04]], Tier.MEASURED, here, values=values)
    return records.save([made], path)


def test_a_checkups_record_is_read_alone_and_with_a_log(tmp_path, capsys):
    given = ["triage", str(checkup(tmp_path / "checkup.json"))]
    assert main(given) == 0
    printed = capsys.readouterr().out
    assert "2  a rank that comes late" in printed and "● stands" in printed
    assert "Row 2. Waiting for whom?" in printed and "case 228-bytes" in printed
    assert "1  computing, not communication                        ✘ fell, by A" in printed
    (tmp_path / "nccl.log").write_text(public.SOCKETS + public.SEVERAL)
    assert main([*given, str(tmp_path / "nccl.log")]) == 0
    printed = capsys.readouterr().out
    assert "Read: A = checkup.json, B = nccl.log" in printed
    assert "Row 2." in printed and "Row 6." in printed and "nccl.log, line 3" in printed


@mark.parametrize(
    ("text", "says"),
    [
        ("Dear sirs", "It begins"),
        ("rank  input ms  compute ms\n", "give its checkup.json instead"),
        ('{"a": 1}', "no JSON of nccl-tests"),
        ('{"version": 3, "records": [', "is no file of labkit records"),
        ("", "is empty"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, capsys, text, says):
    (tmp_path / "given").write_text(text)
    old = checkup(tmp_path / "checkup.json", {"input": [1.0]})
    assert main(["triage", str(tmp_path / "given"), str(old), str(tmp_path / "nothere")]) == 2
    out, error = capsys.readouterr()
    assert not out and error.count("\n") == 3 and says in error
    assert "holds no record of a checkup" in error
    assert "nothere: No such file or directory" in error


def test_a_log_that_speaks_of_no_row_leads_to_the_next_experiment(tmp_path, capsys):
    (tmp_path / "nccl.log").write_text(public.WORKSTATION)
    assert main(["triage", str(tmp_path / "nccl.log")]) == 0
    printed = capsys.readouterr().out
    assert "Nothing read speaks for or against a row. Next: B, the checkup" in printed
    assert "TCP" not in printed and "●" not in printed


def test_the_files_of_one_jobs_processes_are_compared(tmp_path, capsys):
    """NCCL_DEBUG_FILE=nccl.%h.%p.log: no file alone has two hosts."""
    paths = [tmp_path / f"nccl.{host}.log" for host in "ab"]
    paths[0].write_text(public.cards("a", 8) + public.VERSIONS.splitlines(keepends=True)[0])
    paths[1].write_text(public.cards("b", 7) + public.VERSIONS.splitlines(keepends=True)[1])
    assert main(["triage", *map(str, paths)]) == 0
    printed = capsys.readouterr().out
    assert "A = 2 logs of NCCL, as of one job" in printed
    assert "b: 7 cards, where other hosts have 8 (nccl.b.log, line 1)" in printed
    assert "NCCL 2.27.5 on a (nccl.a.log, line 2), NCCL 2.28.7 on b (nccl.b.log, line 2)" in printed
    assert "Next: ibstat on b" in printed


def profiled(folder):
    layers = [torch.nn.Linear(64, 64) for _ in range(4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.02)
    plan = torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1)

    def save(profile):
        profile.export_chrome_trace(str(folder / f"rank{dist.get_rank()}.json"))

    with torch.profiler.profile(schedule=plan, on_trace_ready=save) as profile:
        for _ in range(4):
            time.sleep(0.2 if dist.get_rank() == 1 else 0.001)
            model(torch.ones(4, 64)).sum().backward()
            profile.step()


@mark.slow
def test_torchs_traces_of_ddp_lead_to_the_late_rank_one_alone_to_no_verdict(tmp_path, capsys):
    launch(profiled, tmp_path, world_size=3)
    paths = sorted(tmp_path.glob("rank*.json"))
    assert main(["triage", *map(str, paths)]) == 0
    printed = capsys.readouterr().out
    assert "Read: A = traces, 3 of them" in printed and "Row 2." in printed
    events = traces.read(paths[0])
    assert traces.numbers([events])["wait"] is None
    assert traces.numbers([events, traces.read(paths[1])])["wait"] > 15


def event(name, begin, length, **more):
    return {"ph": "X", "name": name, "cat": "kernel", "ts": begin, "dur": length} | more


def test_kernels_count_and_what_computing_hides_does_not(tmp_path):
    small = {"args": {"In msg nelems": 64}}
    rank = [
        event("ProfilerStep#1", 0, 10_000, cat="user_annotation"),
        event("void gemm", 0, 6_000),
        event("aten::mm", 6_000, 4_000, cat="cpu_op"),  # the host hides no kernel
        event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 4_000, 3_000, **small),
        event("nccl:all_reduce", 4_000, 5_000, cat="user_annotation"),
    ]
    late = [*rank[:2], event(rank[3]["name"], 6_000, 1_000, **small)]
    found = traces.numbers([rank, late, late])
    assert found["without"] == found["step"] - 1 and found["calls"] == 3
    assert traces.numbers([rank, rank])["wait"] == 0
    own = event("gloo:all_reduce", 0, 11_000, cat="user_annotation")
    for wrong, says in (
        (rank[:2], "no collective"),
        ([rank[0], rank[4]], "without their kernels"),
        ([rank[0], own], "record every step"),
    ):
        with raises(ValueError, match=says):
            traces.numbers([wrong])
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": rank}).encode()))
    assert traces.read(path) == rank


def test_it_asks_four_numbers(monkeypatch, capsys):
    answers = iter(["100", "60 ms", "many", "30", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    assert main(["triage"]) == 0
    printed = capsys.readouterr().out
    assert "no number" in printed and "Row 2" in printed and "case 228-bytes" in printed
