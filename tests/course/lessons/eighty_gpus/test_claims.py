"""What lesson 07 claims of its own run holds for its recording, not for any figures; pictures."""

import itertools
from dataclasses import replace

from pytest import mark

from course import catalogue
from course.lessons.eighty_gpus import experiment, pictures, programs
from course.runs import by_case
from labkit.show import alt_text
from tests.course.lessons.cells import Cells

LESSON = Cells("07_eighty_gpus")
ONE, EACH, LEVELS, ALL = experiment.CASES
RECORDED = catalogue.experiment(experiment.NAME).recorded()
RUNS = {c: by_case([r for r in RECORDED if r.params["cards"] == c]) for c in experiment.CARDS}


@mark.parametrize("way", [EACH, LEVELS])
@mark.parametrize("cards", [2, 4])
def test_cards_that_carry_multiply_the_bandwidth_and_a_slower_run_does_not(cards, way):
    record = RUNS[cards][way]
    slower = replace(record, samples=[3 * [2.0]] * record.world_size)
    words = f"{cards} cards that all carry: {cards} times the bus bandwidth"
    true, false = ({"runs": {"one": RUNS[1][ONE]}, "ours": {"x": r}} for r in (record, slower))
    LESSON.hold("wires-reconciled", true=true, false=false, words=words)


def test_arms_are_found_by_their_way_and_cards_whatever_they_are_called(monkeypatch):
    measured = []

    def records(place, measure, *, cases, **kept):
        measured.append((place.ranks_per_host, cases))
        return [RUNS[place.ranks_per_host][case] for case in cases]

    monkeypatch.setattr(experiment.Place, "records", records)
    chosen = {"mine": (4, EACH), "two cards": (2, ONE), "added": (4, ONE)}
    arms = {name: {"cards": cards, "way": way} for name, (cards, way) in chosen.items()}
    by_arm = experiment.measure(arms)
    assert [*by_arm] == [*arms] and by_arm["added"] is RUNS[4][ONE]
    assert measured == [(4, [EACH, ONE]), (2, [ONE])]
    assert len(experiment.table(by_arm).rows) == 3


def test_the_cards_carried_what_the_formulas_say():
    for cards, ways in RUNS.items():
        n = 3 * cards
        part = ways[EACH].nbytes / programs.METERED
        headers = 2 * (n - 1) * 144 / part  # of gloo's, in each message: much where these are small
        for case, share, more in ((ONE, 1, 0), (EACH, cards, headers)):
            most = max(ways[case].values["carried"]) - more
            assert abs(most * share / (2 * (n - 1) / n) - 1) < 0.01
        if cards > 1:
            assert abs(max(ways[LEVELS].values["carried"]) * cards / (4 / 3) - 1) < 0.01


@mark.parametrize(("servers", "cards"), [(3, 2), (2, 4), (5, 3)])
def test_each_ring_leaves_every_server_by_its_own_card(servers, cards):
    for ring in range(cards):
        order = programs.ring_order(ring, servers=servers, cards=cards)
        assert sorted(order) == list(range(servers * cards))
        arrows = itertools.pairwise([*order, order[0]])
        leaving = [src for src, dst in arrows if src // cards != dst // cards]
        assert [src % cards for src in leaving] == [ring] * servers


def test_pictures_tell_of_each_way_and_of_slow_and_failed_pairs():
    drawn = alt_text.text_of(pictures.draw(RECORDED).axes[0])
    assert all(f"{way}: " in drawn for way in (ONE, EACH, LEVELS, ALL))
    ax = pictures.pairs(range(1, 18), collective="alltoall", gpus_per_host=8)
    assert "67 pairs below half of the best, 5 failed" in alt_text.text_of(ax)
