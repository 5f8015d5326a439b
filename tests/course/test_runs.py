"""Measured, and whether it was calm."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from course import other_programs, runs
from labkit.measure.records import Provenance, Record, Tier

RECORD = Record("an experiment", "a case", {}, [[1.0]], Tier.MEASURED, Provenance.here())


@pytest.fixture
def used(monkeypatch):
    """What others use in the attempts to come; empty: nobody tells."""
    figures = []

    @contextlib.contextmanager
    def watch():
        yield SimpleNamespace(cpus=figures.pop(0) if figures else None)

    monkeypatch.setattr(other_programs, "watch", watch)
    return figures


def test_records_tell_what_others_used(used):
    used.append(0.4)
    assert runs.watched(lambda: [RECORD])[0].others == 0.4


def test_what_was_not_measured_here_and_now_or_is_watched_already_stays(used):
    used.append(0.4)
    kept = [replace(RECORD, tier=Tier.RECORDED), replace(RECORD, others=0.05)]
    assert runs.watched(lambda: kept) == kept
