"""Four numbers, or a file, lead to the row of the field guide; the guide names what there is."""

import gzip
import json
import time
from pathlib import Path

import torch
import torch.distributed as dist
from pytest import mark, raises
from torch.nn.parallel import DistributedDataParallel

from course import traces, triage
from course.__main__ import main
from course.lessons.casebook.cases import CASES
from labkit import launch
from labkit.measure.timeline import Timeline, save_chrome
from labkit.measure.trace import Clock, Kind, RankTrace, Span

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "FIELD_GUIDE.md").read_text()

THREADS = [
    # lesson 02's thread: 22 calls; the last six take 280 ms, where 60 would do; no wait is known
    ("02, unknown wait", {"step": 700, "without": 400}, 2),
    # the same, once waiting by call has been measured and is small: bytes over a rate
    ("02, wait measured", {"step": 700, "without": 400, "wait": 10, "calls": 2}, 5),
    # lesson 01's: calls of 400 bytes, each a latency
    ("01", {"step": 386, "without": 1, "wait": 0, "calls": 386}, 4),
    # lesson 03's: 43.6 ms, of which 320 calls of 52 us
    ("03", {"step": 43.6, "without": 0, "wait": 0, "calls": 16.8}, 5),
    # lesson 04's: 53.3 ms for 400 MB
    ("04", {"step": 53.3, "without": 0, "wait": 0, "calls": 0.02}, 5),
    # NVIDIA/nccl 701: 4 ms for 228 bytes, suspected: one GPU comes 4 ms late
    ("228-bytes", {"step": 100, "without": 80, "wait": 19, "calls": 0.1}, 2),
    # meta-pytorch/torchtitan 4031: threads
    ("idle-gpus", {"step": 100, "without": 95, "queued": 60}, 3),
    # huggingface/accelerate 1153: 2 s against 0.91 s
    ("two-nodes", {"step": 2000, "without": 500, "wait": 50, "calls": 10}, 5),
]


@mark.parametrize(("name", "numbers", "row"), THREADS, ids=[name for name, *_ in THREADS])
def test_public_threads_lead_to_their_row(name, numbers, row):
    found = triage.place(**numbers)
    assert found[0][0].number == row
    if row == 5:
        assert [one.number for one, _ in found] == [5, 6, 7], "the link comes after the bytes"


def test_computing_is_said_first_and_nonsense_is_refused():
    assert triage.place(100, 95)[0][0].number == 1
    with raises(ValueError, match="milliseconds"):
        triage.place(100, -1)


def test_the_guide_has_eight_rows_and_every_case_is_in_them():
    rows = triage.guide()
    assert sorted(rows) == [*range(1, 9)]
    assert all(row.question and row.measure and row.remedy for row in rows.values())
    assert {name for row in rows.values() for name in row.cases} == set(CASES)
    assert len(GUIDE.split()) < 1100, "one page"


CHECKUP = """\
rank  input ms  compute ms  pack ms  wait ms  move ms  exposed ms  hidden ms  delayed all by  on CPU  queued for CPU     (ms per step, 10 steps)
   0      3.06       10.80     0.00    17.84    14.12       31.96       4.42            0.00   15.38           6.90
   1     20.25       11.46     0.00     0.00    14.68       14.68       7.12           19.77   16.26           6.31
   2      2.89        8.84     0.00    19.72    14.41       34.13       4.27            0.00   14.99           6.25
calls per step: 4
"""  # noqa: E501


def test_a_checkup_is_read_and_a_file_of_nothing_is_refused(tmp_path, capsys):
    (tmp_path / "checkup.txt").write_text(CHECKUP)
    (tmp_path / "letter.txt").write_text("Dear sirs")
    assert main(["triage", str(tmp_path / "checkup.txt")]) == 0
    assert "Row 2. Waiting for whom?" in capsys.readouterr().out
    assert main(["triage", str(tmp_path / "letter.txt")]) == 1
    assert "It begins" in capsys.readouterr().err


INFO = """\
node1:1:2 [0] NCCL INFO NET/IB : No device found.
node1:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>
node1:1:2 [0] NCCL INFO Using network Socket
"""


def test_nccls_own_log_leads_to_the_link(tmp_path, capsys):
    (tmp_path / "nccl.log").write_text(INFO)
    assert main(["triage", str(tmp_path / "nccl.log")]) == 0
    told = capsys.readouterr().out
    assert "Row 6" in told and "TCP" in told and "nccl.log" in told


def profiled(folder):
    layers = [torch.nn.Linear(64, 64) for _ in range(4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.02)
    plan = torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1)

    def save(profile):
        profile.export_chrome_trace(str(folder / f"rank{dist.get_rank()}.json"))

    with torch.profiler.profile(schedule=plan, on_trace_ready=save) as profile:
        for _ in range(4):
            time.sleep(0.05 if dist.get_rank() == 1 else 0.001)
            model(torch.ones(4, 64)).sum().backward()
            profile.step()


def test_torchs_traces_of_ddp_lead_to_the_late_rank_one_alone_to_no_verdict(tmp_path, capsys):
    launch(profiled, tmp_path, world_size=3)
    paths = sorted(tmp_path.glob("rank*.json"))
    assert main(["triage", *map(str, paths)]) == 0
    assert "traces of 3 ranks:\n  Row 2" in capsys.readouterr().out
    (events,) = traces.read(paths[0])
    alone = traces.numbers([events])
    assert alone["wait"] is None and alone["step"] - alone["without"] > 25
    assert traces.numbers([*traces.read(paths[0]), *traces.read(paths[1])])["wait"] > 15


def event(name, begin, length, **more):
    return {"ph": "X", "name": name, "cat": "kernel", "ts": begin, "dur": length} | more


def test_kernels_count_and_what_computing_hides_does_not(tmp_path):
    small = {"args": {"In msg nelems": 64}}
    rank = [
        event("ProfilerStep#1", 0, 10_000, cat="user_annotation"),
        event("void gemm", 0, 6_000),
        event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 4_000, 3_000, **small),
        event("nccl:all_reduce", 4_000, 5_000, cat="user_annotation"),
    ]
    late = [*rank[:2], event(rank[2]["name"], 6_000, 1_000, **small)]
    found = traces.numbers([rank, late, late])
    assert found["without"] == found["step"] - 1 and found["calls"] == 3
    assert traces.numbers([rank, rank])["wait"] == 0
    with raises(ValueError, match="no collective"):
        traces.numbers([rank[:2]])
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": rank}).encode()))
    assert traces.read(path) == [rank]


def test_labkits_own_trace_is_read(tmp_path):
    spans = [
        [rank, name, kind, begin, end]
        for rank, late in ((0, 1.0), (1, 3.0))
        for name, kind, begin, end in (
            ("input", "input", 0.0, late),
            ("sum", "collective", late, 4.0),
        )
    ]
    made = [Span(rank, name, Kind(kind), *times) for rank, name, kind, *times in spans]
    clock = Clock(0.0, 0.0)
    ranks = [RankTrace(r, clock, tuple(s for s in made if s.rank == r)) for r in (0, 1)]
    path = save_chrome(Timeline(ranks), tmp_path / "own.json")
    found = traces.numbers(traces.read(path))
    assert found["step"] == 4e3 and found["wait"] == 1e3


def test_it_asks_four_numbers(monkeypatch, capsys):
    answers = iter(["100", "60 ms", "many", "30", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    assert main(["triage"]) == 0
    told = capsys.readouterr().out
    assert "no number" in told and "Row 2" in told and "case 228-bytes" in told


def test_without_a_clone_it_says_what_it_needs(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(triage, "ROOT", tmp_path)
    assert main(["triage", "some.log"]) == 1
    assert "triage needs a clone" in capsys.readouterr().err
