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

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "FIELD_GUIDE.md").read_text()

BYTES = {"wait": 0, "calls": 0}
LATE = {"wait": 0.9}
THREADS = [
    # name, the thread's milliseconds (step, without), what a checkup adds: shares of the
    # difference that it would find here, not published; the path to the row of lesson or case
    ("01", (2068.987, 0), {"queued": 0.6}, [3]),
    ("02", (280.682, 60), LATE, [2]),
    ("02, nobody late", (280.682, 60), BYTES, [5, 6, 7]),
    ("03", (43.6, 0), {"wait": 0, "calls": (43.6 - 26.8) / 43.6}, [5, 4]),
    ("04", (53.3, 0), BYTES, [5, 6]),
    ("05", (584.6, 396.8), BYTES, [5, 6, 7]),
    ("06", (211.8, 0), BYTES, [5]),
    ("07: 16 GiB at 5.13 GB/s", (3349, 0), BYTES, [5, 6]),
    ("first-sum: 2.3 s its own", (742e3, 0), {"wait": 1 - 2.3 / 742}, [2]),
    ("stretches", (18458, 16715), LATE, [2]),
    ("averages", (43.7e3, 0), BYTES, [5]),
    ("idle-gpus: 73 % busy", (100, 73), {"queued": 1.2}, [3]),
    ("two-nodes", (2000, 910), BYTES, [5]),
    ("228-bytes", (4, 0), LATE, [2]),
    ("alltoall", (24160, 0), BYTES, [5, 6]),
    ("above-the-wire: 4 MiB at 4.07 GB/s", (1.03, 0), BYTES, [5, 6]),
]


@mark.parametrize(("name", "times", "shares", "path"), THREADS, ids=[one[0] for one in THREADS])
def test_public_threads_lead_to_their_row(name, times, shares, path):
    lost = times[0] - times[1]
    measured = {key: share * lost for key, share in shares.items()}
    found = triage.place(*times, **measured)
    assert [row.number for row, _ in found][: len(path)] == path
    ((first, because), *_) = triage.place(*times)
    assert first.number == 2 and "not known" in because, "a thread's figures alone"


def test_every_lesson_and_case_was_tried():
    tried = {name.split(":")[0].split(",")[0] for name, *_ in THREADS}
    assert tried == {f"0{n}" for n in range(1, 8)} | set(CASES)


def test_computing_is_said_first_and_nonsense_is_refused():
    assert triage.place(100, 96)[0][0].number == 1
    with raises(ValueError, match="milliseconds"):
        triage.place(100, -1)


def test_the_guide_has_eight_rows_and_every_case_is_in_them():
    rows = triage.guide()
    assert sorted(rows) == [*range(1, 9)]
    assert all(row.question and row.measure and row.remedy for row in rows.values())
    assert {name for row in rows.values() for name in row.cases} == set(CASES)
    assert len(GUIDE.split()) < 1100, "one page"


CHECKUP = """\
ms per step, 10 steps
rank  input ms  compute ms  pack ms  wait ms  move ms  exposed ms  hidden ms  delayed all by  on CPU  queued for CPU
----  --------  ----------  -------  -------  -------  ----------  ---------  --------------  ------  --------------
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
    printed = capsys.readouterr().out
    assert "Row 6" in printed and "TCP" in printed and "nccl.log" in printed


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
    assert "traces, 3 of them:\n  Row 2" in capsys.readouterr().out
    events = traces.read(paths[0])
    alone = traces.numbers([events])
    assert alone["wait"] is None and alone["step"] - alone["without"] > 25
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
    with raises(ValueError, match="no collective"):
        traces.numbers([rank[:2]])
    with raises(ValueError, match="without their kernels"):
        traces.numbers([[rank[0], rank[4]]])
    with raises(ValueError, match="record every step"):
        traces.numbers([[rank[0], event("gloo:all_reduce", 0, 11_000, cat="user_annotation")]])
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": rank}).encode()))
    assert traces.read(path) == rank


def test_it_asks_four_numbers(monkeypatch, capsys):
    answers = iter(["100", "60 ms", "many", "30", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    assert main(["triage"]) == 0
    printed = capsys.readouterr().out
    assert "no number" in printed and "Row 2" in printed and "case 228-bytes" in printed
