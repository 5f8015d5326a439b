"""Options for all tests: three lanes, a ledger of their own, and the notebooks' times at the end.

Three processes work side by side, each on tests of its own. Tests marked `timed` hold times against
each other or against a model: they run one after the other, in the first lane. The other two are
polite (where niceness counts): one has the exercises' answers, many of which hang until that is
noticed, one the rest. The lessons, which need the whole machine, come when the others are done, and
the browser, which shows what they showed, comes last.

The test command takes the lessons and what is quick; `.ci/run` takes all but what is `exhaustive`.
"""

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

from pytest import fixture, hookimpl

from labkit.ranks.machine import usable_cpus

LANE = "LABKIT_TEST_LANE"
SHARED = "LABKIT_TEST_SHARED"
"""Names the folder that the lanes share: what each has done, and the lessons that were executed."""
NAMES = ("timed", "answers", "others")
LANES = [f"popen//env:{LANE}={name}" + "//nice=10" * (name != "timed") for name in NAMES]
NOTEBOOK = "seconds of "
SLOW = (
    "tests/test_notebooks.py", "tests/test_checkup.py", "tests/browser/*.py",
    "tests/course/test_edition.py", "tests/course/test_lessons.py",
    "tests/ranks/test_slurm.py", "tests/ranks/test_torchrun.py", "tests/ranks/test_server.py",
    "tests/fabric/test_fabric.py", "tests/course/comm/test_algorithms*.py",
    *(f"tests/course/lessons/*/test_{name}.py" for name in (
        "cases", "checks", "experiment", "programs", "run_case", "sync", "wrong_answers")),
)  # fmt: skip
"""What takes longest: solutions, whole jobs, and every answer on every number of ranks."""
ANSWERS = ("tests/course/lessons/*/test_checks.py", "tests/course/lessons/*/test_wrong_answers.py",
           "tests/course/lessons/casebook/test_cases.py")  # fmt: skip
ONE_IN = 6
"""Of answers to exercises, and of cases, CI tries one in six."""
EXHAUSTIVE = (
    "*/test_edition.py::test_pages_are_whole*",
    "*/test_torchrun.py::test_a_node_that_dies*", "*/test_torchrun.py::test_two_hosts_of_a_fabric*",
    "*/test_torchrun.py::test_two_nodes_run*", "*/test_checkup.py::*[[]torchrun]",
    "*/test_fabric.py::test_time_is_bytes*[[][24]-1gbit]", "*/test_fabric.py::test_a_card_limits*",
    "*/test_algorithms.py::*[[][578]]",
    "*/eighty_gpus/test_experiment.py::test_cards_multiply*",
    "*/p2p_topology/test_experiment.py::test_every_cell*",
    "*/pipeline_p2p/test_experiment.py::test_a_queue_typed*",
    "*/pipeline_p2p/test_experiment.py::test_two_destinations*",
    "*/gradient_all_reduce/test_experiment.py::test_every_way_learns*",
    "*/gradient_all_reduce/test_experiment.py::test_a_way_of_ones_own*",
    "*/pipeline_p2p/test_checks.py::*never_ends*", "*/pipeline_p2p/test_checks.py::*every_path*",
    "*/pipeline_p2p/test_checks.py::*remember, over all starts]",
    "*/test_in_browser.py::test_solving_an_exercise*",
)  # fmt: skip
"""What takes long and is shown by a lesson or by a neighbour as well: other sizes, whole sites."""
ROOT = Path(__file__).resolve().parents[1]


@hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Run all tests in three lanes; those of some files, or with `-n 0`, one after the other."""
    options = config.option
    decided = getattr(options, "numprocesses", 0) is not None or options.tx or options.usepdb
    everything = [Path(path).resolve() for path in config.args] == [Path(__file__).parent]
    if not options.markexpr:  # whoever names a file wants what is in it
        options.markexpr = "lesson or not slow" if everything else "not exhaustive"
    if everything and not decided and LANE not in os.environ and usable_cpus() > 1:
        options.dist, options.tx = "each", LANES
        os.environ[SHARED] = folder = tempfile.mkdtemp()
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


def pytest_ignore_collect(collection_path, config):
    """Spare a lane the import of files in which it has no test."""
    path, lane = collection_path, os.environ.get(LANE)
    if not in_lanes(config) or path.suffix != ".py" or path == ROOT / "tests/test_notebooks.py":
        return None  # as always
    if lane == "timed":
        has_some = b"timed" in path.read_bytes() or path.parent.name == "browser"
    else:
        has_some = ("lessons" in path.parts) == (lane == "answers")
    return None if has_some else True


@hookimpl(tryfirst=True)  # before `-m "not slow"` is applied
def pytest_collection_modifyitems(items):
    tried = Counter()
    for item in items:
        seldom = any(fnmatch(item.nodeid, pattern) for pattern in EXHAUSTIVE)
        if hasattr(item, "callspec") and any(item.path.match(pattern) for pattern in ANSWERS):
            answers = (item.path, item.originalname)
            seldom |= tried[answers] % ONE_IN > 0
            tried[answers] += 1
        if seldom:
            item.add_marker("exhaustive")
        if turn_of(item) == 1:
            item.add_marker("lesson")
        if seldom or any(item.path.match(pattern) for pattern in SLOW):
            item.add_marker("slow")
    lane = os.environ.get(LANE)
    if lane is not None:
        items[:] = sorted((item for item in items if lane_of(item) == lane), key=turn_of)


def turn_of(item):
    """Say when a test may run: 1 for lessons, 2 for what shows them, 0 for all else."""
    if item.name == "test_lessons_render":
        return 2
    return int("test_notebooks.py" in item.nodeid and "[notebooks/" in item.nodeid)


def lane_of(item):
    if turn_of(item) or item.get_closest_marker("timed"):
        return "timed"
    answers = item.path.name == "test_notebooks.py" and "solutions" in item.nodeid
    return "answers" if answers or "lessons" in item.path.parts else "others"


def pytest_runtest_setup(item):
    """Have each turn wait until all lanes are through with the one before: lessons measure."""
    if not in_lanes(item.config) or not (turn := turn_of(item)):
        return
    through(turn)
    patience = time.monotonic() + 1500
    waited_for = [Path(os.environ[SHARED], f"{name}-{turn - 1}") for name in NAMES]
    while not all(path.exists() for path in waited_for) and time.monotonic() < patience:
        time.sleep(0.2)


def pytest_collection_finish(session):
    if in_lanes(session.config):
        through(min(map(turn_of, session.items), default=3))


def pytest_sessionfinish(session):
    if in_lanes(session.config):
        through(3)


def through(turn):
    """Let the other lanes know that this one is done with what comes before that turn."""
    for before in range(turn):
        Path(os.environ[SHARED], f"{os.environ[LANE]}-{before}").touch()


def in_lanes(config):
    """Whether this process is a lane; it is none in a test of a test."""
    return LANE in os.environ and SHARED in os.environ and hasattr(config, "workerinput")


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
    """Run a notebook under nbval, once for all tests: `executed(path, notebook_seconds)`.

    Returns the path of the notebook with all that it showed, and what nbval said when it failed.
    Lessons assert relations between times: a run that something disturbed is repeated, once.
    """
    shared = os.environ.get(SHARED)
    folder = Path(shared) if shared else tmp_path_factory.mktemp("executed")

    def execute(path, notebook_seconds):
        name = f"{path.parent.name}/{path.name}"
        kept = folder / name.replace("/", "-")
        written = kept.with_suffix(".part")
        command = [
            sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env",
            "--nbval-cell-timeout=300", "-p", "no:cacheprovider", "-p", "no:hypothesispytest",
            "-p", "tests.keep_outputs", "-W", "default", "-q", "--no-header", str(path),
        ]  # fmt: skip
        failure = ""
        for run in ("", ", second run"):
            if kept.exists():
                break
            start = time.perf_counter()
            variables = notebook_environment(kept.with_suffix(".ledger.json"))
            variables["LABKIT_KEEP"] = str(written)
            done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
            failure = done.returncode and done.stdout[-20_000:] + done.stderr[-2_000:]
            claims = re.findall("^  (?:expected|measured) +(.*)", failure or "", re.MULTILINE)
            notebook_seconds(": ".join([name + run, *claims]), time.perf_counter() - start)
            if not failure:
                written.rename(kept)
        return kept, failure

    return execute


def notebook_environment(ledger):
    """What a notebook's kernel needs to find this labkit, and a ledger of its own."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "LABKIT_LEDGER": str(ledger),
        "COURSE_GATES": "open",
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
