"""The launcher at its worst: every way in which ranks fail, and nothing left behind."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from labkit import LaunchTimeout, RankDied, RankError, launch
from tests.ranks import leftovers

REPOSITORY = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("nothing_left")


class Picky(Exception):
    """Cannot be made again from its args, which is what its pickle has."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")
        self.one = one


def hang(program, *, world_size, settled):
    """Launch a program that hangs; return the failure, once the other ranks have settled.

    On a loaded machine they may not have when the time is up: then they get more of it.
    """
    for timeout in (0.5, 2, 8):
        with pytest.raises(LaunchTimeout) as caught:
            launch(program, world_size=world_size, timeout=timeout)
        if settled(caught.value.case):
            break
    return caught.value


def wait_for_all():
    dist.all_reduce(torch.ones(1))


def test_the_ranks_own_exception_is_raised():
    def program():
        if dist.get_rank() == 2:
            raise LookupError("only here")
        wait_for_all()

    start = time.monotonic()
    with pytest.raises(LookupError, match="only here") as caught:
        launch(program, world_size=4)
    assert time.monotonic() - start < 10, "the other ranks were not ended at once"
    assert caught.value.__notes__ == ["[labkit] raised on rank 2 of 4"]
    assert 'raise LookupError("only here")' in str(caught.value.__cause__)
    assert "labkit/ranks" not in str(caught.value.__cause__)


def test_the_same_failure_everywhere_is_told_once():
    def program():
        raise ValueError(f"rank {dist.get_rank()}")

    with pytest.raises(ValueError, match=r"rank \d") as caught:
        launch(program, world_size=3)
    [note] = caught.value.__notes__
    assert "raised on 3 of 3 ranks (all)" in note


def test_an_exception_travels_with_what_it_holds_or_is_told_in_words():
    def program(of):
        raise Picky(of(), "that")

    with pytest.raises(Picky, match="0 and that") as caught:
        launch(program, int, world_size=1)
    assert caught.value.one == 0
    with pytest.raises(RankError, match=r"Picky: <unlocked .* and that"):
        launch(program, threading.Lock, world_size=1)


def test_an_exception_without_a_text_is_named():
    class Mute(Exception):
        def __str__(self):
            raise ValueError("nothing to say")

    def program():
        raise Mute

    with pytest.raises(RankError, match="its text cannot be had"):
        launch(program, world_size=2)


def test_sys_exit_does_not_end_the_caller():
    assert launch(lambda: sys.exit(0), world_size=2) == [None, None]
    with pytest.raises(RankError, match="SystemExit: 3"):
        launch(lambda: sys.exit(3), world_size=2)


def test_a_result_that_cannot_travel_is_explained():
    with pytest.raises(TypeError, match=r"returned a _thread.lock that cannot be sent back"):
        launch(threading.Lock, world_size=1)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_rank_is_named_with_its_signal(number):
    def program():
        if dist.get_rank() == 1:
            print("last words", file=sys.stderr)
            os.kill(os.getpid(), number)
        wait_for_all()

    with pytest.raises(RankDied, match=f"rank 1 of 3 was killed by {number.name}") as caught:
        launch(program, world_size=3)
    assert (caught.value.rank, caught.value.signal) == (1, number)
    assert caught.value.stderr[0] == "last words"


@pytest.mark.parametrize("status", [0, 7])
def test_a_rank_that_exits_is_named_with_its_status(status):
    def program():
        if dist.get_rank() == 0:
            os._exit(status)
        wait_for_all()

    with pytest.raises(RankDied, match=f"rank 0 of 2 exited with status {status}") as caught:
        launch(program, world_size=2)
    assert (caught.value.signal, caught.value.exitcode) == (None, status)


def test_an_endless_loop_is_shown_by_its_line():
    def program():
        if dist.get_rank() == 1:
            while True:
                sum(range(10))

    timeout = hang(program, world_size=2, settled=lambda case: case.running == [1])
    assert re.match(r"1 of 2 ranks had not finished after [\d.]+ s\.", str(timeout))
    finished, running = timeout.case.ranks
    assert (finished.state, running.state) == ("finished", "running")
    assert running.line.name == "program"
    assert running.line.source in {"while True:", "sum(range(10))"}


def test_a_rank_in_a_collective_is_shown_with_those_it_waits_for():
    def program():
        wait_for_all()
        if dist.get_rank() != 1:
            dist.broadcast(torch.ones(2, 3), src=0)
            dist.barrier()

    def settled(case):
        return case.running == [0, 2] and case.ranks[2].waiting_in

    timeout = hang(program, world_size=3, settled=settled)
    case = timeout.case
    assert case.running == [0, 2]
    waiting = case.ranks[0].waiting_in
    assert (waiting.name, waiting.number, waiting.shapes) == ("broadcast", 2, ((2, 3),))
    assert case.missing(waiting) == [1]
    assert case.ranks[2].waiting_in.name == "barrier"  # the root's data had reached rank 2
    assert [call.name for call in case.ranks[1].entered] == ["all_reduce"]
    assert "not there yet: rank 1" in str(timeout)
    assert "dist.broadcast(torch.ones(2, 3), src=0)" in str(timeout)


def test_a_call_in_a_smaller_group_is_told_with_its_members():
    def program():
        group = dist.new_group([0, 2])
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(2), group=group)

    timeout = hang(program, world_size=3, settled=lambda case: case.ranks[0].waiting_in)
    assert "group [0, 2]; not there yet: rank 2" in str(timeout)


@pytest.mark.slow
def test_a_rank_that_never_lets_go_of_the_interpreter_still_shows_its_stack():
    def program():
        import ctypes

        ctypes.PyDLL(None).sleep(60)  # PyDLL, unlike CDLL, keeps the lock during the call

    case = hang(program, world_size=1, settled=lambda case: case.ranks[0].line).case
    assert "sleep(60)" in case.ranks[0].line.source
    assert case.running == [0], "though the signal for the stack cut its sleep short"


def test_a_blocked_receive_is_shown():
    def program():
        if dist.get_rank() == 0:
            dist.recv(torch.empty(4), src=1)

    timeout = hang(program, world_size=2, settled=lambda case: case.ranks[0].inside == "recv")
    assert timeout.case.ranks[0].inside == "recv"
    assert "rank 0: running, waiting in recv" in str(timeout)


@pytest.mark.slow
def test_ddp_is_built_and_trains_with_checks():
    """Its constructor dies of SIGSEGV under torch's own checks (2.13): see `rank.join`."""

    def program():
        rank = dist.get_rank()
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        model(torch.full((1, 2), float(rank))).sum().backward()
        if rank == 1:
            dist.all_reduce(torch.ones(3))
        else:
            dist.all_reduce(torch.ones(2))
        return model.module.weight.grad.tolist()

    with pytest.raises(RuntimeError, match="Detected mismatch between collectives on ranks"):
        launch(program, world_size=2, checks=True)


def test_swapped_collectives_are_found_where_checks_are_asked_for():
    def program():
        (dist.barrier if dist.get_rank() else wait_for_all)()

    with pytest.raises(RuntimeError, match="Detected mismatch between collectives on ranks"):
        launch(program, world_size=2, checks=True)


def test_an_interrupt_ends_the_launch_and_the_next_one_works():
    def program():
        time.sleep(30)

    timer = threading.Timer(0.7, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        launch(program, world_size=4)
    assert time.monotonic() - start < 10
    assert launch(lambda: dist.get_rank(), world_size=2) == [0, 1]


def test_a_daemon_that_a_rank_leaves_in_a_session_of_its_own_ends_too():
    def program():
        daemon = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True)"
        options = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True}
        with subprocess.Popen([sys.executable, "-c", daemon], **options) as parent:
            orphan = int(parent.stdout.readline())
        beside = subprocess.Popen(["sleep", "60"], start_new_session=True)
        return orphan, beside.pid

    [(orphan, beside)] = launch(program, world_size=1)
    assert not leftovers.alive(orphan)
    assert not leftovers.alive(beside)


@pytest.mark.slow
@pytest.mark.parametrize(
    "body", ["time.sleep(60)", "dist.barrier() if dist.get_rank() else time.sleep(60)"]
)
def test_nothing_outlives_a_killed_parent(body):
    script = f"""
        import os, time
        from labkit import launch
        from labkit.ranks import server
        def program():
            import torch.distributed as dist
            print("up", flush=True)
            {body}
        print("pids", os.getpid(), server.shared().pid, flush=True)
        launch(program, world_size=3)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    with parent:
        _, pid, server = parent.stdout.readline().split()
        for _ in range(3):
            assert "up" in parent.stdout.readline()
        ranks = leftovers.children_of(int(server))
        assert len(ranks) == 3
        assert leftovers.directories_of(int(pid))
        parent.kill()
    assert leftovers.after([*ranks, int(server)], int(pid)) == []


@pytest.mark.slow
def test_a_parent_killed_while_the_server_starts_leaves_nothing():
    script = "from labkit import launch; print(flush=True); launch(int, world_size=2)"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as parent:
        parent.stdout.readline()
        deadline = time.monotonic() + 10
        while not (servers := leftovers.children_of(parent.pid)) and time.monotonic() < deadline:
            time.sleep(0.005)
        parent.kill()
    assert len(servers) == 1
    assert leftovers.directories_of(parent.pid) == []
    assert leftovers.after(servers, parent.pid) == []
