import pytest

from course.lessons.hang_clinic import flight
from tests.course.lessons.refusals import patiently

pytestmark = pytest.mark.slow


def test_the_record_of_the_sixth_names_the_odd_rank_and_its_call():
    def judge(limit):
        folder = flight.record_of(6)
        calls = flight.calls(folder)
        assert [names[-1] for names in calls.values()] == ["gloo:all_reduce", *["gloo:barrier"] * 3]
        said = flight.compare(folder)
        assert "Culprit rank 0" in said and "found collective type: 'all_reduce'" in said

    patiently(judge)


def test_where_torchfrtrace_does_not_start_the_kept_output_is_shown(monkeypatch, tmp_path):
    monkeypatch.setattr(flight, "MODULE", "torch.no_such_recorder.fr_trace")
    said = flight.compare(tmp_path)
    assert said.startswith("(kept from PyTorch 2.13") and "Culprit rank 0" in said


def test_the_record_of_the_ring_has_no_sends():
    patiently(lambda limit: _holds_nothing(flight.calls(flight.record_of(2))))


def _holds_nothing(calls):
    assert calls == {0: [], 1: [], 2: []}
