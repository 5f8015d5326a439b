"""The launcher at its worst: every way in which ranks fail, and nothing left behind."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import torch
import torch.distributed as dist
from pytest import mark, raises

from labkit import LaunchTimeout, RankDied, RankError, launch
from tests.marks import slow
from tests.ranks import leftovers
from tests.ranks.nodes import environment, started

pytestmark = mark.usefixtures("nothing_left")


class Picky(Exception):
    """Cannot be made again from its args, which is what its pickle has."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")
        self.one = one


class Mute(Exception):
    def __str__(self):
        raise ValueError("nothing to say")


def hang(program, *, world_size, settled):
    """Launch a program that hangs; return the failure, once the other ranks have settled.

    On a loaded machine they may not have when the time is up: then they get more of it.
    """
    for timeout in (0.5, 2, 8):
        with raises(LaunchTimeout) as caught:
            launch(program, world_size=world_size, timeout=timeout)
        if settled(caught.value.case):
            break
    return caught.value


def wait_for_all():
    dist.all_reduce(torch.ones(1))


def fail(error):
    raise error


def test_the_ranks_own_exception_is_raised():
    def program():
        if dist.get_rank() == 2:
            raise LookupError("only here")
        wait_for_all()

    start = time.monotonic()
    with raises(LookupError, match="only here") as caught:
        launch(program, world_size=4)
    assert time.monotonic() - start < 10, "the other ranks were not ended at once"
    assert caught.value.__notes__ == ["[labkit] raised on rank 2 of 4"]
    shown = str(caught.value.__cause__)
    assert 'raise LookupError("only here")' in shown and "labkit/ranks" not in shown


STAYS = [
    (lambda: fail(Picky(threading.Lock(), "that")), RankError, "Picky: <unlocked .* and that"),
    (lambda: fail(Mute()), RankError, "its text cannot be had"),
    (lambda: sys.exit(3), RankError, "SystemExit: 3"),
    (threading.Lock, TypeError, r"returned a _thread.lock that cannot be sent back"),
]


@mark.parametrize("program, error, says", STAYS)
def test_what_cannot_travel_is_told_in_words(program, error, says):
    with raises(error, match=says):
        launch(program, world_size=2)


def test_an_exception_travels_with_what_it_holds_and_sys_exit_ends_a_rank_only():
    with raises(Picky, match="0 and that") as caught:
        launch(lambda: fail(Picky(0, "that")), world_size=1)
    assert caught.value.one == 0
    assert launch(lambda: sys.exit(0), world_size=2) == [None, None]


DEATHS = [
    (lambda: os.kill(os.getpid(), 9), "was killed by SIGKILL", signal.SIGKILL, None),
    (lambda: os._exit(0), "exited with status 0", None, 0),
]


@mark.parametrize("end, says, number, status", DEATHS)
def test_a_rank_that_dies_is_named_with_its_signal_or_status(end, says, number, status):
    def program():
        if dist.get_rank() == 1:
            print("last words", file=sys.stderr)
            end()
        wait_for_all()

    with raises(RankDied, match=f"rank 1 of 3 {says}") as caught:
        launch(program, world_size=3)
    died = caught.value
    known = died.rank, died.signal, died.exitcode, died.stderr[0]
    assert known == (1, number, status, "last words")


def test_the_last_lines_of_a_dead_ranks_stderr_are_told():
    def program():
        for number in range(40):
            print(f"word {number}", file=sys.stderr)
        os._exit(3)

    with raises(RankDied) as caught:
        launch(program, world_size=1)
    assert [f"word {number}" for number in range(24, 40)] == caught.value.stderr
    assert "word 24" in str(caught.value) and "word 23" not in str(caught.value)


@mark.slow
def test_an_endless_loop_is_shown_by_its_line():
    def program():
        if dist.get_rank() == 1:
            while True:
                sum(range(10))

    timeout = hang(program, world_size=2, settled=lambda case: case.running == [1])
    assert re.match(r"1 of 2 ranks had not finished after [\d.]+ s\.", str(timeout))
    finished, running = timeout.case.ranks
    assert (finished.state, running.state) == ("finished", "running")
    line = running.line
    assert line.name == "program" and line.source in {"while True:", "sum(range(10))"}


@mark.slow
def test_a_rank_in_a_collective_is_shown_with_those_it_waits_for():
    def program():
        wait_for_all()
        if dist.get_rank() != 1:
            dist.broadcast(torch.ones(2, 3), src=0)
            dist.barrier()

    def settled(case):
        return case.running == [0, 2] and case.ranks[2].waiting_in

    timeout = hang(program, world_size=3, settled=settled)
    case, text = timeout.case, str(timeout)
    waiting = case.ranks[0].waiting_in
    assert (waiting.name, waiting.number, waiting.shapes) == ("broadcast", 2, ((2, 3),))
    assert case.running == [0, 2] and case.missing(waiting) == [1]
    assert case.ranks[2].waiting_in.name == "barrier"  # the root's data had reached rank 2
    assert [call.name for call in case.ranks[1].entered] == ["all_reduce"]
    assert "    #2 broadcast(float[2x3]) in group default: NOT FINISHED" in text
    assert "not there yet: rank 1" in text and "dist.broadcast(torch.ones(2, 3), src=0)" in text
    assert "site-packages" not in text, "the learner's lines are enough"


def in_a_smaller_group():
    group = dist.new_group([0, 2])
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(2), group=group)


def in_a_receive():
    if dist.get_rank() == 0:
        dist.recv(torch.empty(4), src=1)


def in_a_work_of_a_receive():
    if dist.get_rank() == 0:
        sent = dist.isend(torch.ones(4), 2)  # has ended, and is not told of, though it is kept
        sent.wait()
        dist.irecv(torch.empty(4), 1).wait()
    if dist.get_rank() == 2:
        dist.recv(torch.empty(4), 0)


def in_a_send_within_a_group():
    group = dist.new_group([2, 0])
    if dist.get_rank() == 0:
        dist.send(torch.empty(4), 2, group=group)


def holding_the_interpreter():
    if dist.get_rank() == 0:
        ctypes.PyDLL(None).sleep(60)  # PyDLL, unlike CDLL, keeps the lock during the call


HANGS = [
    (in_a_smaller_group, "group [0, 2]; not there yet: rank 2"),
    (in_a_receive, "rank 0: running, waiting in recv from rank 1"),
    (in_a_work_of_a_receive, "rank 0: running; not ended: recv from rank 1"),
    (in_a_send_within_a_group, "rank 0: running, waiting in send to rank 2"),
    (holding_the_interpreter, "PyDLL(None).sleep(60)"),
]


@mark.slow
@mark.parametrize("program, says", HANGS)
def test_where_a_rank_hangs_is_told(program, says):
    timeout = hang(program, world_size=3, settled=lambda case: says in str(case))
    assert says in str(timeout)
    assert 0 in timeout.case.running, "though the signal for its stack may cut a sleep short"


def swapped():
    (dist.barrier if dist.get_rank() else wait_for_all)()


def after_ddp():
    """Its constructor dies of SIGSEGV under torch's own checks (2.13): see `rank.join`."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    model(torch.full((1, 2), 1.0)).sum().backward()
    assert model.module.weight.grad is not None
    swapped()


@mark.parametrize("program", [swapped, slow(after_ddp)])
def test_swapped_collectives_are_found_where_checks_are_asked_for(program):
    with raises(RuntimeError, match="Detected mismatch between collectives on ranks"):
        launch(program, world_size=2, checks=True)


def test_an_interrupt_ends_the_launch_and_the_next_one_works():
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    with raises(KeyboardInterrupt):
        launch(time.sleep, 30, world_size=4)
    assert time.monotonic() - start < 10
    assert launch(dist.get_rank, world_size=2) == [0, 1]


@mark.slow
def test_an_interrupt_of_the_whole_group_as_jupyter_and_a_terminal_send_it_is_the_callers_alone():
    script = """
        import time
        import torch.distributed as dist
        from labkit import launch
        from labkit.ranks import server
        def program():
            print("up", flush=True)
            time.sleep(60)
        try:
            launch(program, world_size=2)
        except KeyboardInterrupt as interrupt:
            print("interrupted", interrupt.__cause__, server._server._process.poll(), flush=True)
        print(launch(dist.get_rank, world_size=2))
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, env=environment(), start_new_session=True, **pipes) as parent:
        assert sum("up" in parent.stdout.readline() for _ in range(2)) == 2
        os.killpg(parent.pid, signal.SIGINT)
        told, complaints = parent.communicate()
    assert (told, complaints) == ("interrupted None None\n[0, 1]\n", "")


@mark.slow
def test_a_daemon_that_a_rank_leaves_in_a_session_of_its_own_ends_too():
    def program():
        daemon = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True)"
        options = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True}
        with subprocess.Popen([sys.executable, "-c", daemon], **options) as parent:
            orphan = int(parent.stdout.readline())
        beside = subprocess.Popen(["sleep", "60"], start_new_session=True)
        return orphan, beside.pid

    [left] = launch(program, world_size=1)
    assert not any(map(leftovers.alive, left))


@mark.slow
@mark.parametrize("moment", ["late", "early"])
def test_nothing_outlives_a_parent_that_is_killed(moment):
    """Late, while ranks wait in a barrier; early, while the server starts."""
    script = """
        import time
        from labkit import launch
        def program():
            import torch.distributed as dist
            print("up", flush=True)
            dist.barrier() if dist.get_rank() else time.sleep(60)
        launch(program, world_size=3)
    """
    with started(script) as parent:
        ranks = []
        if moment == "late":
            assert sum("up" in parent.stdout.readline() for _ in range(3)) == 3
        while not (servers := leftovers.children_of(parent.pid)):
            time.sleep(0.005)
        if moment == "late":
            ranks = leftovers.children_of(servers[0])
            assert len(ranks) == 3 and leftovers.directories_of(parent.pid)
        parent.kill()
    assert leftovers.after([*ranks, *servers], parent.pid) == []
