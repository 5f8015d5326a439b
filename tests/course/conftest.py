from pytest import fixture


@fixture
def book(tmp_path, monkeypatch):
    """A ledger of the test's own; returns its path."""
    path = tmp_path / "folder" / "ledger.jsonl"
    monkeypatch.setenv("LABKIT_LEDGER", str(path))
    return path
