"""What lesson 07 claims of its own run: each holds for the recording, not for any figures."""

from dataclasses import replace

from pytest import mark

from course.lessons.eighty_gpus import experiment
from course.runs import by_case
from labkit.measure import records
from tests.course.lessons.cells import Cells, Ledger

LEDGER = Ledger()
LESSON = Cells("07_eighty_gpus", gate=lambda key: None, reconcile=LEDGER.reconcile)
ONE, EACH, LEVELS, ALL = experiment.CASES
RECORDED = records.load(experiment.RECORDING)
RUNS = {c: by_case([r for r in RECORDED if r.params["cards"] == c]) for c in experiment.CARDS}


@mark.parametrize("yours", [EACH, LEVELS])
@mark.parametrize("cards", [2, 4])
def test_cards_that_carry_multiply_the_bandwidth_and_a_slower_run_does_not(cards, yours):
    slower = replace(RUNS[cards][yours], samples=[3 * [1.0]] * RUNS[cards][yours].world_size)
    false = {**RUNS, cards: {**RUNS[cards], yours: slower}}
    words = f"{cards} cards that all carry: {cards} times the bus bandwidth"
    true = {"runs": RUNS, "yours": yours}
    LESSON.hold("wires-reconciled", true=true, false={**true, "runs": false}, words=words)


def test_every_claim_of_the_lesson_is_tried():
    assert LESSON.untried(__file__) == []


def test_the_cards_carried_what_the_formulas_say():
    for cards, found in RUNS.items():
        n = 3 * cards
        for case, share in ((ONE, 1), (EACH, cards)):
            most = max(found[case].values["carried"])
            assert abs(most * share / (2 * (n - 1) / n) - 1) < 0.01
        if cards > 1:
            assert abs(max(found[LEVELS].values["carried"]) * cards / (4 / 3) - 1) < 0.01
