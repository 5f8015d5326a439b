"""Who failed first is blamed, and who failed after that is mentioned."""

import atexit
import itertools
import os
import re
import signal
import stat
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing import get_context

from labkit import RankDied, launch
from labkit.ranks import launcher


def fail():
    raise ValueError("the root cause")


WAYS = {
    "signal": (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by SIGKILL"),
    "exit": (lambda: os._exit(9), "exited with status 9"),
    "abort": (os.abort, "was killed by SIGABRT"),
    "exception": (fail, "raised ValueError: the root cause"),
}
QUICK = (1, 6, 8, 15)  # each way once as the first, and once as the second
ORDERS = itertools.cycle(itertools.permutations(range(3), 2))
SAMPLE = [
    pytest.param(*ways, *order, marks=[] if number in QUICK else pytest.mark.slow)
    for number, (ways, order) in enumerate(zip(itertools.product(WAYS, WAYS), ORDERS, strict=False))
]


@pytest.mark.parametrize("way, later, first, second", SAMPLE)
def test_the_first_one_is_blamed(way, later, first, second, tmp_path):
    """Two of three ranks fail, one after the other; the third is in a collective.

    On a busy machine a process takes its time to die. So the second one looks until the first is
    gone, or has run its exit handlers, which it does once its exception is reported.
    """
    mark = tmp_path / "ended"

    def program():
        rank, pids = dist.get_rank(), [0] * 3
        dist.all_gather_object(pids, os.getpid())
        if rank == first:
            atexit.register(mark.touch)
            time.sleep(0.05)
            WAYS[way][0]()
        if rank == second:
            while Path(f"/proc/{pids[first]}").exists() and not mark.exists():
                time.sleep(0.001)
            time.sleep(0.1)
            WAYS[later][0]()
        dist.barrier()

    with pytest.raises(ValueError if way == "exception" else RankDied) as caught:
        launch(program, world_size=3, timeout=20)
    if way == "exception":
        said = "".join(caught.value.__notes__)
        blamed = int(re.search(r"here rank (\d)|on rank (\d)", said)[0][-1])
    else:
        said, blamed = "".join(caught.value.later), caught.value.rank
    assert blamed == first, said
    if way == later == "exception":
        assert f"raised on 2 of 3 ranks ({min(first, second)}, " in said
    else:
        assert f"rank {second} {WAYS[later][1]}" in said


@pytest.mark.parametrize("end", [os.abort, lambda: os._exit(134)])
def test_peers_that_notice_a_death_and_end_themselves_do_not_hide_it(end):
    def program():
        if dist.get_rank() == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            dist.barrier()
        except RuntimeError:
            end()

    with pytest.raises(RankDied, match="rank 3 of 4 was killed by SIGKILL") as caught:
        launch(program, world_size=4)
    assert caught.value.signal == signal.SIGKILL
    assert "134" in str(caught.value) or "SIGABRT" in str(caught.value)


def test_the_launcher_hears_of_a_death_before_any_peer():
    """The kernel closes files from the highest number down: the control socket's is the highest."""

    def program():
        numbers = sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
        return stat.S_ISSOCK(os.fstat(numbers[-1]).st_mode) and numbers[-1] > numbers[-2] + 500

    assert launch(program, world_size=2) == [True, True]


@pytest.mark.parametrize("killed", range(3))
def test_a_launcher_that_is_held_up_hears_them_in_the_order_in_which_they_fell(killed, monkeypatch):
    """As where ranks that have just met take its CPU: who met last must not be told of first."""

    def program():
        if dist.get_rank() == killed:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            dist.barrier()
        except RuntimeError:
            os.abort()

    step = launcher._Supervisor._step

    def held_up(self, seconds):
        step(self, seconds)
        if all(rank.joined for rank in self.ranks) and not self.fallen:
            time.sleep(0.5)

    monkeypatch.setattr(launcher._Supervisor, "_step", held_up)
    with pytest.raises(RankDied, match=f"rank {killed} of 3 was killed by SIGKILL"):
        launch(program, world_size=3)


@pytest.mark.parametrize(
    "work",
    [
        lambda: get_context("fork").Process(target=time.sleep, args=(30,)).start(),
        lambda: os.system("sleep 30 &"),
    ],
    ids=["forked", "of the shell"],
)
def test_workers_of_a_rank_do_not_hide_that_it_was_first(work):
    def program():
        if dist.get_rank() == 2:
            work()
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            dist.barrier()
        finally:
            os._exit(1)

    with pytest.raises(RankDied, match="rank 2 of 3 was killed by SIGKILL"):
        launch(program, world_size=3)


def test_an_error_that_only_follows_a_death_is_not_the_cause():
    def program():
        if dist.get_rank() == 1:
            time.sleep(0.1)
            os._exit(5)
        try:
            dist.all_reduce(torch.ones(1))
        except RuntimeError as error:
            raise LookupError("training failed") from error

    with pytest.raises(RankDied, match="rank 1 of 3 exited with status 5") as caught:
        launch(program, world_size=3)
    assert caught.value.later == ["ranks 0, 2 lost a connection to another"]


@pytest.mark.slow
def test_what_other_ranks_returned_comes_with_the_error():
    def program(end):
        if dist.get_rank() == 2:
            time.sleep(0.5)
            end()
        return torch.full((2,), dist.get_rank())

    for end in (fail, lambda: os._exit(1), lambda: time.sleep(60)):
        with pytest.raises((ValueError, RuntimeError)) as caught:
            launch(program, end, world_size=3, timeout=3)
        results = caught.value.results
        assert {rank: value.tolist() for rank, value in results.items()} == {0: [0, 0], 1: [1, 1]}
