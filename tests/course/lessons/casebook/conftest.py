"""What tests of the ward share."""

import pytest


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.jsonl"))
    return tmp_path / "ledger.jsonl"
