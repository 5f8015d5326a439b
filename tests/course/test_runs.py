"""Measured, and whether it was calm."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

from course import other_programs, runs
from labkit.measure.records import Provenance, Record, Tier

RECORD = Record("an experiment", "a case", {}, [[1.0]], Tier.MEASURED, Provenance.here())
OLD, WATCHED = replace(RECORD, tier=Tier.RECORDED), replace(RECORD, others=0.05)


def test_records_tell_what_others_used_where_they_were_measured_and_nobody_watched(monkeypatch):
    monkeypatch.setattr(other_programs, "watch", lambda: nullcontext(SimpleNamespace(cpus=0.4)))
    found = runs.watched(lambda: [RECORD, OLD, WATCHED])
    assert [record.others for record in found] == [0.4, None, 0.05]
