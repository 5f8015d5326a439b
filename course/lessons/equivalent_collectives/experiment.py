"""Lesson 6: three ways to sum a tensor over all ranks, and what each sends over the wires.

The question (GPU Puzzlers, 2023, "Communication is the Key to Success", puzzler 2): all_reduce;
reduce, then broadcast; reduce_scatter, then all_gather. Equal results: what decides their speed?

The ways run in turn on four hosts whose links are shaped (EMULATED), so that the time is the wire's
and not the scheduler's. Every answer is checked, and the same call's bytes are counted.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from course import runs
from course.lessons.equivalent_collectives import programs
from course.lessons.equivalent_collectives.programs import CONTROL, STEPS, WAYS, Way
from course.place import Place
from labkit.measure import records, wire
from labkit.measure.records import Record

NAME = "equivalent-collectives"
TITLE = "Three ways to sum"
RECORDING = Path(__file__).with_name("recording.json")
FOUR = Place(hosts=4, rate="200mbit")
NBYTES = 2 * 2**20
"""S. A multiple of 2 x 4096 x ranks, so that payload can be told from headers."""


def compare(
    ways: Mapping[str, Way],
    *,
    nbytes: int = NBYTES,
    place: Place = FOUR,
    iters: int = 3,
    say: runs.Say = print,
) -> dict[str, Record]:
    """Run ways to sum in turn on hosts with equal links; return a record of each, by its name.

    A record's `values` have `right`, whether every rank had the sum, and `matrix`, what each rank
    sent to each other in units of S; None where nobody could count.

    Raises:
        LookupError: No links can be made here, and nothing of these names was recorded.
    """

    def measure(here: Place) -> list[Record]:
        ranks = here.launch(programs.measure, dict(ways), nbytes, iters, timeout=120.0)
        made = []
        for name in ways:
            mine = [rank[name] for rank in ranks]
            values = {"right": all(one["right"] for one in mine)}
            values["matrix"] = _sent([one["report"] for one in mine], nbytes)
            samples = [one["samples"] for one in mine]
            made.append(here.record(name, samples, experiment=NAME, nbytes=nbytes, values=values))
        return made

    options = {"recording": RECORDING, "experiment": NAME, "cases": ways}
    by_way = runs.by_case(
        record for record in place.records(measure, **options, say=say) if record.nbytes == nbytes
    )
    if missing := ways.keys() - by_way.keys():
        raise LookupError(f"no links can be made here, and nobody recorded {sorted(missing)}.")
    return {name: by_way[name] for name in ways}


def counted(reports: Sequence[wire.Report], nbytes: int, name: str) -> np.ndarray:
    """Return what each rank (row) sent to each other in units of S = `nbytes`.

    Where nobody can count (elsewhere than on Linux), what `name` sent on another machine.
    """
    if (sent := _sent(reports, nbytes)) is None:
        print(f"Nobody can count bytes here: {name} as counted on another machine (RECORDED).")
        earlier = records.load(RECORDING, recorded=True, experiment=NAME)
        sent = next(r.values["matrix"] for r in earlier if r.case == name)
    return np.array(sent)


def _sent(reports: Sequence[wire.Report], nbytes: int) -> list[list[float]] | None:
    try:
        return (wire.payload(reports) / nbytes).tolist()
    except (wire.WireUnavailable, wire.WireMismatch):  # not Linux; NCCL's bytes go other ways
        return None


def rule(sends: Callable[[int, int, int], int]) -> Callable[[int, int, int], int]:
    """Return the learner's rule of a ring; ours, and say so, while theirs gives no number."""
    if isinstance(sends(0, 0, 4), int):
        return sends
    print("sends() gives no chunk yet: until it does, our rule runs.")
    return programs.ring_rule


def run(*, quick: bool = False, progress: runs.Say = runs.quiet) -> list[Record]:
    """Run the three ways, their steps and the control on four hosts; under torchrun, on its ranks.

    The hand-written ways are left out under torchrun: NCCL puts their sends and receives into one
    queue, and in a circle of ranks each would wait for a receive that stands behind its send.
    """
    progress(f"on {FOUR.world_size} ranks, {FOUR.link}")
    ways = WAYS | STEPS | ({} if FOUR.link == "torchrun" else CONTROL)
    iters = 2 if quick else 7
    whole = compare(ways, iters=iters, say=progress)
    quarter = compare(WAYS, nbytes=NBYTES // 4, iters=iters, say=progress)
    return [*whole.values(), *quarter.values()]


def fastest(records: Mapping[str, Record]) -> dict[str, float]:
    """Return the shortest of each way's calls, in seconds: a busy machine can only add to it."""
    return {name: min(record.seconds) for name, record in records.items()}
