"""The board of lesson 03 follows the figures; noise decides nothing."""

import dataclasses

from course.lessons.coalesced_broadcast import evidence, programs
from course.lessons.coalesced_broadcast import experiment as problem
from labkit.measure.records import load

RECORDED = load(problem.RECORDING, recorded=True)


def of(experiment):
    """The records of an experiment in the lesson's own world."""
    return [r for r in RECORDED if problem.of_experiment(r) == {"asks": experiment}]


def held(made, case="", samples=()):
    """The board to which records were held, one of them with other samples."""
    board = evidence.INVESTIGATION.empty()
    changed = [dataclasses.replace(r, samples=samples) if r.case == case else r for r in made]
    evidence.hold(board, changed)
    return board


def test_one_experiment_leaves_two():
    board = held(of("A"))
    assert board.left == ["b", "c"]
    assert "Next: B" in board.verdict()


def test_rounds_that_disagree_decide_nothing():
    made = of("C")
    whole, kept = (next(r for r in made if r.case == case) for case in programs.EXPERIMENTS["C"])
    pairs = zip(whole.samples, kept.samples, strict=True)
    mixed = [[*times[:3], *other[3:]] for times, other in pairs]
    assert held(made, kept.case, mixed).state("c") == "not judged"


def test_without_a_difference_there_is_nothing_to_explain():
    made = of("A")
    board = held(made, "all in one", next(r for r in made if r.case == "25 MB").samples)
    assert set(board.left) == set(board.suspects)
    assert all(board.state(letter) == "not judged" for letter in board.suspects)


def test_each_pair_takes_one_thing_away():
    """From one side, or from both alike: then they differ in their cap alone, as the gap does."""
    for name, pair in programs.EXPERIMENTS.items():
        first, second = ({"in_flight": 2} | way for way in pair.values())
        differ = {key for key in {*first, *second} if first.get(key) != second.get(key)}
        taken = {"B": {"in_flight"}, "C": {"kept", "in_flight"}}  # C has a bucket a dtype: two
        assert differ == taken.get(name, {"cap"})


def test_the_prices_are_those_of_the_reply():
    apart = [r for r in RECORDED if r.case in programs.CALLS and "asks" not in r.params]
    many, two = (1e3 * r.summary.median for r in apart)
    assert [round(many), round(two), round((many - two) / 318, 2)] == [131, 50, 0.26]
    new, kept = (1e3 * r.summary.median for r in of("C") if r.case in programs.EXPERIMENTS["C"])
    assert (round(kept - two), round(new - kept)) == (42, 44)
