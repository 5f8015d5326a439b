"""What tests of lessons share."""

from pytest import fixture

from course.checks import checking


@fixture
def impatient(monkeypatch):
    """Give a wrong answer that hangs at most twice as long on a busy machine as on a calm one."""
    patience = checking.patience
    monkeypatch.setattr(checking, "patience", lambda seconds: min(2 * seconds, patience(seconds)))
