"""Lesson 4: three copies of the same bytes, three speeds; and the way around the slow link.

The question (GPU Puzzlers 2023, puzzler 1): GPU 0 copies 400 MB to GPUs 1, 2 and 4. Why do the
three copies take 4.3, 53.3 and 8.5 ms? Here the server's links are rebuilt as links between network
namespaces, a thousand times slower: what is GB/s there is MB/s here.
"""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from labkit.comm.relay import carry
from labkit.experiments.emulation import Emulation
from labkit.measure import timing
from labkit.measure.records import Record
from labkit.model import flows
from labkit.model.presets import PUZZLE
from labkit.model.relay import relay_time
from labkit.run.fabric import Fabric
from labkit.run.launcher import launch

NAME = "p2p-topology"
TITLE = "Three copies, three speeds"
SCALE = 1 / 1000
NBYTES = 8_000_000
CHUNK = 125_000
CHUNKS = (8_000_000, 2_000_000, 500_000, 125_000, 32_000, 8_000)
SRC, DSTS, FAR = 0, (1, 2, 4), 2
RELAYED = {"via 5": [[0, 5, 2]], "via 7": [[0, 7, 2]], "via 5 and 7": [[0, 5, 2], [0, 7, 2]]}
CONTEND = [[0, 5], [5, 2], [0, 5, 2]]


def copies(src: int, dsts: Sequence[int], nbytes: int, iters: int) -> list[float] | None:
    """Send the same bytes to several ranks at once; runs on every rank.

    Returns:
        On a destination: the seconds until it had everything, for each repetition. Else None.
    """
    rank, tensor, samples = dist.get_rank(), torch.ones(nbytes // 4), []
    for repetition in range(iters + 1):
        message = tensor if repetition else tensor[:1]  # the first only opens the connections
        dist.barrier()
        begin = time.perf_counter()
        if rank == src:
            for work in [dist.isend(message, dst) for dst in dsts]:
                work.wait()
        elif rank in dsts:
            dist.recv(message, src)
        samples.append(time.perf_counter() - begin)
    return samples[1:] if rank in dsts else None


def relayed(
    ways: Sequence[Sequence[int]],
    shares: Sequence[float] | None,
    nbytes: int,
    chunk: int,
    iters: int,
) -> list[float] | None:
    """Carry bytes along ways, chunk by chunk; runs on every rank. Checks what arrives, once.

    Returns:
        On the destination: seconds for each repetition. Else None.
    """
    rank, src, dst = dist.get_rank(), ways[0][0], ways[0][-1]
    sent = torch.arange(nbytes // 4, dtype=torch.float32)
    tensor = sent.clone() if rank == src else torch.zeros_like(sent)
    carry(tensor, ways, chunk=max(1, chunk // 4), shares=shares)
    if rank == dst and not torch.equal(tensor, sent):
        raise AssertionError(f"what arrived over {ways} is not what was sent")
    samples = timing.time_calls(
        lambda: carry(tensor, ways, chunk=max(1, chunk // 4), shares=shares), warmup=0, iters=iters
    )
    return samples if rank == dst else None


def at_once(
    ways: Sequence[Sequence[int]], nbytes: int, chunk: int, iters: int
) -> list[list[float]]:
    """Start several transfers together, each over connections of its own; runs on every rank.

    Returns:
        For each way: seconds for each repetition, on its destination; empty on other ranks.
    """
    rank, everyone = dist.get_rank(), list(range(dist.get_world_size()))
    groups = [dist.new_group(everyone) for _ in ways]
    tensors = [torch.ones(nbytes // 4) for _ in ways]
    samples: list[list[float]] = [[] for _ in ways]

    def transfer(number: int, begin: float) -> None:
        carry(tensors[number], [ways[number]], chunk=chunk // 4, group=groups[number])
        if rank == ways[number][-1]:
            samples[number].append(time.perf_counter() - begin)

    mine = [number for number, way in enumerate(ways) if rank in way]
    for _ in range(iters + 1):
        dist.barrier()
        begin = time.perf_counter()
        threads = [threading.Thread(target=transfer, args=(number, begin)) for number in mine]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return [row[1:] for row in samples]


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
            values={"predicted": nbytes / emulation.fabric.payload_rate(SRC, dst)},
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
        values={"predicted": predicted},
    )


def time_chunk_cost(emulation: Emulation, *, count: int = 1000, iters: int = 3) -> float:
    """Return alpha: what a chunk costs beyond its bytes, in seconds.

    The same bytes over one link, in one chunk and in `count`: the difference, shared out.
    """
    whole, cut = (
        time_ways(emulation, f"0 -> 5 in {n}", [[0, 5]], chunk=NBYTES // n, iters=iters)
        for n in (1, count)
    )
    return max(0.0, min(cut.seconds) - min(whole.seconds)) / (count - 1)


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
            values={"predicted": fluid[number] * slower},
        )
        for number, (case, way) in enumerate(zip(cases, CONTEND, strict=True))
    ]


def run(*, quick: bool = False, progress: Callable[[str], None] | None = None) -> list[Record]:
    """Measure everything that lesson 4 shows, on a fabric with the puzzle's links."""
    say = progress or (lambda text: None)
    iters = 2 if quick else 5
    records = []
    emulation = Emulation(NAME, Fabric.from_topology(PUZZLE, scale=SCALE))
    say(str(emulation))
    try:
        say("three copies at once")
        records += time_copies(emulation, iters=2)
        say("what a chunk costs")
        alpha = time_chunk_cost(emulation, iters=iters)
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
        say("three transfers that share links")
        records += time_at_once(emulation, iters=iters)
    finally:
        emulation.close()
    return records


def table(records: Sequence[Record]) -> tuple[list[str], list[list[Any]]]:
    """Lay the records out for reading; `x direct` is how much faster than over the SYS link."""
    columns = [
        "case",
        "links",
        "MB",
        "predicted ms",
        "measured ms",
        "p10",
        "p90",
        "ratio",
        "x direct",
    ]
    direct = next(record for record in records if record.case == f"{SRC} -> {FAR}").summary.median
    rows = []
    for record in records:
        summary = record.summary
        links = " | ".join(
            " ".join(PUZZLE.link(*hop) for hop in itertools.pairwise(way))
            for way in record.params["ways"]
        )
        predicted = record.values["predicted"]
        times = [round(x * 1e3, 1) for x in (predicted, summary.median, summary.p10, summary.p90)]
        ratio = round(summary.median / predicted, 2)
        rows.append(
            [
                record.case,
                links,
                record.nbytes / 1e6,
                *times,
                ratio,
                round(direct / summary.median, 1),
            ]
        )
    return columns, rows
