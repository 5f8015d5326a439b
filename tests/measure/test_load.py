"""How busy the machine was: against work that is known to be done, and by hand."""

import time

from pytest import approx, mark

from labkit.measure import load

STAT = "cpu  {user} 20 30 {idle} 50 60 70 80 9 9\ncpu0 1 2 3 4 5 6 7 8 9 9\n"


@mark.timed
@mark.skipif(load._busy_seconds() is None, reason="this system does not tell")
def test_own_work_counts():
    start = time.perf_counter()
    with load.watch() as measured:
        end = time.thread_time() + 0.5
        while time.thread_time() < end:
            pass
    wall = time.perf_counter() - start
    assert measured.busy * wall > 0.8 * 0.5, "others may add to it, none can take from it"


def test_all_but_idle_time_is_busy(tmp_path, monkeypatch):
    stat = tmp_path / "stat"
    monkeypatch.setattr(load, "_STAT", stat)
    monkeypatch.setattr(load.os, "sysconf", lambda name: {"SC_CLK_TCK": 100}[name])
    clock = iter([10.0, 12.0])
    monkeypatch.setattr(load.time, "perf_counter", lambda: next(clock))
    stat.write_text(STAT.format(user=100, idle=1000))
    with load.watch() as measured:
        stat.write_text(STAT.format(user=400, idle=9000))
    assert measured.busy == approx(1.5), "300 ticks of 10 ms in 2 s; idle ones do not count"


def test_interrupts_and_stolen_time_are_busy(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "_STAT", tmp_path / "stat")
    monkeypatch.setattr(load.os, "sysconf", lambda name: 100)
    (tmp_path / "stat").write_text(STAT.format(user=10, idle=99999))
    assert load._busy_seconds() == approx((10 + 20 + 30 + 60 + 70 + 80) / 100)


def test_where_nobody_tells_it_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "_STAT", tmp_path / "absent")
    with load.watch() as measured:
        pass
    assert measured.busy is None
