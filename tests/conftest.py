"""Options for all tests: three lanes, a ledger of their own, and the notebooks' times at the end.

Tests marked `timed` hold times against each other or against a model. They run one after the
other; all others run beside them, in two more processes, which are polite (where niceness
counts): one for the lessons' answers, many of which hang until that is noticed, one for the rest.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from pytest import fixture, hookimpl

from labkit.launch.machine import usable_cpus

LANE = "LABKIT_TEST_LANE"
DONE = "LABKIT_TEST_DONE"
"""Names the folder in which each lane leaves a file when it is done."""
LANES = [
    f"popen//env:{LANE}=timed",
    f"popen//env:{LANE}=lessons//nice=10",
    f"popen//env:{LANE}=others//nice=10",
]
NOTEBOOK = "seconds of "
SLOW = (
    "tests/test_notebooks.py", "tests/test_checkup.py", "tests/browser/*.py",
    "tests/course/test_edition.py", "tests/course/test_lessons.py", "tests/course/test_nbgrader.py",
    "tests/launch/test_slurm.py", "tests/launch/test_torchrun.py",
    "tests/fabric/test_fabric.py", "tests/comm/test_algorithms*.py",
    *(f"tests/lessons/*/test_{name}.py" for name in (
        "cases", "checks", "experiment", "programs", "run_case", "sync", "wrong_answers")),
)  # fmt: skip
"""What takes longest: whole notebooks, whole jobs, and every answer on every number of ranks."""
ANSWERS = ("tests/lessons/*/test_checks.py", "tests/lessons/*/test_wrong_answers.py")
ONE_IN = 3
"""Of the answers to exercises the test command tries one in three; `-m exhaustive` the others."""
ROOT = Path(__file__).resolve().parents[1]


@hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Run all tests in three lanes; those of some files, or with `-n 0`, one after the other."""
    options = config.option
    decided = getattr(options, "numprocesses", 0) is not None or options.tx or options.usepdb
    everything = [Path(path).resolve() for path in config.args] == [Path(__file__).parent]
    if everything and not decided and LANE not in os.environ and usable_cpus() > 1:
        options.dist, options.tx = "each", LANES
        os.environ[DONE] = folder = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


@hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    if config.option.tx != LANES:
        return None
    from xdist.scheduler import EachScheduling

    class Lanes(EachScheduling):
        """Each lane runs all that it collected; together that is what there is to do."""

        def add_node_collection(self, node, collection):
            super().add_node_collection(node, collection)
            session = config.pluginmanager.getplugin("session")
            session.testscollected = sum(map(len, self.node2collection.values()))

    return Lanes(config, log)


@hookimpl(tryfirst=True)  # before `-m "not slow"` is applied
def pytest_collection_modifyitems(items):
    tried = Counter()
    for item in items:
        if any(item.path.match(pattern) for pattern in SLOW):
            item.add_marker("slow")
        if hasattr(item, "callspec") and any(item.path.match(pattern) for pattern in ANSWERS):
            answers = (item.path, item.originalname)
            if tried[answers] % ONE_IN:
                item.add_marker("exhaustive")
            tried[answers] += 1
    lane = os.environ.get(LANE)
    if lane is not None:
        items[:] = [item for item in items if lane_of(item) == lane]
    if lane == "timed":  # lessons, which need the CPUs most, come when the others are done
        items.sort(key=turn_of)


def lane_of(item):
    if item.get_closest_marker("timed"):
        return "timed"
    answers = "lessons" in item.path.parts or "solutions" in item.nodeid
    return "lessons" if answers else "others"


def turn_of(item):
    return (item.path.name == "test_notebooks.py") + 2 * ("browser" in item.path.parts)


def pytest_runtest_setup(item):
    """Have the lessons wait for the other lanes: they measure, and repeat what was disturbed."""
    if lane_here(item.config) == "timed" and turn_of(item):
        others, patience = len(LANES) - 1, time.monotonic() + 1200
        while len([*Path(os.environ[DONE]).iterdir()]) < others and time.monotonic() < patience:
            time.sleep(0.5)


def pytest_sessionfinish(session):
    if lane_here(session.config) not in (None, "timed"):
        Path(os.environ[DONE], os.environ[LANE]).touch()


def lane_here(config):
    """The lane that this process is; None where there are no lanes, as in a test of a test."""
    return os.environ.get(LANE) if hasattr(config, "workerinput") and DONE in os.environ else None


@fixture(autouse=True, scope="session")
def throwaway_ledger(tmp_path_factory):
    """Keep the tests out of the learner's ledger."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.json"
    before = os.environ.get("LABKIT_LEDGER")
    os.environ["LABKIT_LEDGER"] = str(path)
    yield path
    os.environ.pop("LABKIT_LEDGER") if before is None else os.environ.update(LABKIT_LEDGER=before)


@fixture
def notebook_seconds(record_property):
    """Note how long a notebook took, for a table at the end: `notebook_seconds(name, seconds)`."""
    return lambda name, seconds: record_property(NOTEBOOK + name, seconds)


@fixture(scope="session")
def executed(tmp_path_factory):
    """Run a notebook under nbval, once per session: `executed(path, notebook_seconds)`.

    Returns the run, and the notebook with all that it showed. Lessons assert relations between
    times: a run that something disturbed is repeated, once.
    """
    folder = tmp_path_factory.mktemp("executed")
    passed = {}

    def execute(path, notebook_seconds):
        name = f"{path.parent.name}/{path.name}"
        kept = folder / f"{path.parent.name}-{path.name}"
        command = [
            sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env",
            "--nbval-cell-timeout=300", "-p", "no:cacheprovider", "-p", "tests.keep_outputs",
            "-W", "default", "-q", "--no-header", str(path),
        ]  # fmt: skip
        if name in passed:
            return passed[name], kept
        for label in (name, f"{name}, second run"):
            start = time.perf_counter()
            variables = notebook_environment(kept.with_suffix(".ledger.json"))
            variables["LABKIT_KEEP"] = str(kept)
            done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
            notebook_seconds(label, time.perf_counter() - start)
            if done.returncode == 0:
                passed[name] = done
                break
        return done, kept

    return execute


def notebook_environment(ledger):
    """What a notebook's kernel needs to find this labkit, and a ledger of its own."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "LABKIT_LEDGER": str(ledger),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


def pytest_terminal_summary(terminalreporter):
    table = {
        name.removeprefix(NOTEBOOK): seconds
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, seconds in getattr(report, "user_properties", ())
        if name.startswith(NOTEBOOK)
    }
    if table:
        terminalreporter.section("notebooks, seconds")
        for name, seconds in table.items():
            terminalreporter.write_line(f"{seconds:8.1f}  {name}")
        terminalreporter.write_line(f"{sum(table.values()):8.1f}  all")


@hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Let fixtures know that their test failed, so that they can keep a picture."""
    report = yield
    item.failed = getattr(item, "failed", False) or report.failed
    return report
