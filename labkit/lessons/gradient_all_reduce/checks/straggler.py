"""Check of exercise 2.1: the straggler, from timers alone."""

import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from labkit.course import checking
from labkit.course.checking import CheckFailed

Diagnose = Callable[[Sequence[Sequence[float]]], tuple[int, float, float]]
DELAY = 0.03


def check_diagnose(diagnose: Diagnose) -> None:
    """Judge exercise 2.1 on made-up timers with a known truth, then on real ranks.

    Raises:
        CheckFailed: the straggler, the transfer or the loss is wrong.
    """
    with checking.exercise("2.1", par="the straggler by name, both times within 1 %") as verdict:
        for world_size in checking.WORLD_SIZES:
            for guilty in range(world_size):
                _judge_timers(diagnose, *_timers(world_size, guilty))
        _judge_timers(diagnose, *_timers(4, 1, rare=True))
        guilty, seconds = 1, checking.on_ranks(_late_rank, 1, world_size=3, timeout=40.0)
        rank = _triple(diagnose(seconds))[0]
        if rank != guilty:
            raise CheckFailed(
                f"real ranks, rank {guilty} sleeps {1e3 * DELAY:.0f} ms: rank {guilty}",
                f"rank {rank}",
                "the rank that comes last waits least: its own timer is the smallest",
            )
        verdict.reached = "the right rank in 15 cases, one of them real"


def _timers(world_size: int, guilty: int, rare: bool = False):
    """Make timers around 6 collectives: arrivals are known, so is who delays whom by how much."""
    random = torch.Generator().manual_seed(10 * world_size + guilty)
    seconds = [[] for _ in range(world_size)]
    transfer = lost = 0.0
    for call in range(6):
        arrivals = torch.rand(world_size, generator=random, dtype=torch.float64) * 0.004
        if not rare or call == 2:
            arrivals[guilty] += 0.05 + 0.01 * call
        elif rare:  # somebody else is last most of the time, by very little
            arrivals[(guilty + 1) % world_size] = arrivals.max() + 1e-4
        moving = 0.002 + 0.001 * call
        end = float(arrivals.max()) + moving
        for rank in range(world_size):
            seconds[rank].append(end - float(arrivals[rank]))
        transfer += moving
        ordered = arrivals.sort().values
        if int(arrivals.argmax()) == guilty:
            lost += float(ordered[-1] - ordered[-2])
    return seconds, guilty, transfer, lost


def _judge_timers(diagnose: Diagnose, seconds, guilty: int, transfer: float, lost: float) -> None:
    rank, got_transfer, got_lost = _triple(diagnose(seconds))
    if rank != guilty:
        sums = [sum(own) for own in seconds]
        last = [min(range(len(seconds)), key=lambda r: seconds[r][c]) for c in range(6)]
        if rank == sums.index(max(sums)):
            meaning = (
                "the rank with the *largest* timers is the one that waits most: it is the "
                "first victim, not the cause"
            )
        elif rank == max(set(last), key=last.count):
            meaning = (
                "the rank that is last most *often* need not cost most: weigh each call by the "
                "seconds that the others lose"
            )
        else:
            meaning = "in each call the last rank has the smallest timer"
        raise CheckFailed(f"the straggler: rank {guilty}", f"rank {rank}", meaning)
    mean_based = sum(sum(own) for own in seconds) / len(seconds)
    checking.close_to(
        got_transfer,
        transfer,
        within=0.01,
        what="time spent moving bytes, all calls together",
        unit="s",
        meaning=(
            "averaging over ranks mixes the waiting back in: take the smallest timer of each call"
            if abs(got_transfer - mean_based) < 0.01 * mean_based
            else "moving begins when the last rank arrives: the smallest timer of each call, summed"
        ),
    )
    checking.close_to(
        got_lost,
        lost,
        within=0.01,
        what="time that the straggler alone costs the group",
        unit="s",
        meaning="without the last rank the next to last would decide: compare the two smallest "
        "timers, and only in the calls where your straggler was last",
    )


def _triple(answer) -> tuple[int, float, float]:
    if not isinstance(answer, tuple) or len(answer) != 3:
        raise CheckFailed(
            "a tuple (rank, transfer, lost)",
            repr(answer),
            "the function lacks a `return` on this path, or returns something else",
        )
    return answer


def _late_rank(guilty: int) -> list[float]:
    tensor, seconds = torch.ones(1000), []
    for _ in range(6):
        dist.barrier()
        if dist.get_rank() == guilty:
            time.sleep(DELAY)
        begin = time.perf_counter()
        dist.all_reduce(tensor)
        seconds.append(time.perf_counter() - begin)
    return seconds
