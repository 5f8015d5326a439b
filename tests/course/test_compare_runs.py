"""Runs side by side: what they have in common, and in which measure."""

from dataclasses import replace

from pytest import approx, fixture, raises

from course import compare_runs
from labkit.measure.records import Provenance, Record, Tier
from labkit.show.alt_text import tables_of


@fixture
def record():
    return Record(
        "demo", "ring", {"hosts": 4, "rate": "1gbit"}, [[1e-3, 1e-3]], Tier.EMULATED,
        Provenance.here(), collective="broadcast", nbytes=2000,
    )  # fmt: skip


def compared(runs):
    (table,) = tables_of(compare_runs.draw_runs(runs))
    return table


def test_sizes_may_differ_where_bandwidth_is_compared(record):
    larger = replace(record, nbytes=8000, samples=[[2e-3, 2e-3]])
    table = compared({"here": [record], "there": [larger]})
    assert table.columns == ["case", "here: busbw [MB/s]", "there: busbw [MB/s]"]
    assert table.rows == [["ring", approx(2), approx(4)]]


def test_a_run_with_several_settings_has_a_mark_for_each(record):
    on_eight = replace(record, params={"hosts": 8, "rate": "1gbit"})
    under_torchrun = replace(record, params={"hosts": 16, "rate": "torchrun"})
    table = compared({"here": [record, on_eight], "there": [under_torchrun]})
    settings = ["here, 4 hosts, 1gbit", "here, 8 hosts, 1gbit", "there"]
    assert table.columns == ["case", *(f"{where}: busbw [MB/s]" for where in settings)]


def test_without_bytes_it_is_time_that_is_compared(record):
    timed = [replace(record, nbytes=None, params={"pairs": pairs}) for pairs in (1, 2)]
    table = compared({"here": timed, "there": timed})
    assert [row[0] for row in table.rows] == ["ring, pairs=1", "ring, pairs=2"]
    assert table.columns[1] == "here: time [ms]" and table.rows[0][1] == approx(1)


def test_cases_of_one_run_only_are_left_out(record):
    alone = replace(record, case="alone")
    table = compared({"a": [record, alone], "b": [record]})
    assert [row[0] for row in table.rows] == ["ring"]
    with raises(ValueError, match="a and b have no case in common"):
        compared({"a": [record], "b": [alone]})
