import dataclasses
import json
import re

from course import report, run
from course.__main__ import main
from labkit.measure import records
from labkit.measure.records import Provenance, Record, Tier
from labkit.ranks.torchrun import Node


def measured(path):
    record = Record("other", "a case", {"n": 2}, [[1e-3, 3e-3], [2e-3, 1e-3]], Tier.MEASURED,
                    Provenance.here(), collective="all_reduce", nbytes=1000)  # fmt: skip
    return records.save([record], path)


def test_the_report_recomputes_from_samples_and_embeds_them(tmp_path):
    path, out = measured(tmp_path / "other.json"), tmp_path / "report.html"
    assert main(["report", str(path), "--out", str(out)]) == 0
    page = out.read_text()
    assert "2500" in page, "the median of the slowest rank per iteration, in µs"
    embedded = re.search(r'<script [^>]*id="records-other">(.*?)</script>', page, re.S)
    assert json.loads(embedded[1])["records"][0]["samples"] == [[1e-3, 3e-3], [2e-3, 1e-3]]


def test_every_run_and_every_node_is_told(tmp_path):
    mine = measured(tmp_path / "mine" / "other.json")
    (record,) = records.load(mine)
    there = dataclasses.replace(record.provenance.machine, cpu_model="Abacus 9", memory=1)
    nodes = (Node((0, 1), there), Node((2, 3), there))
    origin = dataclasses.replace(record.provenance, machine=there, nodes=nodes)
    cluster = dataclasses.replace(
        record, samples=[[1e-4, 2e-4]] * 2, nbytes=8000, provenance=origin
    )
    theirs = records.save([cluster], tmp_path / "theirs" / "other.json")
    assert records.load(theirs)[0].provenance == origin
    page = str(report.page({path: report._load(path) for path in (mine, theirs)}))
    assert "node 0, ranks 0 to 1" in page and "node 1, ranks 2 to 3" in page
    assert 'id="records-mine/other"' in page and 'id="records-theirs/other"' in page
    assert str(tmp_path) not in page


def test_only_what_comes_from_elsewhere_is_called_recorded(tmp_path):
    (mine,) = records.load(measured(tmp_path / "a.json"))
    there = dataclasses.replace(mine.provenance.machine, cpu_model="Abacus 9")
    theirs = dataclasses.replace(
        mine, provenance=dataclasses.replace(mine.provenance, machine=there)
    )
    path = records.save([mine, theirs], tmp_path / "mixed.json")
    assert [record.tier for record in report._load(path)] == [Tier.MEASURED, Tier.RECORDED]


LOG = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 1048576 warmup iters: 5 iters: 20 validation: 1
# Using devices
#  Rank  0 Group  0 Pid   4242 on   gpu-box device  0 [0x07] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid   4242 on   gpu-box device  1 [0x46] NVIDIA A100-SXM4-40GB
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    64.00   16.38   16.38      0    65.54   16.00   16.00      0
# Avg bus bandwidth    : 16
"""  # noqa: E501


def test_other_tools_logs_are_read_beside_records(tmp_path, capsys):
    mine, log = measured(tmp_path / "other.json"), tmp_path / "all_reduce.log"
    log.write_text(LOG)
    (tmp_path / "notes.txt").write_text("nothing measured here")
    out = tmp_path / "report.html"
    files = [str(mine), str(log), str(tmp_path / "notes.txt")]
    assert main(["report", *files, "--out", str(out)]) == 0
    page, told = out.read_text(), capsys.readouterr()
    assert "all_reduce, 1 x 2" in page and "2 x NVIDIA A100-SXM4-40GB" in page
    assert "2500" in page, "my own record is there as well"
    assert "all_reduce.log: nccl-tests, 2 records, no problems" in told.out
    assert "3 records of 2 runs" in told.out
    assert "notes.txt is neither a record file nor a log" in told.err


def test_the_wire_may_be_told(tmp_path, capsys):
    log = tmp_path / "all_reduce.log"
    log.write_text(LOG.replace("4242 on   gpu-box device  1", "4243 on   gpu-two device  0"))
    for wire, above in (("12.5", True), ("25", False)):
        out = tmp_path / f"{wire}.html"
        assert main(["report", str(log), "--wire", wire, "--out", str(out)]) == 0
        assert ("above the wire" in out.read_text()) == above


def test_nothing_but_damage_is_no_report(tmp_path, capsys):
    log = tmp_path / "cut.log"
    log.write_text(LOG[: LOG.index("     1048576")])
    assert main(["report", str(log), "--out", str(tmp_path / "no.html")]) == 2
    assert "a test began and printed no figures" in capsys.readouterr().err
    assert not (tmp_path / "no.html").exists()


def test_the_report_takes_the_latest_of_each_experiment(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 1
    assert "course run" in capsys.readouterr().err
    for day in ("20260101", "20260102"):
        measured(tmp_path / run.RUNS / day / "gloo-scaling.json")
    (found,) = run.found_runs()
    assert "20260102" in str(found)


def test_a_file_that_holds_no_records_is_named(tmp_path, capsys):
    path = tmp_path / "x.json"
    path.write_text("{}")
    assert report.main(type("Options", (), {"files": [path], "out": tmp_path / "r"})) == 2
    assert "x.json" in capsys.readouterr().err
