"""The cases: what was reported, the program that shows it here, the suspects."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from course import ledger_file, published
from course.lessons.casebook import on_links, programs
from course.lessons.casebook import readings as read
from course.lessons.casebook.ward import Case, Ending, Suspect
from labkit.fabric.fabric import Fabric

REPORTED = published.load("casebook")
_TEXTS = json.loads(Path(__file__).with_name("cases.json").read_text(encoding="utf-8"))
"""Of each case its title, lesson, story, how a fix is called, and the end."""
MEGABYTE = 1e6


def starved(says: str = "The ranks lack CPUs.") -> Suspect:
    """Suspect that CPUs are what there is too little of."""
    look = "ranks ran or waited for a CPU {} % of the time"
    return Suspect(says, "scheduler", read.busy, 75, look)


def heavy(limit: float = MEGABYTE, says: str = "Much data has to move.") -> Suspect:
    """Suspect that many bytes move."""
    return Suspect(says, "wire meter", read.bytes_sent, limit, "a rank sent {} bytes at most")


def straggler(phase: str, says: str = "One rank comes late.") -> Suspect:
    """Suspect that a rank begins late."""
    look = f"waiting for the last rank takes {{}} % of {phase}"
    return Suspect(says, "per-rank timers", partial(read.late, phase=phase), 50, look)


def _case(name: str, **played: Any) -> Case:
    text = dict(_TEXTS[name])
    ending, symptom = Ending(**text.pop("ending")), tuple(text.pop("symptom"))
    return Case(name=name, **text, ending=ending, symptom=symptom, **played)


def aggregate(seen: list) -> float:
    """Return the sum of what the pairs call their bandwidth, as a multiple of the wire's.

    A pair's time is its receiver's: a sender is done when the socket's buffer has the bytes.
    """
    receivers = [one for one in seen if one["rank"] >= on_links.PAIRS]
    bits = 8 * 4 * on_links.LENGTH
    return sum(bits / read.total(one, "timed") for one in receivers) / on_links.WIRE


_ALL = (
    _case(
        "first-sum",
        program=programs.connections,
        fault=programs.by_rank,
        cure=programs.by_xor,
        phase="connect",
        world_size=12,
        par=2.0,
        culprit="order",
        suspects={
            "order": Suspect(
                "Ranks wait for each other in a chain before they connect.",
                "per-rank timers",
                partial(read.finish, phase="connect"),
                2.5,
                "the last rank has its connections {} times as late as the first",
            ),
            "network": heavy(says="The network is slow: much data has to move."),
            "cpu": starved(),
        },
    ),
    _case(
        "start-up",
        program=programs.groups,
        fault=programs.one_by_one,
        cure=programs.local_groups,
        phase="make groups",
        world_size=12,
        par=2.0,
        culprit="everybody",
        suspects={
            "everybody": Suspect(
                "All ranks wait for each other after every group, also for groups of others.",
                "call counts",
                partial(read.most_calls, kind="barrier"),
                3,
                "a rank makes {} barriers, though it is in two groups at most",
            ),
            "bytes": heavy(says="Making a group moves much data."),
            "late": straggler("make groups"),
        },
    ),
    _case(
        "stretches",
        program=programs.collector,
        fault=programs.when_full,
        cure=programs.together,
        phase="all_reduce",
        world_size=2,
        par=1.5,
        culprit="turns",
        suspects={
            "turns": Suspect(
                "Each rank pauses at another step, and all others wait for it.",
                "timeline",
                partial(read.scattered, phase="all_reduce"),
                20,
                "of the long waits, {} % are for another rank than the one most waited for",
            ),
            "network": heavy(says="The network is slow: much data has to move."),
            "one-slow": Suspect(
                "One rank is slow, always the same.",
                "per-rank timers",
                partial(read.same_rank, phase="all_reduce"),
                85,
                "of the long waits, {} % are for one and the same rank",
            ),
            "calls": Suspect(
                "There are too many calls.",
                "call counts",
                read.most_calls,
                160,
                "a rank makes {} calls in 24 steps",
            ),
        },
    ),
    _case(
        "averages",
        program=programs.metrics,
        fault=programs.gather,
        cure=programs.reduce_tensor,
        phase="metrics",
        world_size=8,
        par=3.0,
        culprit="names",
        suspects={
            "names": heavy(says="More than the figures travels, from everybody to everybody."),
            "late": straggler("metrics"),
            "calls": Suspect(
                "There is a call for each metric.",
                "call counts",
                read.most_calls,
                3000,
                "a rank makes {} calls for three times 3000 metrics",
            ),
        },
    ),
    _case(
        "idle-gpus",
        program=programs.threads,
        fault=programs.as_found,
        cure=programs.shared_out,
        phase="compute",
        world_size=2,
        par=1.3,
        culprit="threads",
        suspects={
            "threads": Suspect(
                "Together the ranks compute with more threads than there are CPUs.",
                "environment",
                read.threads_per_cpu,
                1.2,
                "there are {} computing threads for each CPU that the ranks may use",
            ),
            "network": heavy(100 * MEGABYTE, "The network is slow: much data has to move."),
            "late": Suspect(
                "One rank has more to do than the other.",
                "scheduler",
                read.uneven_work,
                1.5,
                "the busiest rank was on a CPU {} times as long as the least busy one",
            ),
        },
    ),
    _case(
        "two-nodes",
        program=on_links.accumulation,
        fault=on_links.every_time,
        cure=on_links.last_time,
        phase="backward",
        world_size=2,
        par=2.0,
        fabric=lambda: Fabric.star(hosts=2, rate="20mbit"),
        culprit="every",
        suspects={
            "every": heavy(
                2.5 * 4 * on_links.WIDTH * on_links.WIDTH,
                "More gradients travel than one batch needs.",
            ),
            "late": straggler("backward"),
            "link": Suspect(
                "The link does not carry what it should.",
                "wire meter",
                lambda seen: 100 - read.rate(seen, "backward", 2 * 20e6),
                50,
                "while backward runs, {} % of what the link could carry is free",
            ),
            "cpu": starved(),
        },
    ),
    _case(
        "228-bytes",
        program=programs.late_rank,
        fault=programs.by_count,
        cure=programs.by_length,
        phase="all_reduce",
        world_size=4,
        par=2.5,
        culprit="late",
        suspects={
            "late": Suspect(
                "One rank comes late, and the timers of the others show their wait for it.",
                "per-rank timers",
                partial(read.uneven, phase="all_reduce"),
                3,
                "the longest timer of all_reduce shows {} times the shortest",
            ),
            "longest": Suspect(
                "The rank whose all_reduce takes longest is the slow one.",
                "timeline",
                partial(read.longest_is_last, phase="all_reduce"),
                50,
                "the rank that stays longest in all_reduce comes last in {} % of the calls",
            ),
            "network": heavy(says="The network is slow: much data has to move."),
            "cpu": starved(),
        },
    ),
    _case(
        "slow-flows",
        program=on_links.streams,
        fault=on_links.equal_shares,
        cure=on_links.shares_by_rate,
        phase="send",
        world_size=4,
        par=1.5,
        culprit="shares",
        fabric=lambda: Fabric(
            [
                [on_links.RATES[max(a, b) - 1] if 0 in (a, b) else 40e6 for b in range(4)]
                for a in range(4)
            ]
        ),
        suspects={
            "shares": Suspect(
                "Every path gets the same share, so the fast ones wait for the slow ones.",
                "per-rank timers",
                partial(read.uneven, phase="receive"),
                1.7,
                "the slowest path needs {} times as long for its share as the fastest",
            ),
            "copies": heavy(6 * MEGABYTE, "Bytes are sent twice: 2 MB, two times, would be 4 MB."),
            "cpu": starved(),
        },
    ),
    _case(
        "alltoall",
        program=on_links.interface,
        fault=on_links.as_it_is,
        cure=on_links.fast_interface,
        phase="alltoall",
        world_size=4,
        par=5.0,
        culprit="interface",
        fabric=lambda: Fabric.star(hosts=4, rate="400mbit", management="8mbit"),
        suspects={
            "interface": Suspect(
                "The traffic takes the wrong interface.",
                "wire meter",
                partial(read.share_through, name="eth1"),
                50,
                "{} % of all bytes left through eth1",
            ),
            "size": heavy(5 * MEGABYTE, "The exchange is large."),
            "cpu": starved(),
            "late": straggler("alltoall"),
        },
    ),
    _case(
        "above-the-wire",
        program=on_links.pairs,
        fault=on_links.at_once,
        cure=on_links.all_ready,
        phase="timed",
        par=1.3,
        costs=aggregate,
        unit="sum of the pairs' bandwidths / wire",
        culprit="windows",
        fabric=lambda: Fabric.star(hosts=2, rate=on_links.WIRE, ranks_per_host=on_links.PAIRS),
        suspects={
            "windows": Suspect(
                "The pairs are not timed at the same time.",
                "timeline",
                partial(read.apart, phase="timed"),
                20,
                "the timed stretches lie apart for {} % of what they could",
            ),
            "wire": Suspect(
                "The wire carries more than it says.",
                "wire meter",
                partial(read.rate, phase="timed", wire_rate=on_links.WIRE),
                130,
                "from the first begin to the last end {} % of the wire's rate went through",
            ),
            "twice": heavy(
                1.5 * 4 * on_links.LENGTH * (1 + on_links.PAIRS),
                "The pairs move more bytes than they count.",
            ),
        },
        world_size=2 * on_links.PAIRS,
    ),
)
CASES: dict[str, Case] = {case.name: case for case in _ALL}
"""By name."""


def dealt() -> list[Case]:
    """Return the cases whose lesson was run to its end, as the ledger knows."""
    finished = ledger_file.load().finished
    return [case for case in _ALL if case.lesson in finished]


def reported_in(case: Case) -> str:
    """Say where a case was reported, without the title of the thread: titles tell."""
    first = REPORTED[case.symptom[0]].source
    owner, name, *_ = first.address.removeprefix("https://github.com/").split("/")
    return f"{owner}/{name}, {first.when}"
