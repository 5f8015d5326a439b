"""`python -m course doctor`: what this machine can do for the course, and what to do about it.

Each check tries what it checks. It returns a line, and further ones where that falls short.
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from importlib import metadata, util

from course import catalogue
from labkit.ranks import machine

GIB = 2**30
NEEDED = ("torch", "jupyterlab", "ipywidgets", "anywidget", "matplotlib", "networkx", "cloudpickle")
_SIGNS = {"ok": "✔ ", "note": "! ", "missing": "✘ "}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments: none."""


def main(options: argparse.Namespace) -> int:
    """Print what each check found, its advice below, and a verdict; return 0 when all can run."""
    width, states = max(map(len, CHECKS)), {}
    for name, check in CHECKS.items():
        states[name], text, *advice = examine(*check)
        print(f"{_SIGNS[states[name]]}{name:<{width}}  {text}")
        for line in advice:
            print(" " * (width + 4) + line)
    if missing := [name for name, state in states.items() if state == "missing"]:
        print(f"\nThe course cannot run yet. First see to: {', '.join(missing)}.")
        return 1
    limits = " What is marked ! is a limit, not a fault." if "note" in states.values() else ""
    print(f"\nThe course can run here.{limits}")
    print("Your machine on one page: python -m course gpus")
    return 0


def examine(check: Callable[[], Sequence[str]], short: str = "note") -> Sequence[str]:
    """Run a check; return its state and its lines.

    `short` is the state of what falls short or cannot be tried: `missing` where the course cannot
    run without it, `note` where it runs with less.
    """
    try:
        text, *advice = check()
    except Exception as error:
        return short, f"could not be tried: {type(error).__name__}: {error}"
    return short if advice else "ok", text, *advice


def packages() -> Sequence[str]:
    """Check that torch is there, and what the notebooks are opened and drawn with."""
    if lacking := ", ".join(name for name in NEEDED if util.find_spec(name) is None):
        remedy = catalogue.EVERYTHING
        return f"not installed: {lacking}", "The lessons are notebooks of ranks.", remedy
    versions = [f"{name} {metadata.version(name)}" for name in ("torch", "jupyterlab")]
    return [", ".join(versions)]


def notebooks() -> Sequence[str]:
    """Check that this is a clone of the repository, not an installed package."""
    if problem := catalogue.without_clone():
        return "none", problem
    return [f"of {len(catalogue.find())} lessons, in {catalogue.ROOT}"]


def two_ranks() -> Sequence[str]:
    """Start two real ranks and let them talk."""
    from course.place import launch

    launch(_sum_of_ranks, world_size=2)  # the first launch also starts the fork server
    start = time.perf_counter()
    total = launch(_sum_of_ranks, world_size=2)
    seconds = time.perf_counter() - start
    if total != [1, 1]:
        return f"summed 0 + 1 to {total}", "gloo does not work."
    return [f"started, summed and ended in {seconds * 1e3:.0f} ms"]


def _sum_of_ranks() -> int:
    import torch
    import torch.distributed as dist

    total = torch.tensor(dist.get_rank())
    dist.all_reduce(total)
    return int(total)


def cpus() -> Sequence[str]:
    """Compare the CPUs that are shown with those that may be used."""
    shown, usable, quota = os.cpu_count() or 1, machine.usable_cpus(), machine.cpu_quota()
    count = f"{usable} usable" + (f" of {shown}" if usable != shown else "")
    if quota is not None and quota < usable:
        return (
            f"{count}, but limited to {quota:g} CPUs' worth of time (cgroup)",
            "Ranks are stopped when the quota is used up: timings jump. labkit counts the quota.",
            "Give the container as many CPUs as it sees, or pin it: "
            f"--cpuset-cpus=0-{max(int(quota), 1) - 1}.",
        )
    if usable < 2:
        return count, "All ranks take turns: the lessons run slowly; lesson 01 cannot place ranks."
    return [count]


def memory() -> Sequence[str]:
    """Compare the memory with what the lessons need."""
    total = machine.Machine.here().memory
    size = f"{total / GIB:.1f} GiB" if total else "not known"
    if not total or total >= 3.5 * GIB:
        return [size]
    remedy = "Close other programs before you run them."
    return size, "Lessons 02 and 03 are made for 4 GiB.", remedy


def fabric() -> Sequence[str]:
    """Make two hosts joined by a shaped link, and take them away again."""
    from labkit.fabric.errors import FabricUnavailable
    from labkit.fabric.fabric import Fabric

    try:
        with Fabric.star(hosts=2, rate="100mbit"):
            return ["hosts with shaped links can be made (user namespaces)"]
    except FabricUnavailable as error:
        meaning = "What is EMULATED on shaped links is shown as RECORDED runs."
        return f"no: {error.cause}", meaning, error.remedy


CHECKS: dict[str, tuple] = {
    "packages": (packages, "missing"),
    "notebooks": (notebooks, "missing"),
    "two ranks": (two_ranks, "missing"),
    "CPUs": (cpus,),
    "memory": (memory,),
    "fabric": (fabric,),
}
"""Name -> check, and the state of what falls short where that is not `note`."""
