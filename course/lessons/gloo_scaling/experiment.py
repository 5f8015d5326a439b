"""Lesson 01: pairs of ranks that never talk to each other, and slow each other down all the same.

The question (``published.json``): 2p processes, every consecutive two a process group, every rank
calls a blocking all_reduce of a 10 x 10 float32 tensor on its pair's group. Why does the time per
call grow with p? Each experiment is a dict of *arms*, by name, and runs them in turns. An arm is a
dict of plain values: how many ``pairs``, on how many ``cpus``, and what the program reads besides.
"""

import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

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
ROUNDS, MOST = 3, 8
"""Of an experiment; and its most pairs."""
PLACES = {"not pinned": {}, "on one CPU": {"cpus": 1}, "on two CPUs": {"cpus": 2},
          "partners apart": {"cpus": 2, "apart": True}}  # fmt: skip
"""Where the posted script runs."""
CAUSES = ("as it is", "CPUs kept awake", "no preemption")
"""Conditions under which one pair, its partners apart, is measured."""
Arms = Mapping[str, Mapping[str, Any]]


def arms(name: str, most: int = MOST, threads: int = 8) -> Arms:
    """Return what takes turns in an experiment of the board."""
    one, two, few = {"cpus": 1}, {"cpus": 2}, most // 2
    return {
        "A": {
            "the job": {"pairs": most} | two,
            "large": {"pairs": most, "numel": 2**18, "calls": 2} | two,
        },
        "B": {
            f"{p} pairs, {c} CPU": {"pairs": p, "cpus": c}
            for p, c in ((1, 1), (few, 1), (most, 1), (most, 2))
        },
        "C": {
            "one pair": {"pairs": 1} | one,
            "one calls": {"pairs": most, "calling": 1} | one,
            "all call": {"pairs": most} | one,
        },
        "D": {
            f"{p} pairs, {n} threads": {"pairs": p, "threads": n} | two
            for n in (threads, 1)
            for p in (1, most)
        },
    }[name]


WAYS = {f"{pairs} pairs": {"pairs": pairs, "cpus": 1} for pairs in (1, 2, 4, 8)}
"""Numbers of pairs with which `programs.each_way` is recorded."""


def run(*, quick: bool = False, progress: runs.Say = runs.quiet) -> list[Record]:
    """Run the posted script, and what else the lesson and its deeper page show."""
    pairs = range(1, Place(2 * MOST).world_size // 2 + 1)  # under torchrun as many as there are
    places = PLACES if can_measure() else {"not pinned": {}}
    progress("the posted script")
    measured = posted(programs.as_posted, places, pairs=[*pairs[:2], pairs[-1]] if quick else pairs)
    if not can_measure() or torchrun.is_here():
        return measured
    for name in "ABCD":
        progress(f"experiment {name}")
        measured += compare(name, programs.calls, arms(name))
    for name, program, chosen in (
        ("anywhere", programs.calls, ANYWHERE),
        ("ways", programs.each_way, WAYS),
        ("placed", programs.calls, PLACED),
    ):
        progress(name)
        measured += compare(name, program, chosen)
    progress("cause")
    return measured + cause()


ANYWHERE = {f"{pairs} pairs, anywhere": {"pairs": pairs} for pairs in (1, 2)}
"""Arms that are not pinned."""
PLACED = {
    "together": {"pairs": 1, "cpus": 1, "calls": 200},
    "apart": {"pairs": 1, "cpus": 2, "apart": True, "calls": 200},
}
"""Deeper 01's two ways to place one pair."""


def can_measure() -> bool:
    """Say whether ranks can be pinned to two CPUs here, and their threads accounted for."""
    return affinity.available() and sched.available() and len(affinity.cpus()) > 1


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


def possible(asked: Arms) -> dict[str, Mapping[str, Any]]:
    """Return the arms that can run here; say of each other one what would be possible."""
    kept = {}
    for name, arm in asked.items():
        most = {"pairs": 2 * MOST, "cpus": max(len(affinity.cpus()), 1), "threads": 64,
                "calling": arm.get("pairs"), "numel": 2**22, "calls": 1000}  # fmt: skip
        for key, limit in most.items():
            value = arm.get(key, None if key == "pairs" else 1)
            if not (isinstance(value, int) and 1 <= value <= limit):
                print(f"{name!r} is left out: {key}={value!r}; 1 to {limit} are possible here.")
                break
        else:
            kept[name] = arm
    return kept


def posted(
    program: Callable[[int, int], float],
    places: Arms,
    *,
    pairs: Iterable[int] = range(1, MOST + 1),
    place: Place | None = None,
) -> list[Record]:
    """Run the thread's script with each number of pairs in each place, in turns.

    Args:
        program: ``program(rank, world_size)`` returns seconds per call; rank 0's are kept.
        places: By name; `PLACES`, or some of them.
        pairs: Numbers of pairs.
        place: GPUs, if they are not this machine's CPUs.
    """
    if not can_measure() and any("cpus" in arm for arm in places.values()):
        print("Pinning takes Linux and two CPUs. Shown instead: a recorded run.")
        return [one for one in recorded("posted") if one.case in places]
    chosen = possible({name: {"pairs": 1} | arm for name, arm in places.items()})

    def measure() -> list[Record]:
        made = []
        for p, (name, arm) in itertools.product(pairs, chosen.items()):
            with (place or Place(2 * p)).up() as here:
                (seconds, *_) = here.launch(_posted, program, arm, world_size=2 * p, timeout=120)
                params = {"part": "posted", **arm, "pairs": p}
                made.append(here.record(name, [[seconds]], experiment=NAME, params=params))
        return sorted(made, key=lambda record: [*places].index(record.case))

    return runs.watched(measure)


def _posted(program: Callable[[int, int], float], arm: Mapping[str, Any]) -> float:
    programs.pin(arm)
    return program(programs.dist.get_rank(), programs.dist.get_world_size())


def compare(
    part: str,
    program: Callable[[Mapping[str, Any]], dict[str, Any]],
    asked: Arms,
    *,
    rounds: int = ROUNDS,
    rate: str | None = None,
    world: str = "",
) -> list[Record]:
    """Run a program in arms that take turns, and return a record for each arm.

    Args:
        part: Of the lesson: the name of an experiment.
        program: Gets its arm on every rank, pinned, and returns ``samples``, seconds per call, and
            other figures, of which ``values`` has the means over ranks, one for each round.
        asked: The arms by name.
        rounds: Of all arms.
        rate: Of the one link between two hosts; None: all ranks on this machine's loopback.
        world: Whose, if somebody else than in the lesson is guilty.

    Raises:
        FabricUnavailable: A link was asked for, and none can be made here.
    """
    chosen = possible(asked) if can_measure() else {}
    if not chosen:
        print("This takes Linux, two CPUs and an arm. Shown instead: a recorded run.")
        return recorded(part)

    def measure() -> list[Record]:
        with contextlib.ExitStack() as stack:
            places = {
                p: stack.enter_context((Place(2, rate, p) if rate else Place(2 * p)).up())
                for p in {arm["pairs"] for arm in chosen.values()}
            }
            launched: dict[str, list] = {name: [] for name in chosen}
            for _ in range(rounds):
                for name, arm in chosen.items():  # in turns, so that drift meets all of them
                    options = {"threads": arm.get("threads", 1), "timeout": 120}
                    ranks = places[arm["pairs"]].launch(_pinned, program, arm, **options)
                    launched[name].append(ranks)
            made = []
            for name, arm in chosen.items():
                params = {"part": part, **arm, "rounds": rounds}
                if world:
                    params["world"] = world
                samples, values = _by_rank(launched[name])
                given = {"experiment": NAME, "params": params, "values": values}
                made.append(places[arm["pairs"]].record(name, samples, **given))
            return made

    return runs.watched(measure)


def _pinned(program: Callable[[Mapping[str, Any]], Any], arm: Mapping[str, Any]) -> Any:
    programs.pin(arm)
    return program(arm)


def _by_rank(launched: list[list[dict[str, Any]]]) -> tuple[list, dict[str, list[float]]]:
    """Put together what the ranks returned in each round: their samples, and means of the rest."""
    ranks = zip(*launched, strict=True)
    samples = [list(chain(*(result["samples"] for result in same))) for same in ranks]
    means = {
        name: [statistics.fmean(rank[name] for rank in ranks) for ranks in launched]
        for name in launched[0][0].keys() - {"samples"}
    }
    return samples, means


def cause() -> list[Record]:
    """Measure one pair with its partners apart, and take one suspect away at a time.

    With the CPUs kept awake no hand-over has to wake an idle CPU. Without preemption no thread that
    wakes up takes the CPU from the one that runs.
    """
    if not can_measure():
        return compare("cause", programs.calls, {})  # what was recorded
    made = []
    for condition in CAUSES:
        arm = PLACED["apart"] | {"sched_batch": condition == "no preemption"}
        with kept_awake() if condition == "CPUs kept awake" else contextlib.nullcontext():
            made += compare("cause", programs.calls, {condition: arm}, rounds=1)
    return made


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
