"""Which CPUs a process may use, with all the threads that it has."""

import os
import threading

from pytest import mark, raises

from labkit import launch
from labkit.ranks import affinity

pytestmark = mark.skipif(not affinity.available(), reason="this system has no affinity")


def tasks():
    return os.listdir("/proc/self/task")  # noqa: PTH208


def test_every_thread_is_pinned_those_there_and_those_to_come():
    def program():
        stop = threading.Event()
        for _ in range(3):
            threading.Thread(target=stop.wait).start()
        before = len(tasks())
        affinity.pin(affinity.cpus()[:1])
        threading.Thread(target=stop.wait).start()
        first = affinity.cpus()[0]
        pinned = [os.sched_getaffinity(int(task)) == {first} for task in tasks()]
        stop.set()
        return before, pinned

    [(before, pinned)] = launch(program, world_size=1)
    assert before > 4, "python, three workers, and gloo's threads"
    assert pinned == [True] * (before + 1)


def test_systems_without_it_say_so(monkeypatch):
    monkeypatch.delattr(os, "sched_setaffinity")
    assert not affinity.available()
    assert len(affinity.cpus()) == os.cpu_count()
    with raises(OSError, match="no way to choose"):
        affinity.pin([0])
