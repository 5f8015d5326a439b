"""Lesson 04: three copies of the same bytes, three speeds; and the way around the slow link.

The question (GPU Puzzlers 2023, puzzler 1): GPU 0 copies 400 MB to GPUs 1, 2 and 4. Why do the
three copies take 4.3, 53.3 and 8.5 ms? Here the server's links are rebuilt as links between network
namespaces, a thousand times slower: what is GB/s there is MB/s here.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from course import runs
from course.lessons.p2p_topology import flows
from course.lessons.p2p_topology.programs import (
    at_once,
    by_turns,
    copies,
    in_turns,
    relayed,
)
from course.lessons.p2p_topology.topology import PUZZLE
from course.place import Place
from labkit.fabric.errors import FabricUnavailable
from labkit.fabric.fabric import Fabric
from labkit.measure import records
from labkit.measure.records import Provenance, Record, Tier
from labkit.ranks import torchrun

NAME = "p2p-topology"
TITLE = "Three copies, three speeds"
RECORDING = Path(__file__).with_name("recording.json")
SCALE = 1 / 1000
NBYTES, CHUNK = 8_000_000, 125_000
CHUNKS = (8_000_000, 2_000_000, 500_000, 125_000, 32_000, 8_000)
SRC, DSTS, FAR = 0, (1, 2, 4), 2
RELAYED = [[[0, 5, 2]], [[0, 7, 2]], [[0, 5, 2], [0, 7, 2]]]
CONTEND = [[0, 5], [5, 2], [0, 5, 2]]
once = functools.cache(print)
"""Print a text the first time only: why nothing runs here need not be said for every case."""


def links() -> Fabric:
    """Return the puzzle's links between eight hosts, a thousand times slower, not yet up."""
    return Fabric([[8 * SCALE * rate for rate in row] for row in PUZZLE.bandwidths()])


def rate(src: int, dst: int) -> float:
    """Return the bytes per second that a tensor gets from one of these hosts to another, alone."""
    return links().payload_rate(src, dst)


def named(ways: Sequence[Sequence[int]]) -> str:
    """Name ways as records do: ``"0 -> 5 -> 2 | 0 -> 7 -> 2"``."""
    return " | ".join(" -> ".join(map(str, way)) for way in ways)


def on_links(
    cases: dict[str, dict[str, Any]],
    program: Callable[..., list[float] | list[list[float]] | None],
    *args: Any,
    say: runs.Say = once,
) -> list[Record]:
    """Run a program on the eight hosts; where none can be made, say so and take the recorded run.

    A case that was never recorded is then what the model says of it, and stamped so.

    Args:
        cases: Name of each case -> fields of its record; `params["ways"][0][-1]` is the rank whose
            samples count.
        program: Returns its samples in seconds on that rank, or a list of them for each case.
        *args: Its arguments.
        say: Told why nothing runs here.
    """

    def measure(here: Place) -> list[Record]:
        results, measured = here.launch(program, *args), []
        for number, (case, fields) in enumerate(cases.items()):
            got = results[fields["params"]["ways"][0][-1]]
            samples = [got[number] if isinstance(got[0], list) else got]
            measured.append(here.record(case, samples, experiment=NAME, **fields))
        return measured

    try:
        if torchrun.is_here():
            raise FabricUnavailable("ranks that torchrun started stay where they are", "")
        with Place(hosts=8, rate="the puzzle's", fabric=links()).up() as here:
            return runs.watched(lambda: measure(here))
    except FabricUnavailable as reason:
        say(f"{reason}\nShown instead: what another machine measured (RECORDED).")
    recorded = runs.by_case(records.load(RECORDING, recorded=True, experiment=NAME))
    return [recorded.get(case) or modelled(case, fields) for case, fields in cases.items()]


def modelled(case: str, fields: dict[str, Any]) -> Record:
    """Return a record of what the model predicts, for a case that nobody has measured."""
    origin = {"tier": Tier.MODELLED, "provenance": Provenance.here()}
    return Record(NAME, case, samples=[[fields["predicted"]]], **fields, **origin)


def time_copies(*, program: Callable = copies, iters: int = 2, **options: Any) -> list[Record]:
    """Time the puzzle's three simultaneous copies; one record for each."""
    cases = {
        named([[SRC, dst]]): {
            "nbytes": NBYTES,
            "params": {"part": "copies", "ways": [[SRC, dst]], "link": PUZZLE.link(SRC, dst)},
            "predicted": NBYTES / rate(SRC, dst),
        }
        for dst in DSTS
    }
    return on_links(cases, program, SRC, DSTS, NBYTES, iters, **options)


def _fields(part: str, ways: list[list[int]], chunk: int, **model: Any) -> dict[str, Any]:
    """Return what a record of a transfer says beside its samples; the rest is for the model."""
    predicted = flows.ways_time(rate, ways, nbytes=NBYTES, chunk=chunk, **model)
    params = {"part": part, "ways": ways, "chunk": chunk}
    return {"nbytes": NBYTES, "params": params, "predicted": predicted}


def time_way(
    way: Sequence[int],
    chunk: int = CHUNK,
    *,
    program: Callable = in_turns,
    iters: int = 3,
    **options: Any,
) -> Record:
    """Time a program that hands chunks along one way; it gets the way, nbytes, chunk and iters.

    The record's `predicted` is that of chunks that cost nothing.
    """
    way = list(way)
    cases = {f"{named([way])}, {NBYTES} B by {chunk}, in turns": _fields("way", [way], chunk)}
    return on_links(cases, program, way, NBYTES, chunk, iters, **options)[0]


def time_by_chunks(
    way: Sequence[int],
    chunks: Sequence[int],
    *,
    program: Callable = in_turns,
    iters: int = 3,
    **options: Any,
) -> list[Record]:
    """Time a program like `time_way`'s with chunks of several sizes, which take turns.

    One record for each size; a busy moment then meets all of them alike.
    """
    way = list(way)
    cases = {
        f"{named([way])}, {NBYTES} B by {chunk}, in turns": _fields("way", [way], chunk)
        for chunk in chunks
    }
    return on_links(cases, by_turns, program, way, NBYTES, chunks, iters, **options)


def time_ways(
    ways: Sequence[Sequence[int]],
    *,
    shares: Sequence[float] | None = None,
    chunk: int = CHUNK,
    alpha: float = 0.0,
    iters: int = 3,
    **options: Any,
) -> Record:
    """Time a transfer along ways, with a part of the bytes on each (`programs.carry`)."""
    ways = [list(way) for way in ways]
    fields = _fields("ways", ways, chunk, alpha=alpha, shares=shares)
    cases = {f"{named(ways)}, {NBYTES} B by {chunk}": fields}
    return on_links(cases, relayed, ways, shares, NBYTES, chunk, iters, **options)[0]


def time_every_way(**options: Any) -> Record:
    """Time a transfer over every path of the maximum flow over NVLink."""
    paths = flows.maximum_flow(PUZZLE, SRC, FAR)
    shares = [path.rate for path in paths]
    return time_ways([path.gpus for path in paths], shares=shares, chunk=CHUNK // 2, **options)


def chunk_cost(whole: Record, cut: Record) -> float:
    """Return alpha, what a chunk costs beyond its bytes, in seconds: the difference, shared out."""
    chunks = cut.nbytes / cut.params["chunk"]
    return max(0.0, cut.summary.median - whole.summary.median) / (chunks - 1)


def time_at_once(*, iters: int = 3, **options: Any) -> list[Record]:
    """Time a relayed copy and two direct ones that share its links; one record for each."""
    predicted = flows.finish_times(rate, CONTEND, nbytes=NBYTES)
    cases = {
        f"together: {named([way])}": {
            "nbytes": NBYTES,
            "params": {"part": "together", "ways": [way], "chunk": CHUNK},
            "predicted": seconds,
        }
        for way, seconds in zip(CONTEND, predicted, strict=True)
    }
    return on_links(cases, at_once, CONTEND, NBYTES, CHUNK, iters, **options)


def run(*, quick: bool = False, progress: runs.Say = runs.quiet) -> list[Record]:
    """Measure everything that lesson 04 shows, on a fabric with the puzzle's links."""
    options: dict[str, Any] = {"iters": 2 if quick else 5, "say": functools.cache(progress)}
    progress("three copies at once")
    measured = time_copies(**options)
    progress("what a chunk costs")
    measured += [time_ways([[0, 5]], chunk=NBYTES // count, **options) for count in (1, 1000)]
    alpha = {"alpha": chunk_cost(*measured[-2:])}
    for ways in RELAYED:
        progress(f"over {named(ways)}")
        measured.append(time_ways(ways, **alpha, **options))
    progress("over every NVLink path")
    measured.append(time_every_way(**alpha, **options))
    for chunk in CHUNKS:
        progress(f"in chunks of {chunk} bytes")
        if chunk != CHUNK:
            measured.append(time_ways(RELAYED[0], chunk=chunk, **alpha, **options))
    for relay in (1, 3, 4, 5, 6, 7):
        for chunk in (NBYTES, CHUNK):
            progress(f"over {relay}, in turns, in chunks of {chunk} bytes")
            measured.append(time_way([SRC, relay, FAR], chunk, **options))
    progress("three transfers that share links")
    measured += time_at_once(**options)
    return measured
