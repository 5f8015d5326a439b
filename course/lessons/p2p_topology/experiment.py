"""Lesson 04: three copies of the same bytes, three speeds; and the way around the slow link.

The question (GPU Puzzlers 2023, puzzler 1): GPU 0 copies 400 MB to GPUs 1, 2 and 4. Why do the
three copies take 4.3, 53.3 and 8.5 ms? Here the server's links are rebuilt as links between network
namespaces, a thousand times slower: what is GB/s there is MB/s here.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from course import runs
from course.lessons.p2p_topology import flows
from course.lessons.p2p_topology.programs import at_once, copies, in_turns, posted_ahead, relayed
from course.lessons.p2p_topology.topology import PUZZLE
from labkit.fabric.errors import FabricUnavailable
from labkit.fabric.fabric import Fabric
from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.tables import Table
from labkit.ranks.launcher import launch

NAME = "p2p-topology"
TITLE = "Three copies, three speeds"
RECORDING = Path(__file__).with_name("recording.json")
SCALE = 1 / 1000
NBYTES, CHUNK = 8_000_000, 125_000
CHUNKS = (8_000_000, 2_000_000, 500_000, 125_000, 32_000, 8_000, 4_000)
TURNS = ((8_000_000, 8_000_000), (8_000_000, 125_000), (1_000_000, 2_000))  # S, chunk
SRC, DSTS, FAR = 0, (1, 2, 4), 2
RELAYED = {"via 5": [[0, 5, 2]], "via 7": [[0, 7, 2]], "via 5 and 7": [[0, 5, 2], [0, 7, 2]]}
CONTEND = [[0, 5], [5, 2], [0, 5, 2]]
once = functools.cache(print)
"""Print a text the first time only: why nothing runs here need not be said for every case."""


def links() -> Fabric:
    """Return the puzzle's links between eight hosts, a thousand times slower, not yet up."""
    return Fabric.from_topology(PUZZLE, scale=SCALE)


def rate(src: int, dst: int) -> float:
    """Return the bytes per second that a tensor gets from one of these hosts to another, alone."""
    return links().payload_rate(src, dst)


def on_links(
    cases: dict[str, dict[str, Any]],
    program: Callable[..., list[float] | list[list[float]] | None],
    *args: Any,
    say: runs.Say = once,
) -> list[Record]:
    """Run a program on the eight hosts, or take the records of its cases from the recorded run.

    Args:
        cases: Name of each case -> fields of its record; `params["ways"][0][-1]` is the rank whose
            samples count.
        program: Returns its samples in seconds on that rank, or a list of them for each case.
        *args: Its arguments.
        say: Told why nothing runs here.
    """

    def measure(fabric: Fabric | None) -> list[Record]:
        if fabric is None:
            raise FabricUnavailable("ranks that torchrun started stay where they are", "")
        return runs.watched(lambda: _measured(fabric, cases, program, *args), say=say)

    return runs.measured_or_recorded(
        measure, links(), recording=RECORDING, experiment=NAME, cases=cases, say=say
    )


def _measured(
    fabric: Fabric, cases: dict[str, dict[str, Any]], program: Callable, *args: Any
) -> list[Record]:
    results = launch(program, *args, world_size=fabric.hosts, fabric=fabric)
    found = []
    for number, (case, about) in enumerate(cases.items()):
        got = results[about["params"]["ways"][0][-1]]
        samples = [got[number] if isinstance(got[0], list) else got]
        origin = {"tier": Tier.EMULATED, "provenance": Provenance.here()}
        found.append(Record(NAME, case, samples=samples, **about, **origin))
    return found


def time_copies(
    *, program: Callable = copies, iters: int = 2, nbytes: int = NBYTES, **options: Any
) -> list[Record]:
    """Time the puzzle's three simultaneous copies; one record for each."""
    cases = {
        f"{SRC} -> {dst}": {
            "nbytes": nbytes,
            "params": {"part": "copies", "ways": [[SRC, dst]], "link": PUZZLE.link(SRC, dst)},
            "predicted": nbytes / rate(SRC, dst),
        }
        for dst in DSTS
    }
    return on_links(cases, program, SRC, DSTS, nbytes, iters, **options)


def time_ways(
    case: str,
    ways: Sequence[Sequence[int]],
    *,
    shares: Sequence[float] | None = None,
    nbytes: int = NBYTES,
    chunk: int = CHUNK,
    alpha: float = 0.0,
    iters: int = 3,
    **options: Any,
) -> Record:
    """Time a transfer along ways; the record's `predicted` is `relay_time` of its slowest way."""
    shares = shares or [1.0] * len(ways)
    parts = [nbytes * share / sum(shares) for share in shares]
    crossings = [list(itertools.pairwise(way)) for way in ways]
    load: dict[tuple[int, int], float] = {}
    for part, hops in zip(parts, crossings, strict=True):
        for hop in hops:
            load[hop] = load.get(hop, 0.0) + part
    times = []
    for part, hops in zip(parts, crossings, strict=True):
        rates = [rate(*hop) * part / load[hop] for hop in hops]
        times.append(flows.relay_time(rates, nbytes=round(part), chunk=chunk, alpha=alpha))
    params = {"part": "ways", "ways": [list(way) for way in ways], "chunk": chunk}
    about = {"nbytes": nbytes, "params": params, "predicted": max(times)}
    return on_links({case: about}, relayed, ways, shares, nbytes, chunk, iters, **options)[0]


def time_every_way(*, alpha: float = 0.0, iters: int = 3, **options: Any) -> Record:
    """Time a transfer over every path of the maximum flow over NVLink."""
    paths = flows.maximum_flow(PUZZLE, SRC, FAR, nvlink_only=True)
    ways, shares = [list(path.gpus) for path in paths], [path.rate for path in paths]
    options |= {"shares": shares, "chunk": CHUNK // 2, "alpha": alpha, "iters": iters}
    return time_ways("every path", ways, **options)


def time_relay(
    name: str,
    nbytes: int,
    chunk: int,
    *,
    program: Callable = in_turns,
    iters: int = 3,
    **options: Any,
) -> Record:
    """Time a program that relays over GPU 5; `predicted` is a relay whose chunks cost nothing.

    The case is called by the `name`; the program gets the way, `nbytes`, `chunk` and `iters`.
    """
    way = RELAYED["via 5"][0]
    hops = [rate(*hop) for hop in itertools.pairwise(way)]
    about = {
        "nbytes": nbytes,
        "params": {"part": "turns", "ways": [way], "chunk": chunk},
        "predicted": flows.relay_time(hops, nbytes=nbytes, chunk=chunk),
    }
    case = f"{name}, {nbytes} B by {chunk}"
    return on_links({case: about}, program, way, nbytes, chunk, iters, **options)[0]


def time_chunk_cost(*, count: int = 1000, **options: Any) -> list[Record]:
    """Time the same bytes over one link, in one chunk and in `count`."""
    return [time_ways(f"0 -> 5 in {n}", [[0, 5]], chunk=NBYTES // n, **options) for n in (1, count)]


def chunk_cost(whole: Record, cut: Record) -> float:
    """Return alpha, what a chunk costs beyond its bytes, in seconds: the difference, shared out."""
    chunks = cut.nbytes / cut.params["chunk"]
    return max(0.0, min(cut.seconds) - min(whole.seconds)) / (chunks - 1)


def time_at_once(*, iters: int = 3, nbytes: int = NBYTES, **options: Any) -> list[Record]:
    """Time a relayed copy and two direct ones that share its links; one record for each."""
    fluid = flows.finish_times(PUZZLE.as_fabric(), CONTEND, nbytes=[nbytes] * len(CONTEND))
    slower = PUZZLE.bandwidth(0, 5) / rate(0, 5)
    cases = {
        "together: " + " -> ".join(map(str, way)): {
            "nbytes": nbytes,
            "params": {"part": "together", "ways": [way], "chunk": CHUNK},
            "predicted": seconds * slower,
        }
        for way, seconds in zip(CONTEND, fluid, strict=True)
    }
    return on_links(cases, at_once, CONTEND, nbytes, CHUNK, iters, **options)


def run(*, quick: bool = False, progress: runs.Say = runs.quiet) -> list[Record]:
    """Measure everything that lesson 04 shows, on a fabric with the puzzle's links."""
    iters = 2 if quick else 5
    options: dict[str, Any] = {"iters": iters, "say": functools.cache(progress)}
    progress("three copies at once")
    found = time_copies(**options)
    progress("what a chunk costs")
    found += time_chunk_cost(**options)
    options["alpha"] = chunk_cost(*found[-2:])
    for case, ways in RELAYED.items():
        progress(f"0 to 2 {case}")
        found.append(time_ways(case, ways, **options))
    progress("0 to 2 over every NVLink path")
    found.append(time_every_way(**options))
    for chunk in CHUNKS:
        progress(f"via 5 in chunks of {chunk} bytes")
        found.append(time_ways(f"via 5, {chunk} B", RELAYED["via 5"], chunk=chunk, **options))
    del options["alpha"]
    progress("plain send and recv, and receives posted ahead")
    found += [time_relay("in turns", *turn, **options) for turn in TURNS]
    found.append(time_relay("posted ahead", *TURNS[-1], program=posted_ahead, **options))
    progress("three transfers that share links")
    return found + time_at_once(**options)


def table(records: Sequence[Record]) -> Table:
    """Lay the records out for reading; `x direct` is how much faster than over the SYS link."""
    columns = ["case", "links", "MB", "predicted ms", "measured ms", "p10", "p90", "ratio"]
    direct = runs.by_case(records)[f"{SRC} -> {FAR}"]
    rows = []
    for record in records:
        summary, predicted = record.summary, record.predicted
        links = " | ".join(
            " ".join(PUZZLE.link(*hop) for hop in itertools.pairwise(way))
            for way in record.params["ways"]
        )
        times = [round(x * 1e3, 1) for x in (predicted, summary.median, summary.p10, summary.p90)]
        faster = record.algbw / direct.algbw
        ratio = round(summary.median / predicted, 2)
        rows.append([record.case, links, record.nbytes / 1e6, *times, ratio, round(faster, 1)])
    return Table([*columns, "x direct"], rows)
