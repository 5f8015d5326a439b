from course.__main__ import main

LOG = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 1048576 warmup iters: 5 iters: 20 validation: 1
# Using devices
#  Rank  0 Group  0 Pid   4242 on   gpu-box device  0 [0x07] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid   4242 on   gpu-box device  1 [0x46] NVIDIA A100-SXM4-40GB
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    64.00   16.38   16.38      0    65.54   16.00   16.00      0
# Avg bus bandwidth    : 16
"""  # noqa: E501


def test_logs_become_a_page_and_what_is_none_is_left_out(tmp_path, capsys):
    log, out = tmp_path / "all_reduce.log", tmp_path / "report.html"
    log.write_text(LOG)
    (tmp_path / "notes.txt").write_text("nothing measured here")
    files = [log, tmp_path / "notes.txt", tmp_path / "gone.log"]
    assert main(["report", *map(str, files), "--out", str(out)]) == 1
    page, shown = out.read_text(), capsys.readouterr()
    assert "all_reduce, 1 x 2" in page and "2 x NVIDIA A100-SXM4-40GB" in page
    assert "2 records of 1 files, no problems" in shown.out
    assert "notes.txt holds no test of nccl-tests" in shown.err and "gone.log" in shown.err


def test_the_wire_may_be_given_and_the_hosts_be_numbered(tmp_path):
    log = tmp_path / "all_reduce.log"
    log.write_text(LOG.replace("4242 on   gpu-box device  1", "4243 on   gpu-two device  0"))
    for wire, above in (("12.5", True), ("25", False)):
        out = tmp_path / f"{wire}.html"
        assert main(["report", str(log), "--anonymous", "--wire", wire, "--out", str(out)]) == 0
        page = out.read_text()
        assert ("above the wire" in page) == above
        assert "host 1, host 2" in page and "gpu-" not in page


def test_nothing_but_damage_is_no_report(tmp_path, capsys):
    log = tmp_path / "cut.log"
    log.write_text(LOG[: LOG.index("     1048576")])
    assert main(["report", str(log), "--out", str(tmp_path / "no.html")]) == 2
    assert "a test began and printed no figures" in capsys.readouterr().err
    assert not (tmp_path / "no.html").exists()
