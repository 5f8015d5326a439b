"""What strangers used is told apart from what we and our ranks used."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from pytest import mark

from course import other_programs
from labkit import launch
from tests.measure.test_sched import burn

BURN = """
import sys, time
end = time.thread_time() + float(sys.argv[1])
while time.thread_time() < end:
    pass
"""


@contextlib.contextmanager
def stranger(seconds):
    """Let a program that is not ours burn a CPU; yields the file that appears when it is done."""
    with tempfile.TemporaryDirectory() as folder:
        done = Path(folder) / "done"
        code = f"{BURN}open({str(done)!r}, 'w').close()"
        command = ["setsid", "--fork", sys.executable, "-c", code, str(seconds)]
        subprocess.run(command, check=True)
        yield done


needs_proc = mark.skipif(
    other_programs._Snapshot.take() is None, reason="this system does not tell"
)


@needs_proc
@mark.skipif(not shutil.which("setsid"), reason="needs a program that is not our child")
def test_what_a_stranger_uses_is_told():
    start = time.perf_counter()
    with other_programs.watch() as used, stranger(0.5) as done:
        while not done.exists():
            time.sleep(0.01)
    wall = time.perf_counter() - start
    assert used.cpus * wall > 0.8 * 0.5, "others may add to it, none can take from it"


@pytest.mark.slow
@needs_proc
def test_our_own_ranks_and_children_are_not_others():
    def program():
        burn(0.4)

    launch(program, world_size=2)  # starts the fork server
    before = other_programs._Snapshot.take()
    launch(program, world_size=2)
    subprocess.run([sys.executable, "-c", BURN, "0.3"], check=True)
    burn(0.2)
    after = other_programs._Snapshot.take()
    everybody = before.cpus_of_others(after, ours=-1)
    theirs = before.cpus_of_others(after, ours=os.getpid())
    assert (everybody - theirs) * (after.clock - before.clock) > 0.9 * (2 * 0.4 + 0.3 + 0.2)


def snapshot(clock, *, stolen=0.0, busy=0.0, whole=True, **processes):
    """Processes as `p7=(parent, used, reaped)`."""
    of = other_programs._Process
    table = {int(name[1:]): of(*figures) for name, figures in processes.items()}
    return other_programs._Snapshot(clock, table, 2, busy, stolen, whole)


def cpus(before, after):
    return pytest.approx(before.cpus_of_others(after, ours=10))


def test_who_descends_from_us_is_ours():
    before = snapshot(0, p1=(0, 5, 5), p10=(1, 1, 0), p20=(1, 1, 0))
    after = snapshot(2, p1=(0, 5, 5), p10=(1, 2, 8), p11=(10, 9, 0), p12=(11, 9, 0), p20=(1, 2, 0))
    assert cpus(before, after) == 0.5


def test_who_began_and_ended_meanwhile_shows_at_its_parent():
    before = snapshot(0, p20=(1, 1, 3), p21=(20, 4, 0), p22=(20, 1, 0))
    after = snapshot(2, p20=(1, 1, 9.01), p22=(20, 1, 0))  # 21 ended, having used 4; and another
    assert cpus(before, after) == 1.0, "of 6 s that were reaped, 4 had been used before"
    assert cpus(before, snapshot(2, p20=(1, 1, 3.01), p21=(20, 4, 0))) == 0, "may be rounding"
    assert cpus(before, snapshot(2, p20=(1, 2, 3), p22=(20, 1, 0))) == 0.5, "reaped by nobody"


def test_stolen_time_counts():
    assert cpus(snapshot(0), snapshot(2, stolen=1.01)) == 0.5


def test_in_a_container_the_machines_total_tells():
    inside = {"p10": (1, 3.0, 0)}
    before = snapshot(0, p10=(1, 1, 0))
    after = snapshot(4, busy=7.0, whole=False, **inside)
    assert cpus(before, after) == (7.0 - 2.0 - 3 * 0.01 * 800**0.5) / 4
    assert cpus(before, snapshot(4, busy=7.0, **inside)) == 0, "whoever sees all needs no total"
    assert cpus(before, snapshot(4, busy=2.5, whole=False, **inside)) == 0, "within the error"


def test_where_nobody_tells_others_are_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(other_programs, "_PROC", tmp_path)
    with other_programs.watch() as used:
        pass
    assert used.cpus is None


def test_under_torchrun_the_agent_and_its_ranks_are_ours(monkeypatch):
    assert other_programs._root() == os.getpid()
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    assert other_programs._root() == os.getppid()
