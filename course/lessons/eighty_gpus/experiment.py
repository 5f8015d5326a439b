"""Lesson 07: servers with a network card for each rank, and what uses the cards."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from course import runs
from course.lessons.eighty_gpus import programs
from course.lessons.eighty_gpus.programs import ALL, CASES, LEVELS, ONE, all_reduce_perf
from course.place import Place
from labkit.fabric.fabric import Fabric
from labkit.measure import wire
from labkit.measure.records import Record, bus_factor
from labkit.measure.tables import Table
from labkit.ranks import torchrun

NAME = "rails"
SERVERS, CARDS = 3, (1, 2, 4)
RATE, INSIDE = "20mbit", "800mbit"
CARD = 0.9927 * 20e6 / 8
"""Bytes of tensors per second that a card carries; the rest of its rate are headers."""
NBYTES = 12 * 8192 * 40  # S: divides by all world sizes, rings and packets; links decide, not CPUs


def modelled(case: str, cards: int, rails: Fabric) -> float:
    """Return the seconds that the cards allow; without latency, rings without links inside."""
    n, card, inside = SERVERS * cards, rails.payload_rate(0, cards), rails.payload_rate(0, 1)
    if case == ALL:  # together g ranks bring g such shares to g cards
        return (n - cards) / n * NBYTES / card
    if case == LEVELS:
        within = 2 * (cards - 1) / cards * NBYTES / inside
        return within + 2 * (SERVERS - 1) / SERVERS * NBYTES / cards / card
    return 2 * (n - 1) / n * NBYTES / card / (1 if case == ONE else cards)


def measure(
    arms: Mapping[str, Mapping[str, Any]],
    perf: Callable[..., list[float]] = all_reduce_perf,
    *,
    say: runs.Say = print,
) -> dict[str, Record]:
    """Measure each arm on three servers: ``{"two cards": {"cards": 2, "way": ONE}}``.

    Where no links can be made, the recorded run of the same ways and cards. A record's `predicted`
    is by `modelled`, its value `carried` the bytes that each card sent out of its server in units
    of S, by rank (None where the wire cannot be read).
    """
    records = {}
    for cards in dict.fromkeys(arm["cards"] for arm in arms.values()):
        ways = [arm["way"] for arm in arms.values() if arm["cards"] == cards]
        rails = Fabric.rails(servers=SERVERS, cards=cards, rate=RATE, inside=INSIDE)
        place = Place(hosts=SERVERS, rate=RATE, ranks_per_host=cards, fabric=rails)
        in_turn = partial(_on, ways=ways, perf=perf)
        for record in place.records(in_turn, experiment=NAME, cases=ways, say=say):
            records[cards, record.case] = record
    return {name: records[arm["cards"], arm["way"]] for name, arm in arms.items()}


def _on(here: Place, ways: Iterable[str], perf: Callable[..., list[float]]) -> list[Record]:
    cards, records = here.ranks_per_host, []
    for way in dict.fromkeys(ways):
        ranks = here.launch(programs.program, way, NBYTES, cards, perf, timeout=120)
        if any(rank["right"] is False for rank in ranks):
            raise AssertionError(f"{way}: the sum is wrong")
        try:
            sent = wire.matrix([rank["report"] for rank in ranks])
            by_card = carried(sent / (NBYTES / programs.METERED), cards)
        except (wire.WireUnavailable, wire.WireMismatch):
            by_card = None
        samples, seconds = [rank["samples"] for rank in ranks], modelled(way, cards, here.fabric)
        fields = {"collective": "all_to_all" if way == ALL else "all_reduce", "predicted": seconds}
        fields |= {"params": {"cards": cards, "inside": INSIDE}, "values": {"carried": by_card}}
        records.append(here.record(way, samples, experiment=NAME, nbytes=NBYTES, **fields))
    return records


def run(*, quick: bool = False, progress: runs.Say = runs.quiet) -> list[Record]:
    """Measure all cases with 1, 2 and 4 cards per server."""
    if torchrun.is_here():
        progress("this experiment needs shaped links of its own: nothing is run under torchrun")
        return []
    records = []
    for cards in CARDS[:2] if quick else CARDS:
        progress(f"{SERVERS} servers, {cards} cards each")
        arms = {way: {"cards": cards, "way": way} for way in CASES}
        perf = partial(all_reduce_perf, calls=1) if quick else all_reduce_perf
        records += measure(arms, perf, say=progress).values()
    return records


def on_one_host(perf: Callable[..., list[float]], nbytes: int, gpus: Place) -> list[Record]:
    """Let NCCL sum over the GPUs of one host: a record."""
    samples = gpus.launch(perf, nbytes, timeout=120)
    fields = {"collective": "all_reduce", "nbytes": nbytes}
    return [gpus.record("all_reduce", samples, experiment=NAME, **fields)]


def carried(matrix: np.ndarray, cards: int) -> list[float]:
    """Return what each rank's card sent to other servers, from a matrix of bytes by rank."""
    server = np.arange(len(matrix)) // cards
    return [float(row[server != server[rank]].sum()) for rank, row in enumerate(matrix)]


def busbw(record: Record, seconds: float | None = None) -> float:
    """Return the bus bandwidth in bytes per second, as nccl-tests does: of the median call."""
    factor = bus_factor(record.collective, record.world_size)
    return factor * record.nbytes / (seconds or record.summary.median)


def in_cards(record: Record) -> list[float]:
    """Return, call by call, how many times a card's bandwidth the bus bandwidth is."""
    return [busbw(record, seconds) / CARD for seconds in record.seconds]


def table(arms: Mapping[str, Record]) -> Table:
    """Lay the records out: time, model, and what the busiest card carried."""
    rows = []
    for name, record in arms.items():
        sent = record.values["carried"]
        times = [round(1e3 * t, 1) for t in (record.summary.median, record.predicted)]
        most = round(max(sent), 3) if sent else None
        rows.append([name, *times, round(busbw(record) / 1e6, 2), most])
    return Table(["arm", "ms", "model ms", "busbw MB/s", "busiest card (S)"], rows)
