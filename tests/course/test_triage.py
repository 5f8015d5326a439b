"""Four numbers, or a file, lead to the row of the field guide; the guide names what there is."""

from pathlib import Path

from pytest import mark, raises

from course import triage
from course.__main__ import main
from course.lessons.casebook.cases import CASES

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


def test_it_asks_four_numbers(monkeypatch, capsys):
    answers = iter(["100", "60 ms", "many", "30", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    assert main(["triage"]) == 0
    told = capsys.readouterr().out
    assert "no number" in told and "Row 2" in told and "case 228-bytes" in told
