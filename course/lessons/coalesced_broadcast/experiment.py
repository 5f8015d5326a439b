"""Lesson 3: how should rank 0 give 320 tensors to the others: one by one, in buckets, or at once?

The question (PyTorch pull request 4978, 2018): DDP sent a model's state tensor by tensor; about 100
MB in one coalesced broadcast went 1.63 times as fast between two nodes. Here the 320 sizes of
ResNet50 are sent in ways that differ in one thing.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from course import catalogue
from course.comm import shapes
from course.comm.buckets import MB
from course.lessons.coalesced_broadcast import programs
from course.place import Place
from course.runs import Say, quiet
from labkit.measure.records import Record
from labkit.ranks import torchrun

NAME = "coalesced-broadcast"
ROUNDS, IN_A_ROUND = 4, 3  # rounds of an experiment; broadcasts of each way in a round
IN_A_ROUND_OF = {"E": 4}
"""Other rounds: what E leaves is as small as what the new pages of 25 MB vary by."""
LINK, NARROW = "2gbit", 0.4
"""A link between hosts, and the width of the network that is sent there: the bytes go with its
square."""
POSTED = {
    "before: one by one": {},
    "as merged: 10 MiB": {"buffer_size": 10 * 1024 * 1024},
    "1 coalesced b-cast": {"buffer_size": 200 * MB},  # what the author timed
}
"""The posted loop's ways. They stand here, since the lesson bets on the size first."""
HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}
"""The environment in which PyTorch asks for huge pages, where a tensor has 2 MiB or more; a rank
reads it when it makes its first tensor."""
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
GIVEN = {
    "madvise": "to programs that ask (`madvise`), and yours has not asked so far: in half of its "
    "turns E lets it ask",
    "always": "to every program (`always`), so your 'all in one' has had them all along: in half "
    "of its turns E takes them away",
}
"""What the file says -> to whom Linux gives huge pages, and what experiment E does about it."""


def huge_pages() -> str:
    """Return to whom this kernel gives huge pages: a key of `GIVEN`, or another word."""
    try:
        chosen = re.search(r"\[(\w+)\]", SETTING.read_text())
    except OSError:
        return ""
    return chosen[1] if chosen else ""


def pages_here() -> str:
    """Return in a sentence to whom this kernel gives huge pages."""
    given = GIVEN.get(huge_pages(), "to nobody that asks, so E cannot be made")
    return f"Linux gives huge pages here {given}."


def compare(
    send: Callable,
    ways: Mapping[str, Mapping[str, Any]],
    *,
    rate: str | None = None,
    place: Place | None = None,
    iters: int = 5,
    width: float | None = None,
    params: Mapping[str, str] | None = None,
) -> list[Record]:
    """Time ways to broadcast the state between two ranks, in turn; return a record for each.

    Where some ask for huge pages, and Linux gives none, the records are those of another machine.

    Args:
        send: ``send(tensors, **arguments)``.
        ways: The arguments by name (`programs.time_ways`).
        rate: Of two hosts' links, for a narrower state; None: loopback. Where no links can be made
            the records are those of another machine.
        place: Another place than these.
        iters: Broadcasts of each way.
        width: Of the network; narrow between hosts and 1 on loopback, if not given.
        params: More settings for the records.
    """
    params = dict(params or {})
    refused = {name: why_not(send, way) for name, way in ways.items()}
    possible = {name: way for name, way in ways.items() if not refused[name]}
    for name in ways.keys() - possible.keys():
        print(f"{name!r} is left out: {refused[name]}.")
    width = width or (NARROW if rate else 1.0)
    nbytes = sum(tensor.nbytes for tensor in shapes.resnet50(width=width))

    asks_huge = any(way.get("huge") for way in possible.values())
    options = {"timeout": 120, "env": HUGE_PAGES if asks_huge else None}

    def measure(here: Place) -> list[Record]:
        ranks = here.launch(programs.time_ways, send, possible, width, iters, **options)
        fields = {"experiment": NAME, "collective": "broadcast", "nbytes": nbytes}
        records = []
        for name, results in zip(possible, zip(*ranks, strict=True), strict=True):
            samples = [result["samples"] for result in results]
            counted = "faults", "system", "peak"
            values = {key: max(rank[key] for rank in results) for key in counted}
            records.append(here.record(name, samples, params=params, values=values, **fields))
        return records

    if asks_huge and huge_pages() not in GIVEN:
        print(f"{pages_here()}\nShown instead: what another machine measured (RECORDED).")
        every = catalogue.experiment(NAME).recorded()
    else:
        place = place or Place(2, rate)
        every = place.records(measure, experiment=NAME, cases=possible)
    return [record for record in every if of_experiment(record) == params]


def why_not(send: Callable, way: Mapping[str, Any]) -> str:
    """Say why a way cannot be sent, and what could; empty where it can."""
    _, *taken = inspect.signature(send).parameters.values()
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken)
    known = dict.fromkeys([*(parameter.name for parameter in taken), *programs.OWN])
    strange = [key for key in way if key not in known]
    if strange and not takes_all:
        return f"nobody reads {strange[0]!r}; a way may have {', '.join(known)}"
    cap, in_flight = way.get("cap"), way.get("in_flight", 1)
    if not (cap is None or (isinstance(cap, int | float) and cap >= 0)):
        return f"cap={cap!r}; None, or 0 bytes and more"
    if not (isinstance(in_flight, int) and in_flight >= 1):
        return f"in_flight={in_flight!r}; 1 and more"
    return ""


def of_experiment(record: Record) -> dict[str, str]:
    """Return which experiment a record is of, and in which world; nothing for the others."""
    return {key: record.params[key] for key in ("asks", "world") if key in record.params}


def ask(
    send: Callable, name: str, pair: Mapping | None = None, *, rounds: int = ROUNDS
) -> list[Record]:
    """Make an experiment of the board: its pair and the gap, in turn, round by round."""
    ways = programs.GAP | (pair or programs.EXPERIMENTS[name])
    return compare(send, ways, iters=in_a_round(name) * rounds, params={"asks": name})


def in_a_round(name: str) -> int:
    """Return how many broadcasts of each way a round of an experiment has."""
    return IN_A_ROUND_OF.get(name, IN_A_ROUND)


def python_twice() -> tuple[float, float]:
    """Return the seconds of two pieces of Python: by two threads of one rank, and by two ranks."""
    by_threads = Place(1).launch(programs.add_up, 2)
    by_ranks = Place(2).launch(programs.add_up, 1)
    return by_threads[0], max(by_ranks)


def run(*, quick: bool = False, progress: Say = quiet) -> list[Record]:
    """Time the curve, what calls cost and the board's experiments; then the curve between hosts."""
    local, send, iters = [], programs.broadcast, 3 if quick else 9
    for name, ways in (("the curve", programs.CURVE), ("calls", programs.CALLS)):
        progress(name)
        local += compare(send, ways, iters=iters)
    for name in programs.EXPERIMENTS:
        progress(f"experiment {name}")
        if name == "E" and torchrun.is_here():
            progress("left out: ranks are told of huge pages before they start; these run already")
            continue
        local += ask(send, name, rounds=3 if quick else ROUNDS)
    progress("the curve between two hosts")
    return local + compare(send, programs.CURVE, rate=LINK, iters=iters)
