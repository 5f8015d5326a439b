"""Lesson 07: servers with a network card for each rank, and what uses the cards."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from course import runs
from course.lessons.eighty_gpus.programs import ALL, CASES, LEVELS, METERED, ONE, program
from course.place import Place
from labkit.fabric.fabric import Fabric
from labkit.measure import wire
from labkit.measure.records import Record, bus_factor
from labkit.measure.tables import Table
from labkit.ranks import torchrun

NAME = "rails"
TITLE = "Network cards, and who uses them"
RECORDING = Path(__file__).with_name("recording.json")
SERVERS, CARDS = 3, (1, 2, 4)
RATE, INSIDE = "20mbit", "800mbit"
NBYTES = 12 * 8192 * 20
"""S: divides by all world sizes, rings and packets."""


def modelled(case: str, cards: int, *, card: float, inside: float) -> float:
    """Return the seconds that the cards allow; without latency, rings without links inside.

    `card`: bytes per second of a card, each way; `inside`: of a link inside a server.
    """
    n = SERVERS * cards
    if case == ALL:  # together g ranks bring g such shares to g cards
        return (n - cards) / n * NBYTES / card
    if case == LEVELS:
        within = 2 * (cards - 1) / cards * NBYTES / inside
        return within + 2 * (SERVERS - 1) / SERVERS * NBYTES / cards / card
    return 2 * (n - 1) / n * NBYTES / card / (1 if case == ONE else cards)


def measure(
    cases: Sequence[str] = CASES, cards: int = 2, *, iters: int = 1, say: runs.Say = print
) -> list[Record]:
    """Measure ways to communicate between servers with that many cards, or return the recorded run.

    Returns:
        A record per case; `predicted` by `modelled`. `values`: `carried`, the bytes that each card
        sent out of its server in units of S, by rank (None where the wire cannot be read).
    """
    rails = Fabric.rails(servers=SERVERS, cards=cards, rate=RATE, inside=INSIDE)
    place = Place(hosts=SERVERS, rate=RATE, ranks_per_host=cards, fabric=rails)

    def on(here: Place) -> list[Record]:
        rates = {
            "card": here.fabric.payload_rate(0, cards),
            "inside": here.fabric.payload_rate(0, 1) if cards > 1 else float("inf"),
        }
        records = []
        for case in cases:
            ranks = here.launch(program, case, NBYTES, cards, iters, timeout=120)
            if any(rank["right"] is False for rank in ranks):
                raise AssertionError(f"{case}: the sum is wrong")
            fields = {"nbytes": NBYTES, "predicted": modelled(case, cards, **rates)}
            fields["collective"] = "all_to_all" if case == ALL else "all_reduce"
            fields["values"] = {"carried": _carried(ranks, cards)}
            fields["params"] = {"cards": cards, "inside": INSIDE}
            samples = [rank["samples"] for rank in ranks]
            records.append(here.record(case, samples, experiment=NAME, **fields))
        return records

    return place.records(on, recording=RECORDING, experiment=NAME, cases=cases, say=say)


def run(*, quick: bool = False, progress: runs.Say = runs.quiet) -> list[Record]:
    """Measure all cases with 1, 2 and 4 cards per server."""
    if torchrun.is_here():
        progress("this experiment needs shaped links of its own: nothing is run under torchrun")
        return []
    records = []
    for cards in CARDS[:2] if quick else CARDS:
        progress(f"{SERVERS} servers, {cards} cards each")
        records += measure(cards=cards, iters=1 if quick else 3, say=progress)
    return records


def carried(matrix: np.ndarray, cards: int) -> list[float]:
    """Return what each rank's card sent to other servers, from a matrix of bytes by rank."""
    server = np.arange(len(matrix)) // cards
    return [float(row[server != server[rank]].sum()) for rank, row in enumerate(matrix)]


def busbw(record: Record) -> float:
    """Return the bus bandwidth of a record in bytes per second, from its fastest call."""
    return _busbw(record, min(record.seconds))


def gains(before: Record, after: Record) -> list[float]:
    """Return, call by call, how many times the bus bandwidth of `before` is reached `after`."""
    pairs = zip(before.seconds, after.seconds, strict=True)
    return [_busbw(after, then) / _busbw(before, first) for first, then in pairs]


def _busbw(record: Record, seconds: float) -> float:
    return bus_factor(record.collective, record.world_size) * record.nbytes / seconds


def table(records: Sequence[Record]) -> Table:
    """Lay the records out: time, model, and what the busiest card carried."""
    rows = []
    for record in records:
        sent = record.values["carried"]
        times = [round(1e3 * t, 1) for t in (record.summary.median, record.predicted)]
        row = [record.params["cards"], record.case, *times, round(busbw(record) / 1e6, 2)]
        rows.append([*row, round(max(sent), 3) if sent else None])
    columns = ["cards", "case", "ms", "model ms", "busbw MB/s", "busiest card (S)"]
    return Table(columns, rows)


def _carried(ranks: Sequence[dict], cards: int) -> list[float] | None:
    try:
        sent = wire.matrix([rank["report"] for rank in ranks])
        return carried(sent / (NBYTES / METERED), cards)
    except (wire.WireUnavailable, wire.WireMismatch):
        return None
