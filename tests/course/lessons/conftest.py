"""What tests of lessons share."""

from pytest import fixture

from course.checks import checking


@fixture
def impatient(monkeypatch):
    """Give a wrong answer that hangs no longer on a busy machine than on a calm one."""
    monkeypatch.setattr(checking, "patience", lambda seconds: seconds)
