import cloudpickle
from pytest import fixture

from tests.course import lessons

cloudpickle.register_pickle_by_value(lessons)  # their answers travel as a notebook's do


@fixture
def book(tmp_path, monkeypatch):
    """A ledger of the test's own; returns its path."""
    path = tmp_path / "folder" / "ledger.jsonl"
    monkeypatch.setenv("LABKIT_LEDGER", str(path))
    return path
