"""Lesson 04: three copies of the same bytes, three speeds; and the way around the slow link.

The question (GPU Puzzlers 2023, puzzler 1): GPU 0 copies 400 MB to GPUs 1, 2 and 4. Why do the
three copies take 4.3, 53.3 and 8.5 ms? Here the server's links are rebuilt as links between network
namespaces, four thousand times slower, and carry a 200th of the bytes.
"""

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from course import catalogue, runs
from course.lessons.p2p_topology import flows, programs
from course.lessons.p2p_topology.topology import PUZZLE, Ways
from course.place import Place
from labkit.fabric.errors import FabricUnavailable
from labkit.fabric.fabric import Fabric
from labkit.measure.records import Provenance, Record, Tier

NAME = "p2p-topology"
SCALE = 1 / 4000
NBYTES, CHUNK = 2_000_000, 62_500
SRC, DSTS, FAR = 0, (1, 2, 4), 2
CONTEND = [[0, 5], [5, 2], [0, 5, 2]]
RELAYS = {
    "directly": {"way": [0, 2]},
    "over 5, in one piece": {"way": [0, 5, 2]},
    "over 5, in chunks": {"way": [0, 5, 2], "chunk": CHUNK},
    "over 5, two slots": {"way": [0, 5, 2], "chunk": CHUNK, "slots": 2},
    "four hops, in one piece": {"way": [0, 4, 3, 7, 2]},
    "four hops, two slots": {"way": [0, 4, 3, 7, 2], "chunk": CHUNK, "slots": 2},
}
SWEPT = [[0, 4, 3]]
SIZES = (2_000_000, 500_000, 125_000, 32_000, 8_000, 2_000)
COSTS = {count: {"ways": [[0, 4]], "chunk": NBYTES // count} for count in (1, 1000)}
once = functools.cache(print)
"""Print a text the first time only: why nothing runs here need not be said for every case."""


def all_ways() -> dict[str, dict[str, Any]]:
    """Return the arms of `carry` from GPU 0 to GPU 2: directly, over relays, over every path."""
    paths = flows.maximum_flow(PUZZLE, SRC, FAR)
    every = {"ways": [list(path.gpus) for path in paths], "shares": [path.rate for path in paths]}
    return {
        "directly": {"ways": [[0, 2]], "chunk": CHUNK},
        "one relay": {"ways": [[0, 5, 2]], "chunk": CHUNK},
        "two relays": {"ways": [[0, 5, 2], [0, 7, 2]], "chunk": CHUNK},
        "every path": every | {"chunk": CHUNK // 2},
    }


def links(scale: float = SCALE, carried: flows.Rate = PUZZLE.bandwidth) -> Fabric:
    """Return the puzzle's links, or others, slowed down by `scale`: eight hosts, not yet up."""
    rates = [PUZZLE.gpus * [0.0] for _ in range(PUZZLE.gpus)]
    for src, dst in itertools.permutations(range(PUZZLE.gpus), 2):
        rates[src][dst] = 8 * scale * carried(src, dst)
    return Fabric(rates)


def rate(src: int, dst: int) -> float:
    """Return the bytes per second that a tensor gets from one of these hosts to another, alone."""
    return links().payload_rate(src, dst)


def named(ways: Ways) -> str:
    """Name ways as records do: ``"0 -> 5 -> 2 | 0 -> 7 -> 2"``."""
    return " | ".join(" -> ".join(map(str, way)) for way in ways)


def on_links(
    cases: dict[str, dict[str, Any]],
    program: Callable[..., list[list[float]]],
    *args: Any,
    say: runs.Say = once,
) -> list[Record]:
    """Run a program on the eight hosts; where none can be made, say so and take the recorded run.

    The program returns its samples in seconds, a list for each of the `cases`: name -> fields of
    its record. `params["ways"][0][-1]` is the rank whose samples count. A case that was never
    recorded is what the model says, and stamped so.
    """

    def measure(here: Place) -> list[Record]:
        ranks, records = here.launch(program, *args), []
        for number, (case, fields) in enumerate(cases.items()):
            samples = ranks[fields["params"]["ways"][0][-1]][number]
            records.append(here.record(case, [samples], experiment=NAME, **fields))
        return records

    try:
        return Place(hosts=8, rate="the puzzle's", fabric=links()).watched(measure)
    except FabricUnavailable as reason:
        say(f"{reason}\nShown instead: what another machine measured (RECORDED).")
    kept = runs.by_case(catalogue.experiment(NAME).recorded())
    return [kept.get(case) or modelled(case, fields) for case, fields in cases.items()]


def modelled(case: str, fields: dict[str, Any]) -> Record:
    """Return a record of what the model predicts, for a case that nobody has measured."""
    origin = {"tier": Tier.MODELLED, "provenance": Provenance.here()}
    return Record(NAME, case, samples=[[fields["predicted"]]], **fields, **origin)


def expected(part: str, ways: Ways, seconds: float, **params: Any) -> dict:
    """Return the fields of a record: what is done, and how long it takes by the model."""
    params = {"part": part, "ways": ways, **params}
    return {"nbytes": NBYTES, "params": params, "predicted": seconds}


def compare(
    program: Callable[..., None],
    arms: Mapping[Any, Mapping[str, Any]],
    *,
    rounds: int = 3,
    alpha: float = 0.0,
    **options: Any,
) -> dict[Any, Record]:
    """Run ``program(tensor, **arm)`` on the links for each arm, in turn; return a record of each.

        compare(pass_on, {"directly": {"way": [0, 2]}, "over 5": {"way": [0, 5, 2]}})

    An arm has a `way` or several `ways`, and what else the program takes. A record's case says
    what was done, whatever the arm is called; `predicted` is the model's time, with `alpha` seconds
    for each chunk.
    """
    cases, different, cases_of = {}, {}, {}
    known = [*inspect.signature(program).parameters][1:]  # without the tensor
    for name, arm in arms.items():
        if strange := [key for key in arm if key not in known]:
            raise ValueError(f"arm {name!r}: nobody reads {strange[0]!r}, but {', '.join(known)}")
        ways, chunk = arm.get("ways") or [arm["way"]], int(arm.get("chunk") or NBYTES)
        part, slots = "ways" if "ways" in arm else "way", arm.get("slots")
        for way in ways:
            if len(way) < 2 or len({*way}) < len(way):
                raise ValueError(f"arm {name!r}: a way has two GPUs at least, and each once: {way}")
        if chunk < 4 or slots not in (None, 2):
            raise ValueError(f"arm {name!r}: a chunk has 4 bytes at least; slots are 2 or none")
        what = {"nbytes": NBYTES, "shares": arm.get("shares"), "chunk": chunk, "alpha": alpha}
        seconds = flows.ways_time(rate, ways, **what)
        case = f"{part} {named(ways)} by {chunk}{' through two slots' if slots else ''}"
        cases[case] = expected(part, ways, seconds, chunk=chunk)
        different[case] = {**arm, "chunk": chunk} if "chunk" in arm else arm
        cases_of[name] = case
    args = list(different.values()), NBYTES, rounds
    records = runs.by_case(on_links(cases, programs.by_turns, program, *args, **options))
    return {name: records[case] for name, case in cases_of.items()}


def as_posted(program: Callable, numel: int = 10**7, *, place: Place | None = None) -> list[Record]:
    """Run the puzzle's program in one process; return a record of each of its three copies."""
    fields = {"experiment": NAME, "nbytes": 4 * numel, "params": {"part": "posted"}}

    def measure(here: Place) -> list[Record]:
        gpus = programs.receivers() if here.backend == "nccl" else DSTS
        copies = zip(gpus, here.launch(program, numel)[0], strict=True)
        seconds = [(f"0 -> {gpu}", [ms / 1e3 for ms in copy]) for gpu, copy in copies]
        return [here.record(case, [samples], **fields) for case, samples in seconds]

    return (place or Place(hosts=1)).watched(measure)


def time_pairs(place: Place, nbytes: int, rounds: int = 5) -> list[Record]:
    """Copy between every two GPUs; by gloo, send between every two ranks. A record for each pair.

    No process reaches another host's GPUs: the copies of each host are a row of samples.
    """
    program = programs.copy_each_pair if place.backend == "nccl" else programs.send_each_pair
    ranks = [rank for rank in place.launch(program, nbytes, rounds, timeout=180) if rank]
    fields = {"experiment": NAME, "nbytes": nbytes, "params": {"part": "pairs"}}
    return [place.record(pair, [rank[pair] for rank in ranks], **fields) for pair in ranks[0]]


def time_copies(
    program: Callable[..., None] = programs.three_copies, *, rounds: int = 2, **options: Any
) -> list[Record]:
    """Time the puzzle's three simultaneous copies; one record for each."""
    cases = {}
    for dst in DSTS:
        seconds, link = NBYTES / rate(SRC, dst), PUZZLE.link(SRC, dst)
        cases[f"{SRC} -> {dst}"] = expected("copies", [[SRC, dst]], seconds, link=link)

    def three() -> list[list[float]]:  # a rank's samples stand for each of the copies
        return 3 * programs.by_turns(program, [{"src": SRC, "dsts": DSTS}], NBYTES, rounds)

    return on_links(cases, three, **options)


def chunk_cost(whole: Record, cut: Record) -> float:
    """Return alpha, what a chunk costs beyond its bytes, in seconds: the difference, shared out."""
    chunks = cut.nbytes / cut.params["chunk"]
    return max(0.0, cut.summary.median - whole.summary.median) / (chunks - 1)


def time_at_once(*, rounds: int = 3, **options: Any) -> list[Record]:
    """Time a relayed copy and two direct ones that share its links; one record for each."""
    cases = {}
    times = flows.finish_times(rate, CONTEND, nbytes=[NBYTES] * len(CONTEND))
    for way, seconds in zip(CONTEND, times, strict=True):
        cases[f"together: {named([way])}"] = expected("together", [way], seconds, chunk=CHUNK)
    return on_links(cases, programs.at_once, CONTEND, NBYTES, CHUNK, rounds, **options)


def run(*, quick: bool = False, progress: runs.Say = runs.quiet) -> list[Record]:
    """Measure everything that lesson 04 shows, on a fabric with the puzzle's links."""
    options: dict[str, Any] = {"rounds": 2 if quick else 5, "say": functools.cache(progress)}
    progress("three copies at once")
    measured = time_copies(**options)
    progress("relays")
    other = {relay: {"way": [SRC, relay, FAR], "chunk": CHUNK} for relay in (1, 3, 4, 6, 7)}
    measured += compare(programs.pass_on, RELAYS | other, **options).values()
    progress("what a chunk costs, its size, and every path")
    costs = list(compare(programs.carry, COSTS, **options).values())
    sweep = {size: {"ways": SWEPT, "chunk": size} for size in SIZES}
    both = compare(programs.carry, sweep | all_ways(), alpha=chunk_cost(*costs), **options)
    measured += costs + list(both.values())
    progress("three transfers that share links")
    return measured + time_at_once(**options)
