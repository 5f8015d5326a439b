"""Lesson 01: pairs of ranks that never talk to each other, and slow each other down all the same.

The question (``published.json``): 2p processes, every consecutive two a process group, every rank
calls a blocking all_reduce of a 10 x 10 float32 tensor on its pair's group. Why does the time per
call grow with p? Each experiment is a dict of *arms*, by name, and runs them in turns. An arm is a
dict of plain values: how many ``pairs``, on how many ``cpus``, and what the program reads besides.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from statistics import fmean
from typing import Any

from course import catalogue, runs
from course.lessons.gloo_scaling import programs, quota
from course.place import Place
from course.runs import in_world
from labkit.measure import sched
from labkit.measure.records import Record
from labkit.ranks import affinity, torchrun

NAME = "gloo-scaling"
ROUNDS, MOST = 3, 8  # of an experiment; and its most pairs
LONE = 800
"""Calls where one pair alone calls in C: how ranks meet, before, costs the more the more exist.

Where all eight pairs call, a call takes some eight times as long. So 200 of them, the usual number,
last longer than these, and the meeting weighs no more.
"""
PLACES = {"not pinned": {}, "on one CPU": {"cpus": 1}, "on two CPUs": {"cpus": 2},
          "a quota of one CPU": {"quota": 1.0},
          "partners apart": {"cpus": 2, "apart": True}}  # fmt: skip
"""Where the posted script runs."""
ANYWHERE = {f"{pairs} pairs, anywhere": {"pairs": pairs} for pairs in (1, 2)}
WAYS = {f"{pairs} pairs": {"pairs": pairs, "cpus": 1} for pairs in (1, 2, 4, 8)}
PLACED = {
    "together": {"pairs": 1, "cpus": 1, "calls": 600},
    "apart": {"pairs": 1, "cpus": 2, "apart": True, "calls": 600},
}
MESSAGES = {f"8 pairs, {n} CPU": {"pairs": 8, "cpus": n, "calls": 400} for n in (1, 2)}
"""Arms that are not pinned; of `programs.each_way`; deeper 01's two ways to place one pair, and of
`programs.messages`."""
Arms = Mapping[str, Mapping[str, Any]]


def arms(name: str, most: int = MOST, threads: int = 8) -> Arms:
    """Return what takes turns in an experiment of the board."""
    job, full = {"pairs": most, "cpus": 2}, {"pairs": most, "cpus": 1}
    shared = (1, 1), (most, 1), (most, 2)
    return {
        "A": {"the job": job, "large": job | {"numel": 2**18, "calls": 10}},
        "B": {f"{p} pairs, {c} CPU": {"pairs": p, "cpus": c} for p, c in shared},
        "C": {
            "one pair": full | {"pairs": 1, "calls": LONE},
            "one calls": full | {"calling": 1, "calls": LONE},
            "all call": full,
        },
        "D": {
            f"{p} pairs, {n} threads": {"pairs": p, "threads": n, "cpus": 2}
            for n, p in product((threads, 1), (1, most))
        },
    }[name]


def run(*, quick: bool = False, progress: runs.Say = runs.quiet) -> list[Record]:
    """Run the posted script, and what else the lesson and its deeper page show."""
    every = range(1, Place(2 * MOST).world_size // 2 + 1)  # under torchrun as many as there are
    places = PLACES if can_measure() else {"not pinned": {}}
    progress("the posted script")
    pairs = [*every[:2], every[-1]] if quick else every
    measured = posted(programs.as_posted, places, pairs=pairs, rounds=1 if quick else ROUNDS)
    if not can_measure() or torchrun.is_here():
        return measured
    for name in "ABCD":
        progress(f"experiment {name}")
        measured += compare(name, programs.calls, arms(name), metered=name == "A")
    progress("what comes after the board")
    measured += compare("anywhere", programs.calls, ANYWHERE)
    measured += compare("ways", programs.each_way, WAYS, rounds=1)
    measured += compare("placed", programs.calls, PLACED)
    measured += compare("messages", programs.messages, MESSAGES)
    progress("cause")
    return measured + cause()


def can_measure() -> bool:
    """Say whether ranks can be pinned to two CPUs here, and their threads accounted for."""
    return affinity.available() and sched.available() and len(affinity.cpus()) > 1


def recorded(part: str) -> list[Record]:
    """Return what a part of `run` gave on the machine where it was recorded."""
    own = in_world(catalogue.experiment(NAME).recorded(), "")
    return [record for record in own if record.params["part"] == part]


KEYS = "pairs", "cpus", "threads", "calling", "numel", "calls", "apart", "quota", "sched_batch"
"""What an arm may have."""


def possible(arms: Arms, keys: Sequence[str] = KEYS) -> dict[str, Mapping[str, Any]]:
    """Return the arms that can run here; say of each other one what would be possible."""
    kept = {}
    for name, arm in arms.items():
        if reason := why_not(arm, keys):
            print(f"{name!r} is left out: {reason}.")
        else:
            kept[name] = arm
    most, cores = max([arm.get("cpus", 1) for arm in kept.values()], default=1), programs.cores()
    if most > len(cores):
        print(f"{most} CPUs here are threads of {len(cores)} core: they do less than {most} would.")
    return kept


def why_not(arm: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Say why an arm cannot run here, and what could; empty where it can."""
    if strange := [*(arm.keys() - set(keys))]:
        return f"nobody reads {strange[0]!r}; an arm may have {', '.join(keys)}"
    most = {"pairs": 2 * MOST, "cpus": max(len(affinity.cpus()), 1), "threads": 64,
            "calling": arm.get("pairs"), "numel": 2**22, "calls": 1000}  # fmt: skip
    for key, limit in most.items():
        value = arm.get(key, None if key == "pairs" else 1)
        if not (isinstance(value, int) and 1 <= value <= limit):
            return f"{key}={value!r}; 1 to {limit} are possible here"
    if "quota" in arm and torchrun.is_here():
        return "a quota is for ranks that launch starts; these are the job's"
    if "quota" in arm and not quota.available():
        return "a quota takes root, and cgroups to write to"
    return ""


def posted(
    program: Callable[[int, int], float],
    places: Arms,
    *,
    pairs: Sequence[int] = range(1, MOST + 1),
    rounds: int = 1,
    place: Place | None = None,
) -> list[Record]:
    """Run the thread's script with each number of pairs in each place, in turns.

    Args:
        program: ``program(rank, world_size)`` returns seconds per call; rank 0's are kept.
        places: By name; `PLACES`, or some of them.
        pairs: Numbers of pairs.
        rounds: In each of them every number of pairs is launched once in every place.
        place: GPUs, if they are not this machine's CPUs.
    """
    if not can_measure() and any("cpus" in arm for arm in places.values()):
        print("Pinning takes Linux and two CPUs. Shown instead: a recorded run.")
        return [record for record in recorded("posted") if record.case in places]
    chosen = possible({name: {"pairs": 1} | arm for name, arm in places.items()})

    def seconds(name: str, p: int) -> float:
        arm, here = chosen[name], place or Place(2 * p)
        limited = quota.group(arm["quota"]) if "quota" in arm else contextlib.nullcontext()
        with limited as group:
            options = {"world_size": 2 * p, "timeout": 120}
            return here.launch(_posted, program, arm, group, **options)[0]

    def measure() -> list[Record]:
        launched: dict[tuple[str, int], list[float]] = {}
        for _, p, name in product(range(rounds), pairs, chosen):
            launched.setdefault((name, p), []).append(seconds(name, p))
        records = []
        for name, p in product(chosen, pairs):
            params = {"part": "posted", **chosen[name], "pairs": p, "rounds": rounds}
            samples, here = [launched[name, p]], place or Place(2 * p)
            records.append(here.record(name, samples, experiment=NAME, params=params))
        return records

    return runs.watched(measure)


def _posted(
    program: Callable[[int, int], float], arm: Mapping[str, Any], group: Path | None
) -> float:
    if group is not None:
        quota.join(group)
    with _pinned(arm):
        return program(programs.dist.get_rank(), programs.dist.get_world_size())


def compare(
    part: str,
    program: Callable[[Mapping[str, Any]], dict[str, Any]],
    arms: Arms,
    *,
    rounds: int = ROUNDS,
    rate: str | None = None,
    metered: bool = False,
) -> list[Record]:
    """Run a program in arms that take turns, and return a record for each arm.

    Args:
        part: Of the lesson: the name of an experiment.
        program: Gets its arm on every rank, pinned, and returns ``samples``, seconds per call, and
            other figures, of which ``values`` has the means over ranks, one for each round.
        arms: By name.
        rounds: In each of them all arms take turns.
        rate: Of the one link between two hosts, `FabricUnavailable` where none can be made; None:
            all ranks on this machine's loopback.
        metered: Ask the program to count bytes as well: its arms get this under the same name.
    """
    keys = [key for key in KEYS if key != "quota"]  # the posted script alone has one
    chosen = possible(arms, keys) if can_measure() else {}
    if not chosen:
        print("This takes Linux, two CPUs and an arm. Shown instead: a recorded run.")
        return recorded(part)

    def place(arm: Mapping[str, Any]) -> Place:
        return Place(2, rate, arm["pairs"]) if rate else Place(2 * arm["pairs"])

    def measure() -> list[Record]:
        launched: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in chosen}
        for _, (name, arm) in product(range(rounds), chosen.items()):  # drift meets all of them
            options = {"threads": arm.get("threads", 1), "timeout": 120}
            with place(arm).up() as here:
                given = arm | {"metered": metered}
                launched[name].append(here.launch(_in_arm, program, given, **options))
        records = []
        for name, arm in chosen.items():
            by_rank = zip(*launched[name], strict=True)
            samples = [list(chain(*(launch["samples"] for launch in rank))) for rank in by_rank]
            values = _by_round(launched[name])
            params = {"part": part, **arm, "rounds": rounds}
            fields = {"params": params, "values": values}
            records.append(place(arm).record(name, samples, experiment=NAME, **fields))
        return records

    return runs.watched(measure)


def _by_round(launches: list[list[dict[str, Any]]]) -> dict[str, list[float]]:
    """Return each figure's mean over ranks, launch by launch; a list has one for each round."""
    values: dict[str, list[float]] = {}
    for ranks in launches:
        for key in ranks[0].keys() - {"samples"}:
            of_ranks = [rank[key] if isinstance(rank[key], list) else [rank[key]] for rank in ranks]
            values.setdefault(key, []).extend(map(fmean, zip(*of_ranks, strict=True)))
    return values


def _in_arm(program: Callable[[Mapping[str, Any]], Any], arm: Mapping[str, Any]) -> Any:
    if arm.get("sched_batch"):
        programs.never_preempt()
    with _pinned(arm):
        return program(arm)


@contextlib.contextmanager
def _pinned(arm: Mapping[str, Any]) -> Iterator[None]:
    """Pin this rank as its arm says, for a while: torchrun's ranks go on to the next arm."""
    before = affinity.cpus()
    programs.pin(arm)
    try:
        yield
    finally:
        if arm.get("cpus"):
            affinity.pin(before)


def cause() -> list[Record]:
    """Measure one pair with its partners apart, and take one suspect away at a time.

    With the CPUs kept awake no hand-over has to wake an idle CPU. Without preemption no thread that
    wakes up takes the CPU from the one that runs.
    """
    if not can_measure():
        return compare("cause", programs.calls, {})  # what was recorded
    records = []
    for condition in ("as it is", "CPUs kept awake", "no preemption"):
        arm = PLACED["apart"] | {"sched_batch": condition == "no preemption"}
        with kept_awake() if condition == "CPUs kept awake" else contextlib.nullcontext():
            records += compare("cause", programs.calls, {condition: arm}, rounds=1)
    return records


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
