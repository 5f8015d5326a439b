"""The board of lesson 05: what each suspect predicts of its experiment, and what a run says of it.

`idle` is what rank 1 stands idle in a step, between its first task and its last.
"""

from collections.abc import Sequence
from statistics import median

from course.lessons.pipeline_p2p import experiment
from course.lessons.pipeline_p2p.schedules import ideal_bubble
from course.predictions.investigation import Board, Experiment, Investigation, outcomes
from course.runs import by_case
from labkit.measure.records import Record


def _each(record: Record, what: str) -> list:
    return [each[what] for each in record.values["rounds"]]


def bubble(on: Board, queued: Record) -> None:
    """A: every pipeline's bubble is as large as the formula says."""
    stages, micro_batches = queued.params["stages"], queued.params["micro_batches"]
    ideal = ideal_bubble(stages=stages, micro_batches=micro_batches)
    shares = [share / ideal for share in _each(queued, "bubble")]
    found = f"idle {100 * ideal * median(shares):.0f} %, by the formula {100 * ideal:.0f} %"
    rounds = outcomes(shares, stands=1.25, fell=1.5)
    predicts = "the ranks idle at most a quarter more than the formula says"
    on.test("a", "A", predicts, rounds, found=found, records=[queued])


def links(on: Board, slow: Record, fast: Record) -> None:
    """B: faster links move earlier messages sooner."""
    pairs = zip(_each(slow, "idle"), _each(fast, "idle"), strict=True)
    kept = [left / had for had, left in pairs]  # round by round
    before, after = (1e3 * record.params["leg"] for record in (slow, fast))
    took = f"a message takes {before:.1f}, then {after:.1f} ms"
    frame = " and ".join(f"{1e3 * median(_each(record, 'frame')):.0f}" for record in (slow, fast))
    found = f"{took}; {median(kept):.0%} of rank 1's idle time stays (the frame: {frame} ms)"
    rounds = outcomes(kept, stands=0.4, fell=0.55)
    predicts = "on links four times as fast at most 40 % of rank 1's idle time stays"
    on.test("b", "B", predicts, rounds, found=found, records=[slow, fast])


def stages(on: Board, queued: Record) -> None:
    """C: a rank that sends late because it is slow takes longer than the others."""
    took = _each(queued, "forward")
    ratios = [first / max(others) for first, *others in took]
    found = f"rank 0 takes {median(ratios):.2f} times as long as the others"
    rounds = outcomes(ratios, stands=1.5, fell=1.2)
    predicts = "a forward pass on rank 0 takes one and a half times as long as elsewhere, or more"
    on.test("c", "C", predicts, rounds, found=found, records=[queued])


def longer_task(on: Board, usual: Record, longer: Record) -> None:
    """D: who waits for a task waits longer when the task takes longer."""
    pairs = zip(_each(usual, "frame"), _each(longer, "frame"), strict=True)
    grown = [(after - before) / longer.params["longer_b0"] for before, after in pairs]
    before, after = (1e3 * median(_each(record, "frame")) for record in (usual, longer))
    rounds = outcomes(grown, stands=0.8, fell=0.4)
    predicts = "when B0 takes 50 ms longer, the frame grows by 40 ms or more"
    found = f"the frame lasts {before:.0f} ms, then {after:.0f}"
    on.test("d", "D", predicts, rounds, found=found, records=[usual, longer])


def hold(board: Board, base: Record, fast: Record, longer: Record) -> None:
    """Hold all suspects to a world's step, on faster links, and with a longer B0."""
    bubble(board, base)
    links(board, base, fast)
    stages(board, base)
    longer_task(board, base, longer)


def hold_all(board: Board, records: Sequence[Record], world: str) -> None:
    """Hold all suspects to what was recorded of a world; d is guilty in the lesson's own.

    A world is three cases here. One record serves several worlds, so none says of which it is.
    """
    runs = by_case(records)
    hold(board, *(runs[str(case)] for case in experiment.WORLDS[world or "d"]))


def left_by_puts(queued: Record, put: Record) -> set[str]:
    """Return the answers to 05.put that the rounds give: a, all of the frame stays; b; c, none."""
    pairs = zip(_each(queued, "frame"), _each(put, "frame"), strict=True)
    return {
        "c" if after < 0.2 * before else "a" if after > 0.8 * before else "b"
        for before, after in pairs
    }


INVESTIGATION = Investigation(
    key="05.cause",
    question="Why does rank 1 stand idle?",
    suspects={
        "a": "the bubble of every pipeline",
        "b": "slow links",
        "c": "a slow task of rank 0",
        "d": "a backward pass on rank 2",
    },
    experiments={
        "A": Experiment("the bubble by the formula", asks="a"),
        "B": Experiment("links four times as fast", asks="b"),
        "C": Experiment("how long each rank computes", asks="c"),
        "D": Experiment("B0 on rank 2 takes 50 ms longer", asks="d"),
    },
    tests=hold_all,
    own="d",
    worlds="abcd",
)
