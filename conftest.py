"""How all tests run: side by side, what measures alone and last, notebooks through nbval.

Three processes share the tests, a file each. What measures (marked `timed` or `alone`; a cell that
is tagged `timed`) comes late, and alone: it holds a lock for itself that all other tests share.
Where other programs used more than an eighth of the CPUs meanwhile, a timed test that fails is not
judged, and neither is a lesson's claim: the summary counts both.

The test command takes what is not `slow`; `.ci/run` takes all but what is `exhaustive`. Which is
which stands at the tests.
"""

import fcntl
import gc
import os
import tempfile
from collections import Counter
from pathlib import Path

from pytest import StashKey, hookimpl

from course.predictions import claims
from labkit.ranks.machine import usable_cpus
from tests.nbval_cells import CELL_SECONDS, CLAIMS, KERNELS, Notebook, forker

TESTS = Path(__file__).resolve().parent / "tests"
VERDICTS = (claims.HELD, claims.NOT_JUDGED, claims.NOT_HELD)
QUICK = "not (slow or exhaustive)"
"""What the test command takes."""
PROCESSES = 3
"""Many tests wait, for ranks or for a browser; but each process imports and collects everything."""
LOCK, LOCKED = StashKey(), StashKey()
"""A folder that all processes lock, and a process's open one."""


@hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Run all tests side by side; those of some files, or with `-n 0`, one after the other."""
    options = config.option
    decided = getattr(options, "numprocesses", 0) is not None or options.tx or options.usepdb
    everything = config.args_source is config.ArgsSource.TESTPATHS
    if not options.markexpr:  # whoever names a file wants what is in it
        options.markexpr = QUICK if everything else "not exhaustive"
    is_worker = hasattr(config, "workerinput")
    if getattr(options, "numprocesses", 0) and options.dist in ("no", "load"):
        options.dist = "loadfile"  # the cells of a notebook share a kernel
    if everything and not decided and not is_worker and usable_cpus() > 1:
        options.dist, options.tx = "loadfile", PROCESSES * ["popen"]
        options.loadscopereorder = False  # what measures stays at the end


def pytest_configure(config):
    """Leave notebooks to our kind of nbval's class."""
    gc.disable()  # until all is collected: it would take a tenth of that time, and free little
    options = config.option
    if options.nbval or options.nbval_lax:
        options.verbose = options.verbose or 1  # a line a cell
    options.nbval = options.nbval_lax = False
    options.nbval_current_env = not options.nbval_kernel_name
    if options.nbval_cell_timeout == 2000:  # nbval's own
        options.nbval_cell_timeout = CELL_SECONDS


def pytest_collect_file(file_path, parent):
    return Notebook.from_parent(parent, path=file_path) if file_path.suffix == ".ipynb" else None


def is_alone(item):
    return any(item.get_closest_marker(name) for name in ("alone", "timed"))


@hookimpl(trylast=True)  # after `-m`
def pytest_collection_modifyitems(items):
    """Put the long tests of the whole first, and what waits for torchrun; last, what measures:
    a process that came to it early would wait, and run nothing, until the others come to it too.

    Of files in which something measures, notebooks come before tests, since what they do besides
    takes longer. In a test file what measures comes last; a notebook's cells keep their order.
    """
    measures = {item.path for item in items if is_alone(item)}

    def rank(item):
        is_test, last = item.path.suffix == ".py", item.path in measures
        late = item.path.parent not in (TESTS, TESTS / "ranks")
        return last, last and is_test, late, is_test and is_alone(item)

    items.sort(key=rank)


@hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Give all processes one folder to lock, and one process that forks their kernels."""
    if LOCK not in node.config.stash:
        node.config.stash[LOCK] = folder = tempfile.TemporaryDirectory()
        node.config.add_cleanup(folder.cleanup)
    node.workerinput["lock"] = node.config.stash[LOCK].name
    node.workerinput[KERNELS] = forker(node.config)


@hookimpl(wrapper=True, tryfirst=True)  # waiting does not count as the test's time
def pytest_runtest_protocol(item, nextitem):
    """Run what measures while no other process runs a test; a file's such tests in a row."""
    config = item.config
    if not hasattr(config, "workerinput"):
        return (yield)
    if LOCKED not in config.stash:
        config.stash[LOCKED] = os.open(config.workerinput["lock"], os.O_RDONLY)
        fcntl.flock(config.stash[LOCKED], fcntl.LOCK_EX if is_alone(item) else fcntl.LOCK_SH)
    try:
        return (yield)
    finally:
        goes_on = nextitem is not None and nextitem.path == item.path
        if not (goes_on and is_alone(item) and is_alone(nextitem)):
            os.close(config.stash[LOCKED])
            del config.stash[LOCKED]


@hookimpl(tryfirst=True)  # before the tests, here and in the process that hands them out
def pytest_runtestloop():
    gc.enable()


def pytest_unconfigure():
    gc.freeze()  # or Python looks through all that was imported before it ends


def pytest_terminal_summary(terminalreporter):
    stats = terminalreporter.stats
    reports = [report for kind in stats if kind != "deselected" for report in stats[kind]]
    seconds, lines = Counter(), []
    for report in reports:
        path, _, cell = getattr(report, "nodeid", "").partition("::")
        if path.endswith(".ipynb") and cell:
            seconds[path] += report.duration
        if getattr(report, "when", "") == "call":
            for name, values in report.user_properties:
                lines += values if name == CLAIMS else ()
    if len(seconds) > 1:
        terminalreporter.section("notebooks, seconds")
        for path, took in seconds.items():
            terminalreporter.write_line(f"{took:8.1f}  {path}")
        terminalreporter.write_line(f"{seconds.total():8.1f}  all")
    elsewhere = sum(line["recorded"] for line in lines)
    counts = Counter(line["verdict"] for line in lines if not line["recorded"])
    skipped = stats.get("skipped", ())
    left = [report for report in skipped if claims.NOT_JUDGED in str(report.longrepr)]
    if lines or left:
        terminalreporter.section("judged on this machine")
        text = ", ".join(f"{counts[name]} {name}" for name in VERDICTS)
        text = f"claims: {text}, {elsewhere} of recordings; tests {claims.NOT_JUDGED}: {len(left)}"
        terminalreporter.write_line(text)
        for line in lines:
            if line["verdict"] != claims.HELD:
                terminalreporter.write_line("  {verdict}: {expected}; {measured}".format(**line))
        for report in left:
            reason = report.longrepr[2].removeprefix("Skipped: ")
            terminalreporter.write_line(f"  {report.nodeid}: {reason}")
