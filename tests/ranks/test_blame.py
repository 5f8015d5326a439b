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
from labkit.ranks.rank import JOINED
from tests.marks import slow

WAYS = {
    "signal": (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by SIGKILL"),
    "exit": (lambda: os._exit(9), "exited with status 9"),
    "abort": (os.abort, "was killed by SIGABRT"),
    "exception": (lambda: fail(), "raised ValueError: the root cause"),
}
ORDERS = tuple(itertools.permutations(range(3), 2))
SAMPLE = tuple(zip(itertools.product(WAYS, WAYS), itertools.cycle(ORDERS), strict=False))
QUICK = (1, 6, 8, 15)  # each way once as the first, and once as the second


def fail():
    raise ValueError("the root cause")


def one_after_another(first, second, ways, gap, mark):
    """Two of three ranks fail, so many seconds apart; the other one is in a collective.

    On a busy machine a process takes its time to die. So the second one looks until the first is
    gone, or has run its exit handlers, which it does once its exception is reported; for a gap of
    0 both go at one moment.
    """
    rank, start, pids = dist.get_rank(), [time.monotonic() + 0.05], [0] * 3
    dist.broadcast_object_list(start)
    dist.all_gather_object(pids, os.getpid())
    if rank == first:
        atexit.register(mark.touch)
    if rank == second and gap:
        while Path(f"/proc/{pids[first]}").exists() and not mark.exists():
            time.sleep(0.001)
        time.sleep(gap)
    if rank in (first, second):
        time.sleep(max(0, start[0] - time.monotonic()))
        WAYS[ways[rank == second]][0]()
    dist.barrier()


def check(first, second, ways, gap, mark):
    """Launch it; fail unless the first one is blamed, and the second one named."""
    mark.unlink(missing_ok=True)
    with pytest.raises((RankDied, ValueError)) as caught:
        launch(one_after_another, first, second, ways, gap, mark, world_size=3, timeout=20)
    error, died = caught.value, caught.type is RankDied
    [note] = [""] if died else error.__notes__
    blamed = error.rank if died else int(re.search(r"(?:here|on) rank (\d+)", note)[1])
    if gap == 0 and blamed != first:  # nobody can say who was first, but both are named
        first, second, ways = second, first, ways[::-1]
    said = f"{ways}, ranks {first} and {second}, {gap} s apart: {error} {note}"
    assert blamed == first, said
    assert died == (ways[0] != "exception"), said
    if ways == ("exception", "exception"):
        assert note.startswith(f"[labkit] raised on 2 of 3 ranks ({min(first, second)}, "), said
    else:
        assert f"rank {second} {WAYS[ways[1]][1]}" in (note or "".join(error.later)), said


@pytest.mark.parametrize("place", [n if n in QUICK else slow(n) for n in range(len(SAMPLE))])
def test_the_first_one_is_blamed(place, tmp_path):
    ways, order = SAMPLE[place]
    check(*order, ways, 0.1, tmp_path / "now")


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("gap", [0, 0.02, 0.1, 0.25])
@pytest.mark.parametrize("ways", [*itertools.product(WAYS, WAYS)], ids="-then-".join)
def test_the_first_one_is_blamed_each_time_and_in_every_order(ways, gap, tmp_path):
    for _, order in itertools.product(range(20), ORDERS):
        check(*order, ways, gap, tmp_path / "now")


def killed_among(killed, end):
    """Kill a rank whose peers are in a barrier; they end in this way when they notice."""
    if dist.get_rank() == killed:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.barrier()
    except RuntimeError:
        end()


@pytest.mark.slow
def test_peers_that_notice_a_death_and_end_themselves_do_not_hide_it():
    def end():
        os.abort() if dist.get_rank() else os._exit(134)

    with pytest.raises(RankDied, match="rank 3 of 4 was killed by SIGKILL") as caught:
        launch(killed_among, 3, end, world_size=4)
    assert caught.value.signal == signal.SIGKILL
    assert "134" in str(caught.value) or "SIGABRT" in str(caught.value)


@pytest.mark.slow
def test_the_launcher_hears_of_a_death_before_any_peer():
    """The kernel closes files from the highest number down: the control socket's is the highest."""

    def program():
        numbers = sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
        return stat.S_ISSOCK(os.fstat(numbers[-1]).st_mode) and numbers[-1] > numbers[-2] + 500

    assert launch(program, world_size=2) == [True, True]


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 2])
def test_a_launcher_that_is_held_up_hears_them_in_the_order_in_which_they_fell(killed, monkeypatch):
    """As where ranks that have just met take its CPU: who met last must not be told of first."""
    step = launcher._Supervisor._step

    def held_up(self, seconds):
        step(self, seconds)
        if all(JOINED in rank.heard for rank in self.ranks) and not self.fallen:
            time.sleep(0.5)

    monkeypatch.setattr(launcher._Supervisor, "_step", held_up)
    with pytest.raises(RankDied, match=f"rank {killed} of 3 was killed by SIGKILL"):
        launch(killed_among, killed, os.abort, world_size=3)


@pytest.mark.slow
def test_workers_of_a_rank_do_not_hide_that_it_was_first():
    def program():
        if dist.get_rank() == 2:
            get_context("fork").Process(target=time.sleep, args=(30,)).start()
            os.system("sleep 30 &")
        killed_among(2, lambda: os._exit(1))

    with pytest.raises(RankDied, match="rank 2 of 3 was killed by SIGKILL"):
        launch(program, world_size=3)


@pytest.mark.slow
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
def test_a_rank_that_died_before_its_peers_connected_is_blamed_without_gloos_log(capsys):
    """Above 32 ranks gloo connects two when they first speak."""

    def program():
        if dist.get_rank() == 7:
            os._exit(5)
        time.sleep(0.3)
        dist.all_to_all_single(torch.ones(33), torch.ones(33))

    with pytest.raises(RankDied, match="rank 7 of 33 exited with status 5"):
        launch(program, world_size=33)
    assert "failed to connect" not in capsys.readouterr().err


@pytest.mark.slow
def test_what_other_ranks_returned_comes_with_the_error():
    def program(end):
        if dist.get_rank() == 2:
            time.sleep(0.5)
            end()
        return torch.full((2,), dist.get_rank())

    for end in (fail, lambda: os._exit(1), lambda: time.sleep(60)):
        with pytest.raises((ValueError, RuntimeError)) as caught:
            launch(program, end, world_size=3, timeout=2)
        results = caught.value.results
        assert {rank: value.tolist() for rank, value in results.items()} == {0: [0, 0], 1: [1, 1]}
