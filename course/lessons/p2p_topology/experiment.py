"""Lesson 04: three copies of the same bytes, three speeds; and the way around the slow link.

The question (GPU Puzzlers 2023, puzzler 1): GPU 0 copies 400 MB to GPUs 1, 2 and 4. Why do the
three copies take 4.3, 53.3 and 8.5 ms? Here the server's links are rebuilt as links between network
namespaces, four thousand times slower, and carry a 200th of the bytes.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from course import runs
from course.lessons.p2p_topology import flows, programs
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
SCALE = 1 / 4000
NBYTES, CHUNK = 2_000_000, 62_500
SRC, DSTS, FAR = 0, (1, 2, 4), 2
CONTEND = [[0, 5], [5, 2], [0, 5, 2]]
RELAYS = {
    "directly": {"way": [0, 2]},
    "over 5, in one piece": {"way": [0, 5, 2]},
    "over 5, in chunks": {"way": [0, 5, 2], "chunk": CHUNK},
    "over 5, two slots": {"way": [0, 5, 2], "chunk": CHUNK, "slots": 2},
}
LONG = {
    "four hops, in one piece": {"way": [0, 4, 3, 7, 2]},
    "four hops, two slots": {"way": [0, 4, 3, 7, 2], "chunk": CHUNK, "slots": 2},
}
SWEPT = [[0, 4, 3]]
SIZES = (2_000_000, 500_000, 125_000, 32_000, 8_000, 2_000)
COSTS = {count: {"ways": [[0, 4]], "chunk": NBYTES // count} for count in (1, 1000)}
PATHS = flows.maximum_flow(PUZZLE, SRC, FAR)
WAYS = {
    "directly": {"ways": [[0, 2]], "chunk": CHUNK},
    "one relay": {"ways": [[0, 5, 2]], "chunk": CHUNK},
    "two relays": {"ways": [[0, 5, 2], [0, 7, 2]], "chunk": CHUNK},
    "every path": {
        "ways": [list(path.gpus) for path in PATHS],
        "shares": [path.rate for path in PATHS],
        "chunk": CHUNK // 2,
    },
}
once = functools.cache(print)
"""Print a text the first time only: why nothing runs here need not be said for every case."""


def links(scale: float = SCALE) -> Fabric:
    """Return the puzzle's links between eight hosts, slowed down by `scale`, not yet up."""
    return Fabric([[8 * scale * rate for rate in row] for row in PUZZLE.bandwidths()])


def rate(src: int, dst: int) -> float:
    """Return the bytes per second that a tensor gets from one of these hosts to another, alone."""
    return links().payload_rate(src, dst)


def named(ways: Sequence[Sequence[int]]) -> str:
    """Name ways as records do: ``"0 -> 5 -> 2 | 0 -> 7 -> 2"``."""
    return " | ".join(" -> ".join(map(str, way)) for way in ways)


def on_links(
    cases: dict[str, dict[str, Any]],
    program: Callable[..., list[list[float]]],
    *args: Any,
    say: runs.Say = once,
) -> list[Record]:
    """Run a program on the eight hosts; where none can be made, say so and take the recorded run.

    Args:
        cases: Name of each case -> fields of its record. `params["ways"][0][-1]` is the rank whose
            samples count. A case that was never recorded is what the model says, and stamped so.
        program: Returns its samples in seconds, a list for each case.
        *args: Its arguments.
        say: Told why nothing runs here.
    """

    def measure(here: Place) -> list[Record]:
        ranks = here.launch(program, *args)
        return [
            here.record(
                case, [ranks[fields["params"]["ways"][0][-1]][n]], experiment=NAME, **fields
            )
            for n, (case, fields) in enumerate(cases.items())
        ]

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


def expected(part: str, ways: Sequence[Sequence[int]], seconds: float, **params: Any) -> dict:
    """Return the fields of a record: what is done, and how long it takes by the model."""
    return {
        "nbytes": NBYTES,
        "params": {"part": part, "ways": ways, **params},
        "predicted": seconds,
    }


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
    for name, arm in arms.items():
        ways, chunk = arm.get("ways") or [arm["way"]], int(arm.get("chunk") or NBYTES)
        for way in ways:
            if len(way) < 2 or len({*way}) < len(way):
                raise ValueError(f"arm {name!r}: a way has two GPUs at least, and each once: {way}")
        if chunk < 4 or arm.get("slots") not in (None, 2):
            raise ValueError(f"arm {name!r}: a chunk has 4 bytes at least; slots are 2 or none")
        seconds = flows.ways_time(
            rate, ways, nbytes=NBYTES, chunk=chunk, shares=arm.get("shares"), alpha=alpha
        )
        part, slots = "ways" if "ways" in arm else "way", arm.get("slots")
        case = f"{part} {named(ways)} by {chunk}{' through two slots' if slots else ''}"
        cases[case] = expected(part, ways, seconds, chunk=chunk)
        different[case] = {**arm, "chunk": chunk} if "chunk" in arm else arm
        cases_of[name] = case
    args = list(different.values()), NBYTES, rounds
    made = runs.by_case(on_links(cases, programs.by_turns, program, *args, **options))
    return {name: made[case] for name, case in cases_of.items()}


def as_posted(program: Callable, numel: int = 10**7, *, place: Place | None = None) -> list[Record]:
    """Run the puzzle's program in one process; return a record of each of its three copies."""
    here = place or Place(hosts=1)

    def measure() -> list[Record]:
        copies = here.launch(program, numel)[0]
        return [
            here.record(
                f"copy to GPU {gpu}",
                [[milliseconds / 1e3 for milliseconds in copy]],
                experiment=NAME,
                nbytes=4 * numel,
                params={"part": "posted"},
            )
            for gpu, copy in zip(DSTS, copies, strict=True)
        ]

    return runs.watched(measure)


def time_copies(
    program: Callable[..., None] = programs.three_copies, *, rounds: int = 2, **options: Any
) -> list[Record]:
    """Time the puzzle's three simultaneous copies; one record for each."""
    cases = {
        named([[SRC, dst]]): expected(
            "copies", [[SRC, dst]], NBYTES / rate(SRC, dst), link=PUZZLE.link(SRC, dst)
        )
        for dst in DSTS
    }
    return on_links(cases, _three, program, rounds, **options)


def _three(program: Callable[..., None], rounds: int) -> list[list[float]]:
    """Run on every rank; its samples stand for each of the three copies."""
    return 3 * programs.by_turns(program, [{"src": SRC, "dsts": DSTS}], NBYTES, rounds)


def chunk_cost(whole: Record, cut: Record) -> float:
    """Return alpha, what a chunk costs beyond its bytes, in seconds: the difference, shared out."""
    chunks = cut.nbytes / cut.params["chunk"]
    return max(0.0, cut.summary.median - whole.summary.median) / (chunks - 1)


def time_at_once(*, rounds: int = 3, **options: Any) -> list[Record]:
    """Time a relayed copy and two direct ones that share its links; one record for each."""
    predicted = flows.finish_times(rate, CONTEND, nbytes=NBYTES)
    cases = {
        f"together: {named([way])}": expected("together", [way], seconds, chunk=CHUNK)
        for way, seconds in zip(CONTEND, predicted, strict=True)
    }
    return on_links(cases, programs.at_once, CONTEND, NBYTES, CHUNK, rounds, **options)


def run(*, quick: bool = False, progress: runs.Say = runs.quiet) -> list[Record]:
    """Measure everything that lesson 04 shows, on a fabric with the puzzle's links."""
    options: dict[str, Any] = {"rounds": 2 if quick else 5, "say": functools.cache(progress)}
    progress("three copies at once")
    measured = time_copies(**options)
    progress("relays")
    other = {relay: {"way": [SRC, relay, FAR], "chunk": CHUNK} for relay in (1, 3, 4, 6, 7)}
    measured += compare(programs.pass_on, RELAYS | LONG | other, **options).values()
    progress("what a chunk costs, its size, and every path")
    costs = list(compare(programs.carry, COSTS, **options).values())
    sweep = {size: {"ways": SWEPT, "chunk": size} for size in SIZES}
    both = compare(programs.carry, sweep | WAYS, alpha=chunk_cost(*costs), **options)
    measured += costs + list(both.values())
    progress("three transfers that share links")
    return measured + time_at_once(**options)
