"""On a CPU, waiting for one, or blocked: each made to happen, and told apart."""

import os
import threading
import time

from pytest import approx, mark, raises

from labkit import launch
from labkit.measure import sched
from labkit.ranks import affinity

pytestmark = mark.skipif(not sched.available(), reason="the kernel keeps no scheduler statistics")


def burn(seconds):
    """Use a CPU for that long, however long it takes to get it."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@mark.timed
def test_a_sleep_is_blocked_time_and_work_is_time_on_a_cpu():
    with sched.watch() as usage:
        time.sleep(0.3)
    assert usage.wall >= 0.3 and usage.voluntary >= 1
    assert usage.blocked > 0.8 * usage.wall and usage.on_cpu < 0.2 * usage.wall
    with sched.watch() as usage:
        burn(0.3)
    assert usage.on_cpu == approx(0.3, abs=0.05)
    assert usage.blocked < usage.on_cpu / 2


@mark.timed
def test_all_threads_count_each_under_its_name():
    ready, done = threading.Event(), threading.Event()

    def worker():
        burn(0.2)
        ready.set()
        done.wait()

    with sched.watch() as usage:
        thread = threading.Thread(target=worker)
        thread.start()
        ready.wait()
    done.set()
    thread.join()
    assert usage.on_cpu == approx(0.2, abs=0.05)
    assert max(usage.threads[1:], key=lambda t: t.on_cpu).on_cpu == approx(0.2, abs=0.05)
    assert usage.threads[0].on_cpu < 0.05, "the main thread only waited"
    assert usage.on_cpu == sum(t.on_cpu for t in usage.threads)


@mark.timed
@mark.skipif(not affinity.available(), reason="needs ranks on one CPU")
def test_two_ranks_on_one_cpu_wait_for_each_other():
    def program():
        import torch.distributed as dist

        affinity.pin(affinity.cpus()[:1])
        dist.barrier()
        with sched.watch() as usage:
            burn(0.3)
            dist.barrier()  # neither leaves before the other has done its work
        return usage.on_cpu, usage.waiting, usage.wall

    for on_cpu, waiting, wall in launch(program, world_size=2):
        assert on_cpu == approx(0.3, abs=0.08) and wall > on_cpu + 0.1
        assert waiting > 0.1, "while one ran, the other was runnable"


def test_without_counters_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(sched, "_TASKS", tmp_path / "absent")
    assert not sched.available()
    with raises(sched.SchedUnavailable, match="no scheduler statistics"), sched.watch():
        pass
    monkeypatch.setattr(sched, "_TASKS", tmp_path)
    (mine := tmp_path / str(os.getpid())).mkdir()
    (mine / "schedstat").write_text("0 0 0\n")
    (mine / "comm").write_text("python\n")
    with raises(sched.SchedUnavailable, match="CONFIG_SCHED_INFO"), sched.watch():
        pass
