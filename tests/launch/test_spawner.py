"""Ranks without a fork server: the same promises, kept by fresh interpreters."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from pytest import fixture

from labkit import LaunchError, LaunchTimeout, RankDied, launch
from labkit.launch import spawner
from tests.launch import leftovers

REPOSITORY = Path(__file__).parents[2]


@fixture(autouse=True)
def spawn(monkeypatch):
    monkeypatch.setenv("LABKIT_START", "spawn")
    before = left()
    yield
    if spawner._spawner is not None:
        spawner._spawner.stop()  # it keeps a pair of sockets
    assert left() == before


def left():
    me = os.getpid()
    return leftovers.children_of(me), leftovers.directories_of(me), leftovers.descriptors()


def test_a_closure_runs_on_fresh_interpreters_and_the_cost_is_told_once(capsys):
    offset = torch.tensor([10.0])

    def program(factor):
        print("up")
        x = offset + factor * dist.get_rank()
        dist.all_reduce(x)
        return x.item(), os.getppid(), torch.get_num_threads()

    assert launch(program, 2, world_size=2) == [(22.0, os.getpid(), 1)] * 2
    out, err = capsys.readouterr()
    assert sorted(out.splitlines()) == ["[rank 0] up", "[rank 1] up"]
    assert "labkit: each rank starts as a fresh interpreter here" in err
    launch(int, world_size=1)
    assert capsys.readouterr().err == ""


def test_a_ranks_exception_and_its_own_children():
    def program():
        child = subprocess.Popen(["sleep", "60"])
        if dist.get_rank() == 1:
            raise LookupError(child.pid)
        dist.barrier()

    with pytest.raises(LookupError) as caught:
        launch(program, world_size=2)
    assert caught.value.__notes__ == ["[labkit] raised on rank 1 of 2"]
    assert not leftovers.alive(caught.value.args[0])


def test_a_killed_rank_is_named_with_its_signal():
    def program():
        print(subprocess.Popen(["sleep", "60"]).pid, file=sys.stderr)
        os.kill(os.getpid(), signal.SIGSEGV)

    with pytest.raises(RankDied, match="rank 0 of 1 was killed by SIGSEGV") as caught:
        launch(program, world_size=1)
    assert not leftovers.alive(caught.value.stderr[0]), "it left a child, which ended too"


def test_a_hang_has_a_case_file():
    def program():
        if dist.get_rank() == 0:
            dist.barrier()

    with pytest.raises(LaunchTimeout, match="not there yet: rank 1") as caught:
        launch(program, world_size=2, timeout=6)
    assert caught.value.case.running == [0]


@pytest.mark.parametrize("moment", ["running", "importing"])
def test_nothing_outlives_a_killed_parent(moment):
    script = """
        import os, time
        from labkit import launch
        from labkit.launch import spawner
        start_rank = spawner.Spawner.start_rank
        def program():
            import subprocess
            print(subprocess.Popen(["sleep", "60"]).pid, flush=True)
            time.sleep(60)
        spawner.Spawner.start_rank = lambda *a: (pid := start_rank(*a), print(pid, flush=True))[0]
        launch(program, world_size=2)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    with parent:
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        if moment == "running":
            pids += [int(parent.stdout.readline().split()[-1]) for _ in range(2)]
        assert all(map(leftovers.alive, pids))
        assert leftovers.directories_of(parent.pid)
        parent.kill()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and (
        any(map(leftovers.alive, pids)) or leftovers.directories_of(parent.pid)
    ):
        time.sleep(0.05)
    assert not [pid for pid in pids if leftovers.alive(pid)]
    assert leftovers.directories_of(parent.pid) == []


def test_windows_is_told_what_to_do(monkeypatch):
    monkeypatch.setattr(spawner.sys, "platform", "win32")
    monkeypatch.delattr(os, "fork")
    monkeypatch.delenv("LABKIT_START")
    with pytest.raises(LaunchError, match="Use WSL2"):
        launch(int, world_size=1)


def test_another_way_to_start_is_refused(monkeypatch):
    monkeypatch.setenv("LABKIT_START", "thread")
    with pytest.raises(ValueError, match='LABKIT_START must be "fork" or "spawn", got \'thread\''):
        launch(int, world_size=1)
