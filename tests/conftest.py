"""Options for all tests: a ledger of their own, and the notebooks' times at the end."""

from pytest import fixture, hookimpl

_seconds: dict[str, float] = {}


@fixture(autouse=True, scope="session")
def throwaway_ledger(tmp_path_factory):
    """Keep the tests out of the learner's ledger."""
    import os

    path = tmp_path_factory.mktemp("ledger") / "ledger.json"
    before = os.environ.get("LABKIT_LEDGER")
    os.environ["LABKIT_LEDGER"] = str(path)
    yield path
    os.environ.pop("LABKIT_LEDGER") if before is None else os.environ.update(LABKIT_LEDGER=before)


@fixture
def notebook_seconds():
    """A table that is printed at the end: notebook -> seconds."""
    return _seconds


def pytest_terminal_summary(terminalreporter):
    if _seconds:
        terminalreporter.section("notebooks, seconds")
        for name, seconds in _seconds.items():
            terminalreporter.write_line(f"{seconds:8.1f}  {name}")
        terminalreporter.write_line(f"{sum(_seconds.values()):8.1f}  all")


@hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Let fixtures know that their test failed, so that they can keep a picture."""
    report = yield
    item.failed = getattr(item, "failed", False) or report.failed
    return report
