"""Three other worlds, in each of which another suspect of lesson 01 is guilty; run for real.

The experiments and their tests are the lesson's. What differs is the job:

    a   partners are on two hosts, and all pairs share the one link between them
    c   before each call a rank is off the CPU for a while, once for each group that exists, as if
        the library asked a server about each
    d   between calls the ranks are elsewhere, and add numbers in small steps that two threads of
        torch share: as many as there are CPUs, but each rank may use one only

(The CPUs, b, are guilty in the lesson's own world.)
"""

from collections.abc import Mapping
from typing import Any

from course.lessons.gloo_scaling import experiment as problem
from course.lessons.gloo_scaling import programs
from labkit.measure.records import Record

WORLDS: dict[str, dict[str, Any]] = {
    "a": {"numel": 4096, "across": True, "calls": 8},
    "c": {"for_each_group": 0.02, "calls": 2},
    "d": {"elsewhere": 0.3, "small_sums": 10, "calls": 2},
}
"""What all arms are given, by the letter of who is guilty; calls are few where each takes long."""


def measure(letter: str) -> list[Record]:
    """Make all experiments in a world; `FabricUnavailable` if it needs a link and there is none."""
    most, rate = (4, "50mbit") if letter == "a" else (problem.MOST, None)
    records = []

    def program(arm: Mapping[str, Any]) -> dict[str, Any]:
        return programs.calls(WORLDS[letter] | arm | {"calls": WORLDS[letter]["calls"]})

    for name in "ABCD":
        arms = problem.arms(name, most, threads=2)
        records += problem.compare(name, program, arms, rate=rate, metered=name == "A")
    return records
