"""What a launch costs, against its targets. Not a test: run it on a quiet machine.

    python -m tools.bench_launch

Prints a table with a verdict per figure and the machine it holds for; exits with status 1 when a
target is missed. The targets are for 2 cores.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from labkit import launch
from labkit.measure.records import Provenance
from labkit.ranks import server


def program() -> float:
    """Sum once over the gloo group: the least that proves that everybody is there."""
    import torch
    import torch.distributed as dist

    x = torch.ones(1)
    dist.all_reduce(x)
    return x.item()


def later_launch(world_size: int, *, repeats: int) -> float:
    """Median seconds of a launch."""

    def once() -> None:
        launch(program, world_size=world_size, timeout=300)

    return statistics.median(seconds(once) for _ in range(repeats))


def spawned_rank(rank: int, world_size: int, store: str) -> None:
    """Do as a rank of `launch` does: set up the gloo group, then run the program."""
    import os

    import torch
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    group = dist.FileStore(store, world_size)
    dist.init_process_group("gloo", store=group, rank=rank, world_size=world_size)
    program()


def launches_and_spawn(world_size: int) -> list[float]:
    """Median seconds of a server's first launch, the next ten, ten later ones, and of mp.spawn."""
    from torch import multiprocessing

    rounds = []
    for _ in range(3):
        server.discard()
        times = [seconds(lambda: launch(program, world_size=world_size)) for _ in range(21)]
        with tempfile.TemporaryDirectory() as folder:
            args = (world_size, f"{folder}/store")
            spawned = seconds(lambda a=args: multiprocessing.spawn(spawned_rank, a, world_size))
        rounds.append([*map(statistics.median, (times[:1], times[1:11], times[11:])), spawned])
    return list(map(statistics.median, zip(*rounds, strict=True)))


def memory(world_size: int) -> float:
    """Bytes of main memory that idle ranks hold together: their PSS, shared pages by share."""

    def idle() -> int:
        import torch.distributed as dist

        program()
        dist.barrier()
        text = Path("/proc/self/smaps_rollup").read_text()
        dist.barrier()  # nobody leaves before all have looked
        return 1024 * next(int(line.split()[1]) for line in text.splitlines() if "Pss:" in line)

    return sum(launch(idle, world_size=world_size))


def overhead() -> float:
    """Share of time that `time_calls` adds to a bare loop around the same calls.

    Three ways in turn, many times over, on one rank: the differences between the medians are the
    harness's own. The call takes about 100 us.
    """

    def compare() -> list[float]:
        import torch
        import torch.distributed as dist

        from labkit.measure.timing import time_calls

        dist.destroy_process_group()  # without a group there is no barrier, which costs its own
        matrix = torch.ones(150, 150)
        calls = 200

        def call() -> None:
            matrix @ matrix

        def bare() -> float:
            start = time.perf_counter()
            for _ in range(calls):
                call()
            return time.perf_counter() - start

        def timed() -> float:
            return seconds(lambda: time_calls(call, warmup=0, iters=calls))

        bare(), timed()
        return [timed() / bare() for _ in range(60)]

    return statistics.median(launch(compare, world_size=1)[0]) - 1


def seconds(fn: Callable[[], object]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    fn()
    return time.perf_counter() - start


def figures() -> Iterator[tuple[str, float, float, str, bool]]:
    """Yield name, figure, target, unit, and whether more is better."""
    first, ten, later, spawned = launches_and_spawn(4)
    yield "first launch, 4 ranks", first, 2.0, "s", False
    yield "the next ten", ten, 0.1, "s", False
    yield "later launches", later, 0.06, "s", False
    yield "torch.multiprocessing.spawn / first launch", spawned / first, 2, "x", True
    yield "torch.multiprocessing.spawn / the next ten", spawned / ten, 70, "x", True
    yield "torch.multiprocessing.spawn / later launches", spawned / later, 70, "x", True
    yield "launch, 16 ranks", later_launch(16, repeats=9), 0.19, "s", False
    yield "launch, 64 ranks", later_launch(64, repeats=3), 1.0, "s", False
    yield "launch, 128 ranks", later_launch(128, repeats=1), 3.0, "s", False
    yield "memory of 16 idle ranks (PSS)", memory(16) / 2**30, 1, "GiB", False
    yield "time_calls against a bare loop", 100 * overhead(), 2, "%", False


def main() -> int:
    """Print the table; return the exit status."""
    print(Provenance.here())
    missed = 0
    for name, figure, target, unit, more in figures():
        reached = figure >= target if more else figure <= target
        missed += not reached
        bound = "at least" if more else "at most"
        verdict = "reached" if reached else "MISSED"
        print(f"{name:46} {figure:8.3f} {unit:4} {bound} {target:g} {unit:4} {verdict}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
