"""Lesson 4: three copies of the same bytes, three speeds; and the way around the slow link.

The question (GPU Puzzlers 2023, puzzler 1): GPU 0 copies 400 MB to GPUs 1, 2 and 4. Why do the
three copies take 4.3, 53.3 and 8.5 ms? Here the server's links are rebuilt as links between network
namespaces, a thousand times slower: what is GB/s there is MB/s here.
"""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from labkit.fabric.fabric import Fabric
from labkit.launch.launcher import launch
from labkit.lessons.p2p_topology import flows
from labkit.lessons.p2p_topology.presets import PUZZLE
from labkit.lessons.p2p_topology.programs import at_once, copies, in_turns, relayed
from labkit.lessons.p2p_topology.relay_model import relay_time
from labkit.measure.emulation import Emulation
from labkit.measure.records import Record
from labkit.measure.tables import Table

NAME = "p2p-topology"
TITLE = "Three copies, three speeds"
RECORDING = Path(__file__).with_name("recording.json")
SCALE = 1 / 1000
NBYTES = 8_000_000
CHUNK = 125_000
CHUNKS = (8_000_000, 2_000_000, 500_000, 125_000, 32_000, 8_000, 4_000)
TURNS = ((8_000_000, 8_000_000), (8_000_000, 125_000), (1_000_000, 2_000))  # S, chunk
SRC, DSTS, FAR = 0, (1, 2, 4), 2
RELAYED = {"via 5": [[0, 5, 2]], "via 7": [[0, 7, 2]], "via 5 and 7": [[0, 5, 2], [0, 7, 2]]}
CONTEND = [[0, 5], [5, 2], [0, 5, 2]]


def every_way() -> tuple[list[list[int]], list[float]]:
    """Return the paths of the maximum flow over NVLink, and their rates as shares."""
    paths = flows.maximum_flow(PUZZLE, SRC, FAR, nvlink_only=True)
    return [list(path.gpus) for path in paths], [path.rate for path in paths]


def time_copies(emulation: Emulation, *, iters: int = 2, nbytes: int = NBYTES) -> list[Record]:
    """Time the puzzle's three simultaneous copies; one record for each."""
    cases = [f"{SRC} -> {dst}" for dst in DSTS]
    if emulation.why_not:
        return [emulation.time(case, copies) for case in cases]
    args = (SRC, DSTS, nbytes, iters)
    results = launch(copies, *args, world_size=emulation.fabric.hosts, fabric=emulation.fabric)
    return [
        emulation.record(
            case,
            [results[dst]],
            nbytes=nbytes,
            params={"part": "copies", "ways": [[SRC, dst]], "link": PUZZLE.link(SRC, dst)},
            predicted=nbytes / emulation.fabric.payload_rate(SRC, dst),
        )
        for case, dst in zip(cases, DSTS, strict=True)
    ]


def time_ways(
    emulation: Emulation,
    case: str,
    ways: Sequence[Sequence[int]],
    *,
    shares: Sequence[float] | None = None,
    nbytes: int = NBYTES,
    chunk: int = CHUNK,
    alpha: float = 0.0,
    iters: int = 3,
) -> Record:
    """Time a transfer along ways; the record's `predicted` is `relay_time` of its slowest way."""
    total = sum(shares) if shares else len(ways)
    parts = [nbytes * (share / total) for share in (shares or [1.0] * len(ways))]
    crossings = [list(itertools.pairwise(way)) for way in ways]
    load: dict[tuple[int, int], float] = {}
    for part, hops in zip(parts, crossings, strict=True):
        for hop in hops:
            load[hop] = load.get(hop, 0.0) + part
    predicted = max(
        relay_time(
            [emulation.fabric.payload_rate(*hop) * part / load[hop] for hop in hops],
            nbytes=round(part),
            chunk=chunk,
            alpha=alpha,
        )
        for part, hops in zip(parts, crossings, strict=True)
    )
    return emulation.time(
        case,
        relayed,
        ways,
        shares,
        nbytes,
        chunk,
        iters,
        nbytes=nbytes,
        params={"part": "ways", "ways": [list(way) for way in ways], "chunk": chunk},
        predicted=predicted,
    )


def time_turns(
    emulation: Emulation, way: Sequence[int], *, nbytes: int, chunk: int, iters: int = 3
) -> Record:
    """Time a relay by plain send and recv; `predicted` is a relay whose chunks cost nothing."""
    hops = [emulation.fabric.payload_rate(*hop) for hop in itertools.pairwise(way)]
    return emulation.time(
        f"in turns, {nbytes} B by {chunk}",
        in_turns,
        way,
        nbytes,
        chunk,
        iters,
        nbytes=nbytes,
        params={"part": "turns", "ways": [list(way)], "chunk": chunk},
        predicted=relay_time(hops, nbytes=nbytes, chunk=chunk),
    )


def time_chunk_cost(emulation: Emulation, *, count: int = 1000, iters: int = 3) -> list[Record]:
    """Time the same bytes over one link, in one chunk and in `count`."""
    return [
        time_ways(emulation, f"0 -> 5 in {n}", [[0, 5]], chunk=NBYTES // n, iters=iters)
        for n in (1, count)
    ]


def chunk_cost(whole: Record, cut: Record) -> float:
    """Return alpha, what a chunk costs beyond its bytes, in seconds: the difference, shared out."""
    chunks = cut.nbytes / cut.params["chunk"]
    return max(0.0, min(cut.seconds) - min(whole.seconds)) / (chunks - 1)


def time_at_once(emulation: Emulation, *, iters: int = 3, nbytes: int = NBYTES) -> list[Record]:
    """Time a relayed copy and two direct ones that share its links; one record for each."""
    cases = ["together: " + " -> ".join(map(str, way)) for way in CONTEND]
    if emulation.why_not:
        return [emulation.time(case, at_once) for case in cases]
    args = (CONTEND, nbytes, CHUNK, iters)
    results = launch(at_once, *args, world_size=emulation.fabric.hosts, fabric=emulation.fabric)
    fluid = flows.finish_times(PUZZLE.as_fabric(), CONTEND, nbytes=[nbytes] * len(CONTEND))
    slower = PUZZLE.bandwidth(0, 5) / emulation.fabric.payload_rate(0, 5)
    return [
        emulation.record(
            case,
            [results[way[-1]][number]],
            nbytes=nbytes,
            params={"part": "together", "ways": [way], "chunk": CHUNK},
            predicted=fluid[number] * slower,
        )
        for number, (case, way) in enumerate(zip(cases, CONTEND, strict=True))
    ]


def run(*, quick: bool = False, progress: Callable[[str], None] | None = None) -> list[Record]:
    """Measure everything that lesson 4 shows, on a fabric with the puzzle's links."""
    say = progress or (lambda text: None)
    iters = 2 if quick else 5
    records = []
    emulation = Emulation(NAME, Fabric.from_topology(PUZZLE, scale=SCALE), recording=RECORDING)
    say(str(emulation))
    try:
        say("three copies at once")
        records += time_copies(emulation, iters=2)
        say("what a chunk costs")
        pair = time_chunk_cost(emulation, iters=iters)
        alpha = chunk_cost(*pair)
        records += pair
        for case, ways in RELAYED.items():
            say(f"0 to 2 {case}")
            records.append(time_ways(emulation, case, ways, alpha=alpha, iters=iters))
        ways, shares = every_way()
        say("0 to 2 over every NVLink path")
        records.append(
            time_ways(
                emulation,
                "every path",
                ways,
                shares=shares,
                chunk=CHUNK // 2,
                alpha=alpha,
                iters=iters,
            )
        )
        for chunk in CHUNKS:
            say(f"via 5 in chunks of {chunk} bytes")
            case = f"via 5, {chunk} B"
            records.append(
                time_ways(emulation, case, RELAYED["via 5"], chunk=chunk, alpha=alpha, iters=iters)
            )
        for nbytes, chunk in TURNS:
            say(f"via 5 in turns, {nbytes} bytes in chunks of {chunk}")
            records.append(
                time_turns(emulation, [0, 5, 2], nbytes=nbytes, chunk=chunk, iters=min(iters, 3))
            )
        nbytes, chunk = TURNS[-1]
        case = f"posted ahead, {nbytes} B by {chunk}"
        records.append(
            time_ways(
                emulation, case, [[0, 5, 2]], nbytes=nbytes, chunk=chunk, alpha=alpha, iters=iters
            )
        )
        say("three transfers that share links")
        records += time_at_once(emulation, iters=iters)
    finally:
        emulation.close()
    return records


def table(records: Sequence[Record]) -> Table:
    """Lay the records out for reading; `x direct` is how much faster than over the SYS link."""
    columns = ["case", "links", "MB", "predicted ms", "measured ms", "p10", "p90", "ratio"]
    direct = next(record for record in records if record.case == f"{SRC} -> {FAR}")
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
