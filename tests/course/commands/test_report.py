from course.__main__ import main
from tests.course.logs.test_logs import V2_13 as LOG


def test_logs_become_a_page_and_what_is_none_is_left_out(tmp_path, capsys):
    log, out = tmp_path / "all_reduce.log", tmp_path / "report.html"
    log.write_text(LOG)
    (tmp_path / "notes.txt").write_text("nothing measured here")
    files = [log, tmp_path / "notes.txt", tmp_path / "gone.log"]
    assert main(["report", *map(str, files), "--out", str(out)]) == 1
    page, shown = out.read_text(), capsys.readouterr()
    assert "all_reduce, 1 x 4" in page and "4 x NVIDIA A100-SXM4-40GB" in page
    assert "4 records of 1 files, no problems" in shown.out
    assert "notes.txt holds no test of nccl-tests" in shown.err and "gone.log" in shown.err


def test_the_wire_may_be_given_and_the_hosts_be_numbered(tmp_path):
    log = tmp_path / "all_reduce.log"
    log.write_text(LOG.replace("gpu-box device  1", "gpu-two device  1"))
    for wire, above in (("12.5", True), ("25", False)):
        out = tmp_path / f"{wire}.html"
        assert main(["report", str(log), "--anonymous", "--wire", wire, "--out", str(out)]) == 0
        page = out.read_text()
        assert ("above the wire" in page) == above
        assert "host 1, host 2" in page and "gpu-" not in page


def test_nothing_but_damage_is_no_report(tmp_path, capsys):
    log = tmp_path / "cut.log"
    log.write_text(LOG[: LOG.index("        1024")])
    assert main(["report", str(log), "--out", str(tmp_path / "no.html")]) == 2
    assert "a test began and printed no figures" in capsys.readouterr().err
    assert not (tmp_path / "no.html").exists()
