"""Lesson 00: what a message between two ranks costs, from 4 bytes to 64 MiB."""

from collections.abc import Sequence

from course import runs
from course.comm import collectives
from course.comm.costs import AlphaBeta
from course.place import Place
from labkit.measure.records import Record

NAME = "passport"
TWO = Place(hosts=1, ranks_per_host=2)
SIZES = tuple(4 * 8**power for power in range(9))  # 4 B to 64 MiB


def messages(iters: int) -> dict[int, list[float]]:
    """Send each size to and fro between ranks 0 and 1: the seconds one way, by size in bytes.

    Some small messages go first, uncounted: the first ones of two ranks are slow.
    """
    collectives.ping_pong(SIZES[0], iters=20)
    return {
        nbytes: collectives.ping_pong(nbytes, iters=iters if nbytes < 2**20 else max(3, iters // 4))
        for nbytes in SIZES
    }


def run(
    *, quick: bool = False, progress: runs.Say = runs.quiet, place: Place = TWO
) -> list[Record]:
    """Measure a message of each size between two ranks; about two seconds."""
    progress("ping-pong between two ranks")

    def measure() -> list[Record]:
        one_way = place.launch(messages, 8 if quick else 24, world_size=2)[0]
        common = {"experiment": NAME, "params": {"world_size": 2}, "collective": "send"}
        return [
            place.record("ping-pong", [seconds], nbytes=nbytes, **common)
            for nbytes, seconds in one_way.items()
        ]

    return runs.watched(measure)


def fitted(records: Sequence[Record]) -> AlphaBeta:
    """Fit alpha and beta to the fastest message of each size: what disturbs one only adds to it."""
    fastest = [min(record.seconds) for record in records]
    return AlphaBeta.fit([record.nbytes for record in records], fastest)
