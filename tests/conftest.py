"""Options for all tests: what runs side by side, what is not judged, and the counts at the end.

Three processes share the tests. What measures (marked `timed` or `lesson`) comes last, in one of
them, alone. Where other programs used more than a quarter of a CPU meanwhile, a timed test that
fails is not judged, and neither is a lesson's claim: the summary counts both.

The test command takes the lessons and what is quick; `.ci/run` takes all but what is `exhaustive`.
"""

import atexit
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

from pytest import fixture, hookimpl, skip

from course import claims, other_programs
from labkit.ranks.machine import usable_cpus

sys.modules.setdefault("rfc3987_syntax", None)  # jsonschema's: compiles a grammar, and none is used
ROOT = Path(__file__).resolve().parents[1]
VERDICTS = (claims.HELD, claims.NOT_JUDGED, claims.NOT_HELD)
CLAIMS, SECONDS = "claims", "seconds of "
LAST = "COURSE_TESTS_THAT_COME_LAST"
"""Names the file that says how many they are."""
QUICK = "lesson or not slow"
"""What the test command takes."""
SLOW = (
    "tests/test_checkup.py*", "tests/browser/*", "tests/course/test_edition.py*",
    "tests/ranks/test_torchrun.py*", "tests/ranks/test_server.py*", "tests/fabric/test_fabric.py*",
    "tests/course/comm/test_algorithms*", "tests/test_outsiders_page.py*",
    *(f"tests/course/lessons/*/test_{name}.py*" for name in (
        "cases", "checks", "experiment", "programs", "run_case", "sync", "wrong_answers")),
    "tests/test_why_is_send_slow.py*", "*::test_a_folder_and_its_notebooks_are_a_lesson",
    "*::test_pictures_are_drawn*", "*::test_a_programs_own_classes*", "*::test_large_values_spill*",
    "*::test_a_group_that_is_destroyed_at_once*", "*::test_ranks_start_where_nothing_else*",
    "*::test_unsolved_exercises*", "*::test_hostile_json*", "*::test_a_script_needs_no_main_guard*",
    "*::test_our_own_ranks_and_children*", "*::test_without_notebooks_a_command*",
    "*::test_an_all_reduce_is_seen*[[]by_functional]", "*::test_the_page_shows_both_blocks*",
    "*::test_bad_hand_ins*", "*::test_results_come_by_rank[[][58]]", "*::test_a_whole_section",
    "*::test_what_ranks_import_loads*", "*::test_what_people_guess*Tracer*",
    "*::test_torchs_traces_of_ddp*", "*/pipeline_p2p/test_exchange.py*", "*::test_nothing_outliv*",
    "*::test_a_notebook_shows_axes*", "*::test_a_thread_that_never_ends*", "*::test_ddp_is_*",
    "*::test_it_gathers_values*", "*::test_what_is_waited_for_before*", "*::test_the_hook_shows*",
    "*::test_ping_pong_times*", "*::test_a_parent_killed*", "*::test_a_rank_that_never_lets_go*",
    "*::test_the_queue_editor*", "*::test_a_large_file_is_read*", "*::test_a_deadlock_shows*",
    "*::test_a_hand_in_is_read*", "*::test_posts_and_waits*", "*::test_a_run_keeps_everything*",
)  # fmt: skip
"""What takes longest: solutions, whole jobs, and every answer on every number of ranks."""
ANSWERS = (
    "*/lessons/*/test_checks.py*",
    "*/lessons/*/test_wrong_answers.py*",
    "*/casebook/test_cases.py*",
)
ONE_IN = 10
"""Of answers to exercises, and of cases, CI tries one in so many."""
EXHAUSTIVE = (
    "*/test_torchrun.py::test_a_node_that_dies*", "*/test_torchrun.py::test_two_hosts_of_a_fabric*",
    "*/test_torchrun.py::test_two_nodes_run*", "*/test_checkup.py::*[[]torchrun]",
    "*/test_fabric.py::test_time_is_bytes*[[]4-*", "*/test_fabric.py::test_time_is_bytes*1gbit]",
    "*/test_fabric.py::test_a_card_limits*",
    "*/test_algorithms.py::*[[][578]]",
    "*/eighty_gpus/test_experiment.py::test_cards_multiply*",
    "*/p2p_topology/test_experiment.py::test_every_cell*",
    "*/equivalent_collectives/*::test_right_doublings_pass[[]by name*",
    "*/pipeline_p2p/test_checks.py::*never_ends*",
)  # fmt: skip
"""What takes long and is shown by a lesson or by a neighbour as well: other sizes, whole sites."""


@hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Run all tests side by side; those of some files, or with `-n 0`, one after the other."""
    options = config.option
    decided = getattr(options, "numprocesses", 0) is not None or options.tx or options.usepdb
    everything = [Path(path).resolve() for path in config.args] == [Path(__file__).parent]
    if not options.markexpr:  # whoever names a file wants what is in it
        options.markexpr = QUICK if everything else "not exhaustive"
    if LAST not in os.environ:  # in the parent
        os.environ[LAST] = str(Path(tempfile.mkdtemp(), "last"))
        atexit.register(shutil.rmtree, Path(os.environ[LAST]).parent, ignore_errors=True)
    is_worker = hasattr(config, "workerinput")
    if everything and not decided and not is_worker and usable_cpus() > 1:
        options.dist, options.tx = "load", 3 * ["popen"]


def is_among(nodeid, patterns):
    return any(fnmatch(nodeid, pattern) for pattern in patterns)


def pytest_ignore_collect(collection_path, config):
    """Do not even import files all of whose tests are left out."""
    quick = config.option.markexpr in ("not slow", QUICK)
    return True if quick and is_among(collection_path.relative_to(ROOT).as_posix(), SLOW) else None


@hookimpl(tryfirst=True)  # before `-m "not slow"` is applied
def pytest_collection_modifyitems(items):
    tried = Counter()
    for item in items:
        seldom = is_among(item.nodeid, EXHAUSTIVE)
        if hasattr(item, "callspec") and is_among(item.nodeid, ANSWERS):
            answers = (item.path, item.originalname)
            seldom |= tried[answers] % ONE_IN > 0
            tried[answers] += 1
        if seldom:
            item.add_marker("exhaustive")
        lesson = item.get_closest_marker("lesson") is not None
        if seldom or lesson or is_among(item.nodeid, SLOW):
            item.add_marker("slow")
        if lesson or item.get_closest_marker("timed"):
            item.add_marker("alone")
    items.sort(key=is_alone)


def is_alone(item):
    return item.get_closest_marker("alone") is not None


def pytest_collection_finish(session):
    """Leave word of how many tests come last: each process knows it, their parent does not."""
    if hasattr(session.config, "workerinput"):
        mine = Path(f"{os.environ[LAST]}.{os.getpid()}")
        mine.write_text(str(sum(map(is_alone, session.items))))
        mine.replace(os.environ[LAST])  # at once: their parent may be reading it


@hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScheduling

    class AloneLast(LoadScheduling):
        """Shares tests among all processes; what measures comes last, in the first one."""

        alone = ()

        def schedule(self):
            if self.collection is None and self._check_nodes_have_same_collection():
                self.collection = next(iter(self.node2collection.values()))
                places = list(range(len(self.collection)))
                shared = len(places) - int(Path(os.environ[LAST]).read_text())
                self.pending[:], self.alone = places[:shared], places[shared:]
                self.maxschedchunk = self.maxschedchunk or 20
                for node in self.nodes:
                    self._send_tests(node, 2)
            super().schedule()

        def check_schedule(self, node, duration=0.0):
            if self.pending or not self.alone:
                super().check_schedule(node, duration)
                return
            first, *others = self.nodes
            if node in others:
                node.shutdown()
            if not any(self.node2pending[other] for other in others):
                self.pending[:], self.alone = self.alone, ()
                self._send_tests(first, len(self.pending))
                first.shutdown()

        @property
        def tests_finished(self):
            return not self.alone and super().tests_finished

    return AloneLast(config, log)


@hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Do not judge a timed test that fails while others use the CPUs."""
    if pyfuncitem.get_closest_marker("timed") is None:
        return (yield)
    with other_programs.watch() as used:
        try:
            return (yield)
        except AssertionError as error:
            failure = error
    if claims.verdict(False, others=used.cpus) == claims.NOT_JUDGED:
        skip(f"{claims.NOT_JUDGED}: other programs used {used.cpus:.1f} CPUs")
    raise failure


@fixture(autouse=True, scope="session")
def throwaway_ledger(tmp_path_factory):
    """Keep the tests out of the learner's ledger."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    before = os.environ.get("LABKIT_LEDGER")
    os.environ["LABKIT_LEDGER"] = str(path)
    yield path
    os.environ.pop("LABKIT_LEDGER") if before is None else os.environ.update(LABKIT_LEDGER=before)


@fixture
def notebook_seconds(record_property):
    """Note how long a notebook took, for a table at the end: `notebook_seconds(name, seconds)`."""
    return lambda name, seconds: record_property(SECONDS + name, seconds)


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
    reports = [one for found in terminalreporter.stats.values() for one in found]
    calls = [one for one in reports if getattr(one, "when", "") == "call"]
    noted = [note for one in calls for note in one.user_properties]
    if times := {name: value for name, value in noted if name.startswith(SECONDS)}:
        terminalreporter.section("notebooks, seconds")
        for name, seconds in times.items():
            terminalreporter.write_line(f"{seconds:8.1f}  {name.removeprefix(SECONDS)}")
        terminalreporter.write_line(f"{sum(times.values()):8.1f}  all")
    made = [json.loads(line) for name, value in noted if name == CLAIMS for line in value]
    counts = Counter(line["verdict"] for line in made)
    skipped = terminalreporter.stats.get("skipped", ())
    left = [one.nodeid for one in skipped if claims.NOT_JUDGED in str(one.longrepr)]
    if made or left:
        terminalreporter.section("judged on this machine")
        text = ", ".join(f"{counts[name]} {name}" for name in VERDICTS)
        terminalreporter.write_line(f"claims: {text}; timed tests {claims.NOT_JUDGED}: {len(left)}")
        for line in made:
            if line["verdict"] != claims.HELD:
                terminalreporter.write_line("  {verdict}: {expected}; {measured}".format(**line))
        for name in left:
            terminalreporter.write_line(f"  {claims.NOT_JUDGED}: {name}")


@hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Let fixtures know that their test failed, so that they can keep a picture."""
    report = yield
    item.failed = getattr(item, "failed", False) or report.failed
    return report
