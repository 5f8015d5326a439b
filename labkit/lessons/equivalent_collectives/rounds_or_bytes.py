"""Lesson 6, who wins when: rounds against bytes, on links where a message costs 10 ms.

A small tensor wants few rounds, a large one few bytes. On loopback the scheduler would decide; on
a fabric with a latency that is added on purpose the model must predict every time and every
crossing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import torch

from labkit.comm import algorithms
from labkit.comm.costs import ALL_REDUCES
from labkit.fabric.fabric import Fabric, FabricUnavailable
from labkit.launch.launcher import launch
from labkit.lessons.equivalent_collectives import latency
from labkit.measure import records, timing
from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.tables import Table

NAME = "rounds-or-bytes"
TITLE = "Few rounds or few bytes?"
RECORDING = Path(__file__).with_name("recording.json")
SIZES = (2**14, 2**18, 2**20, 2**22)
RATE, SLOW = "200mbit", 0.01
WAYS = {
    "ring": "ring_all_reduce",
    "tree": "tree_all_reduce",
    "doubling": "recursive_doubling_all_reduce",
    "halving-doubling": "halving_doubling_all_reduce",
}
"""Short name, as in `labkit.comm.costs.ALL_REDUCES` -> algorithm."""


def sweep(
    sizes: Sequence[int] = SIZES, *, hosts: int = 4, alpha: float = SLOW, iters: int = 2
) -> list[Record]:
    """Time the hand-written all_reduces over sizes, on links where a message costs `alpha` more.

    Args:
        sizes: S, bytes.
        hosts: world size.
        alpha: seconds that the sender sleeps before each message.
        iters: calls per size and algorithm.

    Returns:
        A record per algorithm and size; `predicted` is the closed form's seconds.

    Raises:
        FabricUnavailable: hosts cannot be made here.
    """
    with Fabric.star(hosts=hosts, rate=RATE) as fabric:
        results = launch(
            program, tuple(sizes), alpha, iters, world_size=hosts, fabric=fabric, timeout=120
        )
        beta = 1 / fabric.payload_rate(0, 1)
    return [
        Record(
            NAME,
            name,
            {"hosts": hosts, "rate": RATE, "alpha": alpha},
            [result[name, nbytes] for result in results],
            Tier.EMULATED,
            Provenance.here(),
            collective="all_reduce",
            nbytes=nbytes,
            predicted=cost(hosts).seconds(nbytes, alpha=alpha, beta=beta),
        )
        for name, cost in ALL_REDUCES.items()
        if name in WAYS
        for nbytes in sizes
    ]


def program(sizes: Sequence[int], alpha: float, iters: int) -> dict[tuple[str, int], list[float]]:
    """Time every algorithm of `WAYS` at every size; runs on every rank."""
    found = {}
    for name, algorithm in WAYS.items():
        run = getattr(algorithms, algorithm)
        run(torch.zeros(1))  # opens the connections
        for nbytes in sizes:
            tensor = torch.zeros(nbytes // 4)
            with latency.added(alpha):
                samples = timing.time_calls(functools.partial(run, tensor), warmup=0, iters=iters)
            found[name, nbytes] = samples
    return found


def run(*, quick: bool = False, progress: Callable[[str], None] | None = None) -> list[Record]:
    """Run the sweep; where no fabric can be made, return the recorded one."""
    if progress:
        progress(f"{len(WAYS)} algorithms, {len(SIZES)} sizes")
    return sweep_or_recorded(iters=1 if quick else 3)


def table(found: Sequence[Record]) -> Table:
    """Lay the records out for reading: measured against the closed form."""
    rows = []
    for record in found:
        run, model = record.summary.median, record.predicted
        row = [record.case, record.nbytes, *(round(t * 1e3, 1) for t in (run, model))]
        rows.append([*row, f"{run / model - 1:+.0%}"])
    return Table(["algorithm", "S (bytes)", "ms", "model ms", "off"], rows)


def sweep_or_recorded(**options: int | float | Sequence[int]) -> list[Record]:
    """Measure as `sweep` does; where no fabric can be made, say so and return a recorded run."""
    try:
        return sweep(**options)
    except FabricUnavailable as reason:
        print(f"{reason}\nWhat follows was recorded on another machine.")
    return records.load(RECORDING, recorded=True, experiment=NAME)


def crossing(records: Sequence[Record], first: str, second: str, *, modelled: bool) -> float | None:
    """Return the size from which `second` is faster than `first`, between the sizes that were run.

    Args:
        records: what `sweep` returned.
        first: short name of the algorithm that is faster when S is small.
        second: of the one that is faster when S is large.
        modelled: whether to use the closed forms' times instead of the measured ones.

    Measured is the fastest of the calls: a busy machine can only add to it.

    Returns:
        Bytes, by straight lines between neighbouring sizes; None if they do not cross.
    """

    def times(name: str) -> dict[int, float]:
        return {
            r.nbytes: r.predicted if modelled else min(r.seconds) for r in records if r.case == name
        }

    early, late = times(first), times(second)
    sizes = sorted(early)
    for low, high in pairwise(sizes):
        before, after = late[low] - early[low], late[high] - early[high]
        if before > 0 >= after:
            return low + (high - low) * before / (before - after)
    return None
