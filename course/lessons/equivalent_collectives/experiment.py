"""Lesson 6: three ways to sum a tensor over all ranks, and what each sends over the wires.

The question (GPU Puzzlers, 2023, "Communication is the Key to Success", puzzler 2): all_reduce;
reduce, then broadcast; reduce_scatter, then all_gather. Equal results: what decides their speed?

The ways run in turn on four hosts whose links are shaped (EMULATED), so that the time is the wire's
and not the scheduler's. Every answer is checked, and the same call's bytes are counted.
"""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

import numpy as np
import torch

from course import catalogue, runs
from course.comm.collectives import pattern
from course.comm.costs import AlphaBeta
from course.lessons.equivalent_collectives import programs
from course.lessons.equivalent_collectives.programs import CONTROL, STEPS, TREES, WAYS, Way
from course.place import Place, launch
from labkit.fabric.errors import FabricUnavailable
from labkit.measure import timing, wire
from labkit.measure.records import Record, Tier
from labkit.measure.tables import Table

NAME = "equivalent-collectives"
FOUR = Place(hosts=4, rate="200mbit")
NBYTES = 2 * 2**20
"""S. A multiple of 2 x 4096 x ranks, so that payload can be told from headers."""


def compare(
    ways: Mapping[str, Way],
    *,
    nbytes: int = NBYTES,
    quarters: bool = False,
    place: Place = FOUR,
    iters: int = 3,
    say: runs.Say = print,
) -> dict[str, Record]:
    """Run ways to sum in turn on hosts with equal links; return a record of each, by its name.

    With `quarters` each way gets turns with a quarter of the tensor, too: those records have
    `programs.QUARTER` behind their names.

    A record's `values` have `right` and `copied`, whether every rank had the sum, or rank 0's
    tensor, and `matrix`, what each rank sent to each other in units of S; None where nobody could
    count. `LookupError` where no links can be made and nothing of these names was recorded.
    """
    whole = divisible(nbytes, place.world_size)
    arms = {**ways, **{name + programs.QUARTER: way for name, way in ways.items() if quarters}}
    measure = functools.partial(measured, ways=arms, nbytes=whole, iters=iters)
    every = place.records(measure, experiment=NAME, cases=arms, say=say)
    own = runs.in_world(every, "")
    by_way = runs.by_case(r for r in own if r.nbytes == programs.given(r.case, whole))
    if missing := arms.keys() - by_way.keys():
        raise LookupError(f"no links can be made here, and nobody recorded {sorted(missing)}.")
    return {name: by_way[name] for name in arms}


def measured(
    here: Place, ways: Mapping[str, Way], nbytes: int, iters: int, **values: Any
) -> list[Record]:
    """Run the ways at a place that is up; `values` go into every record."""
    ranks = here.launch(programs.measure, dict(ways), nbytes, iters, timeout=120.0)
    records = []
    for name in ways:
        by_rank, size = [rank[name] for rank in ranks], programs.given(name, nbytes)
        fields = {x: all(rank[x] for rank in by_rank) for x in ("right", "copied")}
        fields |= {"matrix": _sent([rank["report"] for rank in by_rank], size), **values}
        samples = [rank["samples"] for rank in by_rank]
        records.append(here.record(name, samples, experiment=NAME, nbytes=size, values=fields))
    return records


def without_a_wire(work: Callable[[Sequence[torch.Tensor]], object]) -> list[float]:
    """Do in one process, five times, what the ranks' CPUs do for a sum of `NBYTES`; seconds of CPU.

    One thread, as a rank has, and CPU time: other programs do not lengthen it.
    """
    tensors, seconds = [pattern(rank, NBYTES // 4) for rank in range(FOUR.hosts)], []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for _ in range(5):
        start = time.process_time()
        work(tensors)
        seconds.append(time.process_time() - start)
    torch.set_num_threads(threads)
    return seconds


def counted(reports: Sequence[wire.Report], nbytes: int, name: str) -> np.ndarray:
    """Return what each rank (row) sent to each other in units of S = `nbytes`.

    Where nobody can count (elsewhere than on Linux), what `name` sent on another machine.
    """
    if (sent := _sent(reports, nbytes)) is None:
        print(f"Nobody can count bytes here: {name} as counted on another machine (RECORDED).")
        earlier = runs.by_case(runs.in_world(catalogue.experiment(NAME).recorded(), ""))
        sent = earlier[name].values["matrix"]
    return np.array(sent)


def _sent(reports: Sequence[wire.Report], nbytes: int) -> list[list[float]] | None:
    try:
        return (wire.payload(reports) / nbytes).tolist()
    except (wire.WireUnavailable, wire.WireMismatch):  # not Linux; NCCL's bytes go other ways
        return None


def moved_by(third: Callable, repairs: Mapping[str, Any]) -> dict[str, float]:
    """Return, by repair, the bytes that four ranks send together in the puzzle's third function."""
    numel = 2**18
    ranks = launch(programs.metered, third, repairs, numel, world_size=4)
    moved = {}
    for repair, lengths in repairs.items():
        summed = 4 * lengths["input"] * numel  # bytes of the tensor that is summed
        shares = counted([rank[repair] for rank in ranks], summed, "reduce_scatter + all_gather")
        moved[repair] = summed * float(shares.sum())
    return moved


def as_printed(
    place: Place, whole_sums: Sequence[Callable], third: Callable, floats: int
) -> list[Record]:
    """Time the puzzle's functions as printed, each from its first line to its last but its group.

    Args:
        place: Where they run.
        whole_sums: The first two functions, which are given the ranks and the floats.
        third: The third, given the lengths of its tensors; it runs with both repairs.
        floats: Of S, or fewer where memory has no room for the long repair.
    """
    n, room = place.world_size, room_for(place, floats)
    calls = {function.__name__: (function, n, room) for function in whole_sums}
    for repair, lengths in {"short": (1, 1 / n, 1), "long": (n, 1, n)}.items():
        by_name = dict(zip(("input", "output", "gathered"), lengths, strict=True))
        calls[f"the third, {repair} repair"] = (third, by_name, room)
    ranks = {name: place.launch(programs.timed, *call) for name, call in calls.items()}
    options = {"experiment": "printed", "nbytes": 4 * room}
    return [place.record(name, samples, **options) for name, samples in ranks.items()]


def room_for(place: Place, floats: int) -> int:
    """Ask every rank how many floats S may have; say so where they are fewer than wanted."""
    room = min(place.launch(programs.most_floats, floats))
    if room < 0.9 * floats:
        times = 2 * place.world_size + 1
        print(f"S is {4 * room / 2**30:.3g} GiB here: the long repair fills {times} times that.")
    return room


def divisible(nbytes: int, ranks: int) -> int:
    """Return the bytes, or a little less: ranks divide them, and headers can be told from them."""
    step = 8 * wire.UNIT * ranks  # also for a quarter, in two directions
    return max(1, nbytes // step) * step


def rule(sends: Callable[[int, int, int], int]) -> Callable[[int, int, int], int]:
    """Return the learner's rule of a ring; ours, and say so, while theirs gives no number."""
    if isinstance(given := sends(0, 0, 4), int):
        return sends
    print(f"sends() gives no chunk's number yet ({given!r}): what follows is of OUR ring.")
    return lambda rank, step, n: (rank - 1 - step) % n


SWAPPED = (64, 1024, 2**20, 2**21)
"""Bytes of the swaps to which a learner's alpha and beta are fitted: some that are all latency, and
some so long that what a shaped link lets through at once hardly counts."""


def in_turns(
    ways: Sequence[Way], sizes: Sequence[int]
) -> tuple[Tier, dict[int, list[list[float]]]]:
    """Time ways on tensors of each size in bytes, in turn, on four hosts, or else on loopback.

    Returns the tier, and by size the seconds of each way, in five rounds.
    """
    with ExitStack() as stack:
        try:
            here = stack.enter_context(FOUR.up())
        except FabricUnavailable as reason:
            print(f"{reason}\nMeasured instead: four ranks on this machine's loopback.")
            here = Place(hosts=1, ranks_per_host=FOUR.hosts)
        ranks = here.launch(programs.in_turn, ways, sizes, timeout=120.0)
    by_way = {size: zip(*(rank[size] for rank in ranks), strict=True) for size in sizes}
    return here.tier, {size: [*map(timing.slowest, times)] for size, times in by_way.items()}


def race(crossing: Callable[..., float], ring: Way, doubling: Way) -> Table | None:
    """Predict the crossing by one's own link, and time both ways around it, in turn; four hosts.

    Nothing is judged; None, and why, while one of the three is not written yet.
    """
    try:
        crossing(1e-4, 1e-8, 4)
        launch(lambda: (ring(torch.zeros(1)), doubling(torch.zeros(1))), world_size=1)
    except NotImplementedError as left:
        print(f"{left}: come back when 6.1, 6.3 and 6.5 are written.")
        return None
    tier, swaps = in_turns([programs.swap], SWAPPED)
    link = AlphaBeta.fit([*swaps], [min(seconds) for (seconds,) in swaps.values()])
    rate = f"{1e9 * link.beta:.3g} ns a byte ({1e-6 / link.beta:.3g} MB/s)"
    print(f"{tier}: alpha is {1e6 * link.alpha:.0f} µs, beta {rate}")
    nbytes = crossing(link.alpha, link.beta, FOUR.hosts)
    sizes = [4 * max(1, round(nbytes * factor / 4)) for factor in (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)]
    rows = []
    for size, both in in_turns([ring, doubling], sizes)[1].items():
        won = [a < b for a, b in zip(*both, strict=True)]
        times = (1e3 * median(seconds) for seconds in both)
        rows.append([size / 1e3, *times, f"{sum(won)} of {len(won)}"])
    print(f"predicted: the two cross at {nbytes / 1e3:.0f} kB. Measured: see the last column")
    return Table(["S (kB)", "ring (ms)", "doubling (ms)", "rounds in which the ring won"], rows)


def run(*, quick: bool = False, progress: runs.Say = runs.quiet) -> list[Record]:
    """Run the three ways, their steps and the control on four hosts; under torchrun, on its ranks.

    The hand-written ways are left out under torchrun: NCCL puts their sends and receives into one
    queue, and in a circle of ranks each would wait for a receive that stands behind its send.
    """
    progress(f"on {FOUR.world_size} ranks, {FOUR.link}")
    by_hand, iters = FOUR.link != "torchrun", 2 if quick else 7
    records = compare(WAYS | STEPS | (CONTROL if by_hand else {}), iters=iters, say=progress)
    sizes = compare(WAYS, quarters=True, iters=iters, say=progress)
    records |= {name: record for name, record in sizes.items() if name.endswith(programs.QUARTER)}
    records |= compare(TREES, iters=iters, say=progress) if by_hand else {}
    return list(records.values())


def fastest(records: Mapping[str, Record]) -> dict[str, float]:
    """Return the shortest of each way's calls, in seconds: a busy machine can only add to it."""
    return {name: min(record.seconds) for name, record in records.items()}
