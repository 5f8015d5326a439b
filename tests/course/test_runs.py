"""Measured, whether it was calm, and how long it takes."""

import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import IPython.display
from pytest import raises

from course import other_programs, runs
from labkit.measure.records import Provenance, Record, Tier

RECORD = Record("an experiment", "a case", {}, [[1.0]], Tier.MEASURED, Provenance.here())
OLD, WATCHED = replace(RECORD, tier=Tier.RECORDED), replace(RECORD, others=0.05)


def test_records_tell_what_others_used_where_they_were_measured_and_nobody_watched(monkeypatch):
    monkeypatch.setattr(other_programs, "watch", lambda: nullcontext(SimpleNamespace(cpus=0.4)))
    records = runs.watched(lambda: [RECORD, OLD, WATCHED])
    assert [record.others for record in records] == [0.4, None, 0.05]


def test_a_long_measurement_is_told_in_one_line_also_where_it_fails(monkeypatch):
    texts = []
    show = lambda text, **_: texts.append(text["text/plain"]) or SimpleNamespace(update=show)  # noqa: E731
    monkeypatch.setattr(IPython.display, "display", show)
    monkeypatch.setattr(runs, "nobody_answers", lambda: False)
    monkeypatch.setattr(runs, "in_notebook", lambda: True)
    monkeypatch.setattr(runs, "BRIEF", 0.2)
    runs.watched(lambda: runs.watched(list))
    assert texts == []
    with raises(ZeroDivisionError):
        runs.watched(lambda: runs.watched(lambda: time.sleep(0.6) or 1 / 0))
    *during, last = texts
    assert during and all(text.startswith("measuring on this machine: ") for text in during)
    assert last.startswith("measured on this machine: ")
