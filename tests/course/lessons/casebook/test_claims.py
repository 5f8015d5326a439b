"""What lesson 08 claims of its own runs: each claim holds for figures that bear it out."""

from types import SimpleNamespace

from pytest import mark

from course import checking
from course.lessons.casebook import published
from course.published import Published
from tests.course.lessons.cells import Cells, Ledger

LESSON = Cells("08_casebook", ledger=Ledger(), checking=checking)
CONNECT = published.CONNECT
BENT = SimpleNamespace(
    CONNECT=Published((145.0, 298.0, 1500.0), CONNECT.unit, CONNECT.quotation, CONNECT.source)
)
LINE = {"reported": (128, 256, 644), "there": 742 / 644, "published": published}
CLAIMS = [
    ("connections-check", {"seen": {4: 1.0, 12: 3.0}, **LINE}, {"seen": {4: 1.0, 12: 1.2}, **LINE},
     "three times the ranks take at least 1.8 times"),
    ("connections-check", {"seen": {4: 1.0, 12: 3.0}, **LINE},
     {"seen": {4: 1.0, 12: 3.0}, **LINE, "published": BENT}, "a line through zero"),
    ("metrics-check", {"seen": {2: 1.0, 8: 3.0}}, {"seen": {2: 1.0, 8: 1.1}},
     "at least twice the CPU time"),
    ("two-hosts-check", {"hosts": True, "seen": {"double tree": {2: 1.6}, "ring": {2: 0.98}}},
     {"hosts": True, "seen": {"double tree": {2: 0.98}, "ring": {2: 0.98}}},
     "the tree's busbw exceeds the card"),
]  # fmt: skip


@mark.parametrize(("name", "true", "false", "said"), CLAIMS, ids=lambda part: str(part)[:40])
def test_a_claim_holds_only_for_figures_that_bear_it_out(name, true, false, said):
    LESSON.hold(name, true=true, false=false, said=said)


def test_every_claim_of_the_lesson_is_tried():
    assert {*LESSON.claiming()} == {name for name, *_ in CLAIMS}
