"""The board of lesson 03 follows the figures; noise decides nothing."""

import dataclasses

import pytest

from course.lessons.coalesced_broadcast import evidence, programs
from course.lessons.coalesced_broadcast import experiment as problem
from labkit.measure.records import load

RECORDED = load(problem.RECORDING, recorded=True)


def of(experiment, world=None):
    """The records of an experiment in a world."""
    asked = [r for r in RECORDED if r.params.get("asks") == experiment]
    return [r for r in asked if r.params.get("world") == world]


def test_one_experiment_leaves_two():
    board = evidence.INVESTIGATION.empty()
    evidence.hold(board, of("A"))
    assert board.left == ["b", "c"]
    assert "Next: B" in board.verdict()


def test_rounds_that_disagree_decide_nothing():
    made = of("C")
    kept = next(r for r in made if r.case == "all in one, kept")
    whole = next(r for r in made if r.case == "all in one")
    mixed = [
        tuple(times[: problem.IN_A_ROUND]) + tuple(other[problem.IN_A_ROUND :])
        for times, other in zip(whole.samples, kept.samples, strict=True)
    ]
    board = evidence.INVESTIGATION.empty()
    evidence.hold(
        board,
        [r for r in made if r is not kept]
        + [dataclasses.replace(kept, samples=[list(one) for one in mixed])],
    )
    assert board.state("c") == "not judged"


def test_without_a_difference_there_is_nothing_to_explain():
    made = of("A")
    alike = next(r for r in made if r.case == "25 MB").samples
    board = evidence.INVESTIGATION.empty()
    evidence.hold(
        board,
        [dataclasses.replace(r, samples=alike) if r.case == "all in one" else r for r in made],
    )
    assert set(board.left) == set(evidence.INVESTIGATION.suspects)
    assert all(board.state(letter) == "not judged" for letter in evidence.INVESTIGATION.suspects)


def test_each_pair_takes_one_thing_away():
    """From one side, or from both alike: then they differ in their cap alone, as the gap does."""
    for name, pair in programs.EXPERIMENTS.items():
        first, second = ({"in_flight": 2} | way for way in pair.values())
        differ = {key for key in {*first, *second} if first.get(key) != second.get(key)}
        assert differ == {{"B": "in_flight", "C": "kept"}.get(name, "cap")} | (
            {"in_flight"} if name == "C" else set()  # two buckets: one for each dtype
        )


def test_the_prices_are_those_of_the_reply():
    apart = {
        r.case: 1e3 * r.summary.median
        for r in RECORDED
        if "asks" not in r.params and r.params["rate"] == "loopback"
    }
    many, two = (apart[name] for name in programs.CALLS)
    assert [round(many), round(two), round((many - two) / 318, 2)] == [131, 50, 0.26]
    new, kept = (1e3 * r.summary.median for r in of("C") if r.case in programs.EXPERIMENTS["C"])
    assert (round(kept - two), round(new - kept)) == (42, 44)


@pytest.mark.slow
def test_what_is_watched_adds_up():
    from labkit import launch

    ways = {name: programs.CURVE[name] for name in ("25 MB", "all in one")}
    ranks = launch(programs.watch, programs.broadcast, ways, 1, world_size=2)
    for rank in [once for seen in ranks for (once,) in seen.values()]:
        kinds = [what for what, *_ in rank]
        assert len({kinds.count(what) for what in kinds}) == 1, "each bucket once"
        ends = {(what, number): end for what, number, _, end in rank}
        starts = {(what, number): begin for what, number, begin, _ in rank}
        for number in range(len(rank) // 4):
            assert ends["packing", number] <= starts["on its way", number]
            assert ends["on its way", number] <= starts["unpacking", number]
