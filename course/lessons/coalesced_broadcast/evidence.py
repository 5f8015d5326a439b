"""The board of lesson 3: why does one bucket for everything take longer than buckets of 25 MB?

Each experiment takes something away from *both* sides, or from one, and asks how much of the
difference between them is left, or goes. Both sides send every byte and pack every byte.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from course.lessons.coalesced_broadcast import experiment as problem
from course.lessons.coalesced_broadcast import programs
from course.predictions.investigation import Board, Experiment, Investigation, outcome
from course.runs import by_case, in_world
from labkit.measure.records import Record

MUCH, LITTLE = 0.6, 0.4
"""Shares of the difference: from here on it is most of it; up to here it is not."""
HALF = 0.5
"""That of E. Who blames the pages expects some rest: Linux clears the same bytes, however large the
pages are. And who does not has to allow for them: in each world some of the difference is theirs.
"""
ALIKE = 1.15  # times the fastest way: where no way takes longer, they do not differ
LEAST = 0.1  # of the time of 'all in one': a smaller difference is none that could be explained


def medians(*records: Record) -> list[tuple[float, ...]]:
    """Return the records' medians of each round of broadcasts that took turns; seconds."""
    seconds = list(zip(*(record.seconds for record in records), strict=True))
    size = problem.in_a_round(records[0].params.get("asks", ""))
    starts = range(0, len(seconds) - size + 1, size)
    rounds = [seconds[start : start + size] for start in starts]
    return [tuple(map(median, zip(*part, strict=True))) for part in rounds]


def fastest(curve: Sequence[Record], ways: Mapping[str, Mapping] = programs.CURVE) -> list[str]:
    """Return the letter of the vote on the fastest bucket that each round of the curve supports.

    `ways` are those of the curve; a state that lies flat is no bucket.
    """
    packed = [record for record in curve if not ways[record.case].get("flat")]
    letters = []
    for seconds in medians(*packed):
        cap = ways[packed[seconds.index(min(seconds))].case]["cap"]
        alike = max(seconds) < ALIKE * min(seconds)
        letters.append("d" if alike else {0: "a", None: "c"}.get(cap, "b"))
    return letters


def by_cap(curve: Sequence[Record], ways: Mapping[str, Mapping]) -> dict[int | None, Record]:
    """Return the records of buckets by the bytes that a bucket may have; a flat state has none."""
    packed = [record for record in curve if not ways[record.case].get("flat")]
    return {ways[record.case]["cap"]: record for record in packed}


def gain(posted: Sequence[Record]) -> str:
    """Say how many times as fast as one by one the posted loop sends all in one."""
    singly, _, whole = (record.summary.median for record in posted[:3])
    return f"{singly / whole:.1f} times as fast, all in one on one machine"


def gains_in_words(posted: Sequence[Record]) -> str:
    """Say what the posted loop gains over one by one: all in one, and in buckets as merged."""
    singly, merged = (record.summary.median for record in posted[:2])
    return f"Yours: {gain(posted)}; in buckets of 10 MiB {singly / merged:.1f} times."


def times_as_long(first: Record, second: Record) -> str:
    """Say how many times as long as another a way takes: the rounds' median, least and most."""
    ratios = sorted(a / b for a, b in medians(first, second))
    return f"{median(ratios):.1f} times ({ratios[0]:.1f} to {ratios[-1]:.1f})"


def _differences(first: Record, second: Record) -> list[float]:
    """Return by how many ms a way takes longer than another, the least of all rounds first."""
    return sorted(1e3 * (a - b) for a, b in medians(first, second))


def _in_ms(differences: Sequence[float]) -> str:
    """Say the median, the least and the most."""
    return f"{median(differences):.0f} ms ({differences[0]:.0f} to {differences[-1]:.0f})"


def say_prices(many: Record, two: Record, kept: Record, new: Record) -> None:
    """Say what calls, packing and new memory cost, each alone.

    The ways are: 320 calls and 2 from a flat state, 2 calls packed into kept and into new memory.
    """
    calls, packing = _differences(many, two), _differences(kept, two)
    memory = _differences(new, kept)
    faults = new.values["faults"] - kept.values["faults"]
    each_call = 1e3 * median(calls) / 318
    flat = f"{1e3 * two.summary.median:.0f} ms"
    print(f"{two.tier}: as the reviewer asked, from a flat state: {flat}")
    print(f"320 calls instead of 2: {_in_ms(calls)}, {each_call:.0f} µs for each more")
    print(f"packing and unpacking into kept memory: {_in_ms(packing)}")
    line = f"new memory instead of kept: {_in_ms(memory)}"
    if faults >= 1:
        line += f", {1e3 * median(memory) / faults:.1f} µs for each of {faults:,.0f} faults"
    print(line)


MOST_OF_TWO_CPUS = 0.75  # of the threads' time: ranks that take longer had no second CPU


def twice_in_words(by_threads: float, by_ranks: float, *, others: float | None) -> str:
    """Say what the same Python took by two threads and by two ranks, in seconds, and what it shows.

    Ranks that gain nothing found no second CPU: that says nothing about Python's lock. `others` are
    the CPUs that other programs used meanwhile, where that is known.
    """
    times = f"by two threads {1e3 * by_threads:.0f} ms, by two ranks {1e3 * by_ranks:.0f} ms"
    if by_ranks <= MOST_OF_TWO_CPUS * by_threads:
        return f"{times}\nThe ranks needed {by_ranks / by_threads:.0%} of the threads' time."
    neighbours = "" if others is None else f" Other programs used {others:.1f} CPUs\nmeanwhile."
    return (
        f"{times}\n"
        "Your ranks gained little or nothing. That says nothing about the lock: the second rank "
        "found no\nfree CPU. Has your job only one? Or did busy neighbours use it?"
        f"{neighbours} Run this cell again when the machine is calm."
    )


class Prediction(NamedTuple):
    """What an experiment shows of the difference, in words and as a share, if a suspect is guilty.

    At `stands` and beyond, it came as predicted; at `fell` and beyond, it did not.
    """

    experiment: str
    suspects: str
    words: str
    stands: float = MUCH
    fell: float = LITTLE


PREDICTIONS = [
    Prediction("A", "ad", "between kept buffers, one at a time, most of the difference is left"),
    Prediction("A", "b", "where nothing overlaps, little of the difference is left", LITTLE, MUCH),
    Prediction("A", "c", "where no memory is new, little of the difference is left", LITTLE, MUCH),
    Prediction("B", "b", "without its overlap, 25 MB loses most of the difference"),
    Prediction("C", "c", "with its buffer kept, 'all in one' gains most of the difference"),
    Prediction("D", "a", "where nothing is packed, little of the difference is left", LITTLE, MUCH),
    Prediction("D", "d", "without any packing, most of the difference is left"),
    Prediction("E", "abd", "nothing but pages changed: most of the difference is left", MUCH, HALF),
    Prediction("E", "c", "with few page faults little of the difference is left", HALF, MUCH),
]


def hold(board: Board, records: Sequence[Record], pair: Iterable[str] = ()) -> None:
    """Hold each suspect that an experiment asks to its prediction, by the records of `ask`.

    `pair` has the names of its runs, where they are the learner's own; the first two are compared.
    Where one is missing, or Linux gave no huge pages, the board says nothing, and a line says why.
    """
    if not records:
        print("The board says nothing: no run was measured.")
        return
    name, by_name = records[0].params["asks"], by_case(records)
    cases = [*programs.GAP, *(pair or programs.EXPERIMENTS[name])][:4]
    measured = [case for case in cases if case in by_name]
    if len(measured) < 4:
        print(f"The board says nothing. {name} takes four runs; measured: {', '.join(measured)}.")
        return
    if name == "E" and not _fewer_faults(by_name[cases[0]], by_name[cases[2]]):
        print("The board says nothing: Linux gave no huge pages in these turns.")
        return
    gaps, changes, shares = [], [], []
    for whole, buckets, first, second in medians(*(by_name[case] for case in cases)):
        gaps.append(whole - buckets)
        changes.append(first - second)
        shares.append(changes[-1] / gaps[-1] if gaps[-1] > LEAST * whole else None)
    found = f"{1e3 * median(changes):+.0f} ms of {1e3 * median(gaps):.0f} ms"
    for prediction in PREDICTIONS:
        if prediction.experiment != name:
            continue
        limits = {"stands": prediction.stands, "fell": prediction.fell}
        side = "at least" if prediction.stands > prediction.fell else "at most"
        limit = f"{side} {prediction.stands:.0%}"
        came = [None if share is None else outcome(share, **limits) for share in shares]
        for suspect in prediction.suspects:
            predicts = f"{prediction.words}, {limit}"
            board.test(suspect, name, predicts, came, found=found, records=records)


def _fewer_faults(small: Record, huge: Record) -> bool:
    """Say whether a way made less than half of the page faults once it had asked for huge pages."""
    return huge.values["faults"] < 0.5 * small.values["faults"]


def hold_all(board: Board, records: Sequence[Record], world: str) -> None:
    """Hold all suspects to what was recorded of a world."""
    for name in programs.EXPERIMENTS:
        of_this = [r for r in in_world(records, world) if r.params.get("asks") == name]
        if not of_this:
            where = f"the world of {world}" if world else "the lesson's own world"
            command = f"python -m course record {problem.NAME} --only {world or 'own'}"
            raise LookupError(f"of experiment {name} nothing is recorded in {where}: `{command}`")
        hold(board, of_this)


INVESTIGATION = Investigation(
    key="03.why",
    question="Why does 'all in one' take longer than buckets of 25 MB?",
    suspects={"a": "packing", "b": "overlap", "c": "new memory", "d": "long messages"},
    experiments={
        "A": Experiment("kept buffers, one at a time", asks="abcd"),
        "B": Experiment("two on their way, or one", asks="b"),
        "C": Experiment("new buffers, or kept", asks="c"),
        "D": Experiment("nothing to pack", asks="ad"),
        "E": Experiment("huge pages", asks="abcd"),
    },
    tests=hold_all,
    own="c",
    worlds="abd",
)
