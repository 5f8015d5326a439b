"""What tests in Python share: a ledger of their own, and what becomes of a timed one.

Not judged are a timed test that fails beside other programs, and one whose browser crashed.
"""

import os
import signal

import cloudpickle
from pytest import MonkeyPatch, fixture, hookimpl, skip

import tests
from course import other_programs
from course.predictions import claims

# Programs travel as a notebook's do; by name, each rank would import their file, and pytest.
cloudpickle.register_pickle_by_value(tests)


def pytest_configure():
    """Let tests interrupt where a shell has started them in the background, deaf to SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Judge no test whose browser died, and no timed one that fails while others use the CPUs."""
    if pyfuncitem.get_closest_marker("timed") is None:
        try:
            return (yield)
        except Exception as error:
            if type(error).__name__ != "TargetClosedError":  # Playwright's, which may be missing
                raise
        skip(f"{claims.NOT_JUDGED}: the browser ended by itself")
    with other_programs.watch() as used:
        try:
            return (yield)
        except AssertionError as error:
            failure = error
    if (used.cpus or 0.0) > other_programs.limit():
        skip(f"{claims.NOT_JUDGED}: other programs used {used.cpus:.1f} CPUs")
    raise failure


@fixture(autouse=True, scope="session")
def throwaway_ledger(tmp_path_factory):
    """Keep the tests out of the learner's ledger."""
    with MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_LEDGER", str(tmp_path_factory.mktemp("ledger") / "ledger.jsonl"))
        patch.setenv("COURSE_GATES", os.environ.get("COURSE_GATES", "open"))
        yield
