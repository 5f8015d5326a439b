"""What lesson 07 claims of its own run: each holds for the recording, not for any figures."""

from dataclasses import replace

from pytest import mark, raises

from course import checking
from course.lessons.eighty_gpus import experiment
from course.runs import by_case
from labkit.measure import records
from tests.course.lessons.cells import Cells, Ledger

LESSON = Cells("07_eighty_gpus", ledger=Ledger(), checking=checking, experiment=experiment)
ONE, EACH, LEVELS, ALL = experiment.CASES
RECORDED = records.load(experiment.RECORDING)
TWO, FOUR = (by_case([r for r in RECORDED if r.params["cards"] == cards]) for cards in (2, 4))
NAMES = {"ONE": ONE, "EACH": EACH, "LEVELS": LEVELS, "ALL": ALL, "gains": {2: 2.0, 4: 4.0}}


def slower(found, case, factor):
    """The same run, one case of it slower."""
    samples = [[factor * t for t in ranks] for ranks in found[case].samples]
    return {**found, case: replace(found[case], samples=samples)}


def carrying(found, case, factor):
    """The same run, its cards carrying more in one case."""
    carried = [factor * units for units in found[case].values["carried"]]
    values = {**found[case].values, "carried": carried}
    return {**found, case: replace(found[case], values=values)}


CLAIMS = [
    ("run-check", {"four": slower(FOUR, EACH, 1.3)}, "4 cards give 4 times the bus bandwidth"),
    ("run-check", {"two": slower(TWO, EACH, 0.8)}, "2 cards give 2 times the bus bandwidth"),
    ("alltoall-here", {"four": slower(FOUR, ALL, 0.5)}, "do not halve all_to_all"),
]


@mark.parametrize(("name", "false", "said"), CLAIMS, ids=lambda part: str(part)[:40])
def test_a_claim_holds_only_for_figures_that_bear_it_out(name, false, said):
    true = {"two": TWO, "four": FOUR, **NAMES}
    LESSON.hold(name, true=true, false={**true, **false}, said=said)


@mark.parametrize(("name", "case"), [("run-check", EACH), ("levels-check", LEVELS)])
def test_what_cards_carry_is_asserted(name, case):
    true = {"two": TWO, "four": FOUR, **NAMES}
    LESSON.run(name, **true)
    with raises(AssertionError):
        LESSON.run(name, **true | {"four": carrying(FOUR, case, 1.2)})


def test_every_claim_of_the_lesson_is_tried():
    assert {*LESSON.claiming()} == {name for name, *_ in CLAIMS}
