"""Lesson 01: pairs of ranks that never talk to each other, and slow each other down all the same.

The question (``published.json``): 2p processes, every consecutive two a process group, every rank
calls a blocking all_reduce of a 10 x 10 float32 tensor on its pair's group. Why does the time per
call grow with p? `run` has parts, named by ``params["part"]``: the ``sweep`` over pairs and
placements, the ``cause`` of what partners on different CPUs cost, and the experiments of the board,
``A`` to ``D``, in the lesson's own world and in those where somebody else is guilty.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from course import runs
from course.lessons.gloo_scaling import programs
from course.place import Place
from labkit.measure import records, sched
from labkit.measure.records import Record
from labkit.ranks import affinity, torchrun

NAME = "gloo-scaling"
TITLE = "Why does gloo slow down with every pair?"
RECORDING = Path(__file__).with_name("recording.json")
"""What `run` measured on a virtual machine of two CPUs."""
ALONE = 3
"""How often one pair alone is launched: what it costs changes from launch to launch."""
CAUSES = ("as it is", "CPUs kept awake", "no preemption")
"""Conditions under which one pair, its partners apart, is measured."""
ROUNDS, MOST = 3, 8
"""Of an experiment of the board; and its most pairs, on two CPUs."""


class Arm(NamedTuple):
    """One of the launches that take turns in an experiment."""

    pairs: int
    placement: str = "together"
    threads: int = 1


def arms(name: str, most: int = MOST, threads: int = 8) -> list[Arm]:
    """Return what takes turns in an experiment of the board."""
    return {
        "A": [Arm(most)],
        "B": [Arm(most, "one core"), Arm(most), Arm(most // 2, "one core")],
        "C": [Arm(1), Arm(most)],
        "D": [Arm(1, threads=threads), Arm(most, threads=threads), Arm(1), Arm(most)],
    }[name]


PROGRAMS = {
    "A": programs.both_sizes,
    "B": programs.one_clock,
    "C": programs.both_clocks,
    "D": programs.one_clock,
}
"""What each experiment runs on its ranks: ``program(placement)`` returns `programs.Series`."""


def run(*, quick: bool = False, progress: runs.Say = runs.quiet) -> list[Record]:
    """Run both parts with sizes that suit this machine."""
    largest = MOST
    if torchrun.is_here():  # the ranks that torchrun has started are all there are
        largest = min(largest, int(os.environ["WORLD_SIZE"]) // 2)
    pairs = [count for count in (1, 2, 3, 4, 6, 8) if count <= largest]
    if quick:
        pairs = sorted({*pairs[:2], pairs[-1]})
    calls = 50 if quick else 200
    placements = programs.PLACEMENTS if affinity.available() else ("free",)
    measured = sweep(pairs, placements, calls=calls, say=progress)
    if not torchrun.is_here():
        progress("the posted script")
        measured += posted(programs.as_posted, pairs=pairs)
    if len(affinity.cpus()) > 1 and affinity.available() and not torchrun.is_here():
        measured += cause(calls=calls, say=progress)
        for name, program in PROGRAMS.items():
            progress(f"experiment {name}")
            measured += ask(name, program)
    return measured


PLACES = {"not pinned": {}, "on one CPU": {"cpus": 1}, "on two CPUs": {"cpus": 2}}
"""Where the posted script runs: a name, and on how many CPUs, if it is pinned."""


def posted(
    program: Callable[[int, int], float],
    places: Mapping[str, Mapping[str, int]] = PLACES,
    *,
    pairs: Sequence[int] = range(1, MOST + 1),
    place: Place | None = None,
) -> list[Record]:
    """Run the thread's script with each number of pairs in each place, in turns.

    Args:
        program: ``program(rank, world_size)`` returns seconds per call; rank 0's are kept.
        places: `PLACES`, or others like them.
        pairs: Numbers of pairs.
        place: GPUs, if the ranks are not to run on CPUs.
    """
    there = len(affinity.cpus()) if affinity.available() else 0
    for name, arm in list(places.items()):
        if "cpus" in arm and not 1 <= arm["cpus"] <= there:
            print(
                f"{name!r} is left out: cpus={arm['cpus']}, and up to {there} can be pinned here."
            )
            places = {other: places[other] for other in places if other != name}

    def measure() -> list[Record]:
        made = []
        for p in pairs:
            for name, arm in places.items():
                with (place or Place(2 * p)).up() as here:
                    options = {"world_size": 2 * p, "timeout": 120}
                    (seconds, *_) = here.launch(_posted, program, dict(arm), **options)
                    params = {"part": "posted", "pairs": p, **arm}
                    made.append(here.record(name, [[seconds]], experiment=NAME, params=params))
        return sorted(made, key=lambda record: [*places].index(record.case))

    return runs.watched(measure)


def _posted(program: Callable[[int, int], float], arm: Mapping[str, int]) -> float:
    """Pin this rank, both partners to one CPU, pairs dealt out; and run the script."""
    rank = programs.dist.get_rank()
    if "cpus" in arm:
        affinity.pin([affinity.cpus()[rank // 2 % arm["cpus"]]])
    return program(rank, programs.dist.get_world_size())


def can_measure() -> bool:
    """Say whether this system pins ranks and keeps accounts of their threads."""
    return affinity.available() and sched.available()


def recorded(part: str, *, case: str | None = None, world: str = "") -> list[Record]:
    """Return what a part of `run` gave on the machine where it was recorded; or one case of it.

    `world`: whose, if somebody else than in the lesson is guilty (`guilty.WORLDS`).
    """
    return [
        record
        for record in records.load(RECORDING, recorded=True)
        if (record.params["part"], record.params.get("world", "")) == (part, world)
        and case in (None, record.case)
    ]


def ask(
    name: str,
    program: Callable[[str], programs.Series],
    *,
    rounds: int = ROUNDS,
    most: int = MOST,
    threads: int = 8,
    rate: str | None = None,
    world: str = "",
) -> list[Record]:
    """Make an experiment of the board: its arms take turns, `rounds` times.

    Args:
        name: Of the experiment: one of `PROGRAMS`.
        program: Gets its arm's placement.
        rounds: Of all arms.
        most: The most pairs.
        threads: Of torch per rank, where D does not take one.
        rate: Of the one link between two hosts; None: all ranks on this machine's loopback.
        world: Whose, if somebody else than in the lesson is guilty.

    Returns:
        A record for each arm and each of the program's series, round by round. ``values`` has the
        program's other figures, means over ranks, one for each round.

    Raises:
        FabricUnavailable: A link was asked for, and none can be made here.
    """
    if not can_measure() or len(programs.two()) < 2:
        print("This experiment needs Linux and two CPUs: a recorded run instead.")
        return recorded(name)
    chosen = arms(name, most, threads)

    def measure() -> list[Record]:
        with contextlib.ExitStack() as stack:
            places = {
                pairs: stack.enter_context(
                    (Place(2, rate, pairs) if rate else Place(2 * pairs)).up()
                )
                for pairs in {arm.pairs for arm in chosen}
            }
            launched: dict[Arm, list] = {arm: [] for arm in chosen}
            for _ in range(rounds):
                for arm in chosen:  # in turns, so that a machine's drift meets all of them
                    here, options = places[arm.pairs], {"threads": arm.threads, "timeout": 120}
                    launched[arm].append(here.launch(program, arm.placement, **options))
            return [
                _of_rounds(places[arm.pairs], name, arm, series, launched[arm], world)
                for arm in chosen
                for series in launched[arm][0][0]
            ]

    return runs.watched(measure)


def _of_rounds(here: Place, name: str, arm: Arm, series: str, launched: list, world: str) -> Record:
    """Make a record of one series of an arm, from what its ranks returned in each round."""
    mine = [[rank[series] for rank in ranks] for ranks in launched]
    samples = [list(chain(*(r["samples"] for r in same))) for same in zip(*mine, strict=True)]
    values = {
        key: [statistics.fmean(rank[key] for rank in ranks) for ranks in mine]
        for key in mine[0][0].keys() - {"samples"}
    }
    params = {"part": name, **arm._asdict(), "rounds": len(launched)}
    if world:
        params["world"] = world
    return here.record(series, samples, experiment=NAME, params=params, values=values)


def sweep(
    pairs: Sequence[int],
    placements: Sequence[str],
    *,
    program: Callable[..., dict[str, Any]] = programs.timed_calls,
    calls: int = 100,
    say: runs.Say = runs.quiet,
) -> list[Record]:
    """Measure the time per call for each number of pairs and each placement, in turns.

    Beside the time, ``values`` has where it went (see `programs.accounted`). Where nothing can
    be measured the recorded points stand in.
    """
    if not can_measure():
        print("This system does not tell where a thread's time goes: a recorded run instead.")
        old = [r for r in recorded("sweep") if r.case in placements and r.params["pairs"] in pairs]
        return sorted(old, key=lambda r: placements.index(r.case))
    measured = []
    for count in pairs:
        for placement in placements:  # in turns, so that a machine's drift meets all of them
            say(f"{count} pairs, {placement}")
            params = {"part": "sweep", "pairs": count, "placement": placement}
            measured.append(_measured(params, program, calls))
    return sorted(measured, key=lambda record: placements.index(record.case))


def cause(*, calls: int = 200, say: runs.Say = runs.quiet) -> list[Record]:
    """Measure one pair with its partners apart, and take one suspect away at a time.

    With the CPUs kept awake no hand-over has to wake an idle CPU. Without preemption no thread that
    wakes up takes the CPU from the one that runs. Where nothing can be apart, or measured: the
    recorded run.
    """
    if not can_measure() or len(affinity.cpus()) < 2:
        return recorded("cause")
    measured = []
    for condition in CAUSES:
        say(f"1 pair apart, {condition}")
        params = {"part": "cause", "pairs": 1, "placement": "apart", "condition": condition}
        program = partial(programs.timed_calls, sched_batch=condition == "no preemption")
        with kept_awake() if condition == "CPUs kept awake" else contextlib.nullcontext():
            measured.append(_measured(params, program, calls))
    return measured


@contextlib.contextmanager
def kept_awake() -> Iterator[None]:
    """Keep every usable CPU from going idle, by a loop of the class SCHED_IDLE on each.

    Such a loop gives way to anything else at once (sched(7)), so it takes time from nobody.
    """
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in affinity.cpus()]
    try:
        for cpu, process in zip(affinity.cpus(), loops, strict=True):
            os.sched_setaffinity(process.pid, {cpu})
            os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
        time.sleep(0.2)
        yield
    finally:
        for process in loops:
            process.kill()
            process.wait()


def _measured(params: dict[str, Any], program: Callable[..., Any], calls: int) -> Record:
    """Run a program on pairs and make a record of the samples and values that its ranks return.

    Values are means over ranks, but for ``ours``, a sum. One pair of the sweep runs `ALONE` times.
    """
    placement, ranks = params["placement"], 2 * params["pairs"]
    case = params.get("condition", placement)
    launches = ALONE if (params["part"], ranks) == ("sweep", 2) else 1

    def measure(here: Place) -> list[Record]:
        options = {"world_size": ranks}
        launched = [here.launch(program, placement, calls, **options) for _ in range(launches)]
        samples = [
            list(chain(*(r["samples"] for r in same))) for same in zip(*launched, strict=True)
        ]
        values = {}
        for key in launched[0][0].keys() - {"samples"}:
            means = [statistics.fmean(rank[key] for rank in results) for results in launched]
            values[key] = statistics.median(means) * (ranks if key == "ours" else 1)
        fields = {"nbytes": 400, "params": params, "values": values}
        return [here.record(case, samples, experiment=NAME, **fields)]

    (record,) = Place(hosts=ranks).records(measure, recording=RECORDING, experiment=NAME)
    return record
