"""examples/who_has_my_cpus.py: a real mask, a real quota if one can be made, neighbours, none."""

import os
import re
import runpy
import subprocess
import sys

import pytest

from course.lessons.gloo_scaling import quota
from labkit.measure import sched
from labkit.ranks import affinity
from tests.ranks.nodes import ROOT

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "examples" / "who_has_my_cpus.py"
WORK = """
import multiprocessing, time
def work():
    until = time.monotonic() + {seconds}
    while time.monotonic() < until: pass
if __name__ == "__main__":
    workers = [multiprocessing.Process(target=work) for _ in range({processes})]
    [worker.start() for worker in workers], [worker.join() for worker in workers]
"""
needs_linux = pytest.mark.skipif(not sched.available(), reason="takes Linux's accounts")


def run(command, **options):
    """Run a command under the script; return its exit status and what the script says."""
    full = [sys.executable, str(SCRIPT), "--", *command]
    done = subprocess.run(full, capture_output=True, text=True, timeout=60, **options)
    return done.returncode, done.stderr


def busy(processes, seconds=1.5):
    return [sys.executable, "-c", WORK.format(processes=processes, seconds=seconds)]


@needs_linux
@pytest.mark.timed
def test_a_mask_of_one_cpu():
    one = affinity.cpus()[0]
    status, said = run(busy(4), preexec_fn=lambda: os.sched_setaffinity(0, {one}))
    assert status == 0
    verdict = "=> mask" if os.cpu_count() > 1 else "=> none of these"
    assert verdict in said, said
    assert re.search(rf"mask +1 of \d+ CPUs: {one}\n", said)


@needs_linux
@pytest.mark.skipif(not quota.available(), reason="a quota takes root, and cgroups to write to")
@pytest.mark.timed
def test_a_quota_of_half_a_cpu():
    with quota.group(0.5) as folder:
        status, said = run(busy(2), preexec_fn=lambda: quota.join(folder))
    assert status == 0
    assert "=> quota" in said, said
    assert re.search(r"quota +0.5 CPUs; stopped in \d+ of \d+ periods", said)


@needs_linux
@pytest.mark.timed
def test_two_busy_neighbours():
    cpus = affinity.cpus()
    neighbours = [subprocess.Popen(busy(1, 20.0)) for _ in range(2 * len(cpus))]
    try:
        status, said = run(busy(len(cpus)))
    finally:
        for neighbour in neighbours:
            subprocess.run(["pkill", "-P", f"{neighbour.pid}"], check=False)
            neighbour.kill()
            neighbour.wait()
    assert status == 0
    assert "=> neighbours" in said, said


@needs_linux
def test_a_program_that_sleeps_waits_for_no_cpu():
    status, said = run(["sleep", "1.2"])
    assert status == 0
    assert "=> none of these: its threads hardly waited" in said, said


@needs_linux
@pytest.mark.parametrize(("command", "status"), [(["false"], 1), (["sh", "-c", "kill -9 $$"], 137)])
def test_the_status_of_a_program_that_fails_at_once_is_handed_on(command, status):
    ended, said = run(command)
    assert ended == status
    assert said.startswith(f"{command[0]} ended after 0.") and said.count("\n") == 1


@needs_linux
def test_what_cannot_be_started_is_told_in_one_line():
    status, said = run(["/nowhere/at-all"])
    assert (status, said) == (1, "/nowhere/at-all cannot be started: No such file or directory\n")


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(SCRIPT))


def refused(script, monkeypatch, *arguments, **changed):
    for name, value in changed.items():
        monkeypatch.setitem(script["main"].__globals__, name, value)
    with pytest.raises(SystemExit) as stopped:
        script["main"]([*arguments])
    assert "\n" not in str(stopped.value)
    return str(stopped.value)


def test_without_a_command_it_says_how_it_is_called(script, monkeypatch):
    assert refused(script, monkeypatch, "--").startswith("usage: ")


def test_without_schedstat_and_on_macos_it_says_so(script, monkeypatch, tmp_path):
    if sys.platform == "linux":
        assert "no schedstat" in refused(script, monkeypatch, "true", PROC=tmp_path)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "which this system does not have" in refused(script, monkeypatch, "true")


@pytest.mark.parametrize(
    ("line", "files", "most", "counted"),
    [
        (
            "0::/job/step",
            {"job/cpu.max": "150000 100000", "job/step/cpu.max": "max 100000",
             "job/cpu.stat": "usage_usec 9\nnr_periods 20\nnr_throttled 5\nthrottled_usec 2500000"},
            1.5, (20, 5, 2.5),
        ),
        (
            "4:cpu,cpuacct:/job",
            {"cpu,cpuacct/job/cpu.cfs_quota_us": "50000", "cpu,cpuacct/job/cpu.cfs_period_us":
             "100000", "cpu,cpuacct/job/cpu.stat":
             "nr_periods 7\nnr_throttled 3\nthrottled_time 1500000000"},
            0.5, (7, 3, 1.5),
        ),
    ],
)  # fmt: skip
def test_the_tightest_quota_of_both_versions_is_read(script, tmp_path, line, files, most, counted):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "groups").write_text(f"8:pids:/elsewhere\n{line}\n")
    folder = script["tightest"](tmp_path, tmp_path / "groups")
    assert script["limit"](folder) == most
    assert script["counters"](folder) == counted


def test_a_quota_that_is_not_reached_and_own_threads_are_none_of_these(script):
    judge = script["judge"]
    assert "hardly waited" in judge(10, 8, 1, 1.0, 0.1, 100, 2)
    assert "its own threads fill all CPUs" in judge(10, 20, 90, 1.0, 0.1, 0, 0)
