"""What strangers used is told apart from what we and our ranks used."""

import functools
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace

from pytest import approx, mark

from course import other_programs
from labkit import launch
from tests.measure.test_sched import burn

BURN = """
import sys, time
end = time.thread_time() + float(sys.argv[1])
while time.thread_time() < end:
    pass
"""


needs_proc = mark.skipif(other_programs.Snapshot.take() is None, reason="nothing tells here")


@needs_proc
@mark.skipif(not shutil.which("setsid"), reason="needs a program that is not our child")
def test_what_a_stranger_uses_is_told(tmp_path):
    done = tmp_path / "done"
    program = f"{BURN}open({str(done)!r}, 'w').close()"
    start = time.perf_counter()
    with other_programs.watch() as used:
        subprocess.run(["setsid", "--fork", sys.executable, "-c", program, "0.5"], check=True)
        while not done.exists():
            time.sleep(0.01)
    wall = time.perf_counter() - start
    assert used.cpus * wall > 0.8 * 0.5, "others may add to it, none can take from it"


@mark.slow
@needs_proc
def test_our_own_ranks_and_children_are_not_others():
    launch(burn, 0.0, world_size=2)  # starts the fork server
    before = other_programs.Snapshot.take()
    launch(burn, 0.2, world_size=2)
    subprocess.run([sys.executable, "-c", BURN, "0.2"], check=True)
    burn(0.1)
    after = other_programs.Snapshot.take()
    family = [other_programs._descendants(look.processes, os.getpid()) for look in (before, after)]

    def of_the_family(look):  # other programs come and go meanwhile
        processes = {pid: x for pid, x in look.processes.items() if pid in set.union(*family)}
        return replace(look, processes=processes, stolen=0.0, whole=True)

    before, after = of_the_family(before), of_the_family(after)
    everybody = before.cpus_of_others(after, ours=-1)
    assert everybody * (after.clock - before.clock) > 0.9 * (2 * 0.2 + 0.2 + 0.1)
    assert before.cpus_of_others(after, ours=os.getpid()) == 0


def snapshot(clock, *, stolen=0.0, busy=0.0, whole=True, **processes):
    """Processes as `p7=(parent, used, reaped)`."""
    of = other_programs._Process
    table = {int(name[1:]): of(*figures) for name, figures in processes.items()}
    return other_programs.Snapshot(clock, table, 2, busy, stolen, whole)


ANCESTORS = snapshot(0, p20=(1, 1, 3), p21=(20, 4, 0), p22=(20, 1, 0))
CONTAINER = snapshot(0, p10=(1, 1, 0))
inside = functools.partial(snapshot, 4, p10=(1, 3.0, 0))
ADDED_UP = {
    "who descends from us is ours": (
        snapshot(0, p1=(0, 5, 5), p10=(1, 1, 0), p20=(1, 1, 0)),
        snapshot(2, p1=(0, 5, 5), p10=(1, 2, 8), p11=(10, 9, 0), p12=(11, 9, 0), p20=(1, 2, 0)),
        0.5,
    ),
    "21 ended, having used 4 before, and another of which only its parent tells": (
        ANCESTORS, snapshot(2, p20=(1, 1, 9.01), p22=(20, 1, 0)), 1.0,
    ),
    "it may be rounding": (ANCESTORS, snapshot(2, p20=(1, 1, 3.01), p21=(20, 4, 0)), 0),
    "21 was reaped by nobody": (ANCESTORS, snapshot(2, p20=(1, 2, 3), p22=(20, 1, 0)), 0.5),
    "stolen time counts": (snapshot(0), snapshot(2, stolen=1.01), 0.5),
    "in a container the machine's total tells": (
        CONTAINER, inside(busy=7.0, whole=False), (7.0 - 2.0 - 3 * 0.01 * 800**0.5) / 4,
    ),
    "whoever sees all needs no total": (CONTAINER, inside(busy=7.0), 0),
    "the total is within its error": (CONTAINER, inside(busy=2.5, whole=False), 0),
}  # fmt: skip


@mark.parametrize(("before", "after", "cpus"), ADDED_UP.values(), ids=ADDED_UP)
def test_what_others_used_is_added_up(before, after, cpus):
    assert before.cpus_of_others(after, ours=10) == approx(cpus)


def test_where_nobody_tells_others_are_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(other_programs, "_PROC", tmp_path)
    with other_programs.watch() as used:
        pass
    assert used.cpus is None


def test_under_torchrun_the_agent_and_its_ranks_are_ours(monkeypatch):
    assert other_programs.root() == os.getpid()
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    assert other_programs.root() == os.getppid()
