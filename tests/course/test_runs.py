"""Measured, and whether it was calm; repeated where it was not."""

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
    used.append(0.4)
    with runs.calm():
        assert runs.watched(lambda: kept) == kept, "no reason to measure again"


def test_only_within_calm_a_disturbed_run_is_repeated(used):
    said = []
    used += [0.4, 0.2, 0.05]
    with runs.calm(limit=0.1):
        (record,) = runs.watched(lambda: [RECORD], say=said.append)
    assert record.others == 0.05
    assert [line[:27] for line in said] == [
        "Other programs used 0.40 CP",
        "Other programs used 0.20 CP",
    ]
    used += [0.4]
    assert runs.watched(lambda: [RECORD])[0].others == 0.4, "the block has ended"


def test_without_a_calm_run_it_says_so(used):
    used += [0.5, 0.4, 0.3]
    asked = r"calm\(limit=0.2\): in 2 attempts other programs used 0.50, 0.40 CPUs. Close them"
    with runs.calm(limit=0.2, attempts=2), pytest.raises(runs.Disturbed, match=asked):
        runs.watched(lambda: [RECORD], say=lambda _: None)


def test_where_nobody_tells_it_is_measured_once_and_said(used):
    said = []
    with runs.calm():
        assert runs.watched(lambda: [RECORD], say=said.append) == [RECORD]
    assert "does not tell" in said[0]
