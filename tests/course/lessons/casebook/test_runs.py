"""What is run for real: each case is decided by its instruments, and mended by its cure."""

import random
import time

import pytest

from course.__main__ import main
from course.lessons.casebook.cases import CASES, draw_final, late_rank, score
from course.lessons.casebook.ward import FixFailed, Ward, play
from course.predictions import claims
from tests.fabric.test_fabric import needs_hosts

pytestmark = [pytest.mark.slow, pytest.mark.timed, pytest.mark.usefixtures("book")]

NAMES = [
    pytest.param(name, marks=needs_hosts if case.fabric else ()) for name, case in CASES.items()
]


def decided(ward):
    """Diagnose every suspect once; return what became of each, by its key."""
    outcomes = {}
    for letter in ward.suspects:
        ward.diagnose(letter, "to see what becomes of it")
        outcomes[ward.tries[-1].suspect] = ward.tries[-1].outcome
    return outcomes


def expected(case):
    return {key: "stands" if key == case.culprit else "fell" for key in case.suspects}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_a_case_is_decided_by_its_instruments_and_cured_by_its_cure_alone(name):
    case = CASES[name]
    assert case.culprit in case.suspects and len(case.suspects) >= 3
    ward = Ward(case)
    assert decided(ward) == expected(case) and ward.solved
    table = ward.treat(case.fault)
    assert table.title.startswith("Not mended: what was diagnosed is still there"), table
    assert ward.gain == 0
    table = ward.treat(case.cure)
    assert table.title.startswith("It is mended, in 3 of 3 rounds"), table


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [1, 2])
def test_the_final_draws_three_faults_and_instruments_tell_them(seed):
    random.seed(seed)
    wards = draw_final()
    assert len({ward.case.culprit for ward in wards}) == 3
    for ward in wards:
        case = ward.case
        assert decided(Ward(case)) == expected(case)
        assert ward.diagnose(ward.letter(case.culprit), "seen").right
        if case.culprit == "late":
            assert late_rank(ward, case.fault["rank"])
    final = score(wards)
    how = "at the first diagnosis, with no instruments. 3 without any instrument: guessed."
    assert (final.points, final.how, len(final.jobs)) == ("3 of 3", how, 3)
    first = wards[0].case
    assert final.jobs[0].startswith(f"✔ Job 1: {first.suspects[first.culprit].says} Guessed")


UNUSABLE = [
    ("first-sum", lambda peers: None, "ended in TypeError"),
    ("228-bytes", lambda lengths, ranks: [], "ended in IndexError"),
    ("averages", None, "measures a function, not None"),
]


@pytest.mark.parametrize(("name", "fix", "said"), UNUSABLE)
def test_what_cannot_be_used_is_answered_in_one_line(name, fix, said):
    with pytest.raises(FixFailed, match=said) as caught:
        Ward(CASES[name], solved=True).treat(fix)
    assert CASES[name].fix in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value._render_traceback_() == [str(caught.value)]


def test_an_order_that_connects_to_nobody_is_told_by_its_results():
    table = Ward(CASES["first-sum"], solved=True).treat(lambda peers: [])
    assert "Rank 0, connected to: [], with the fault [1, 11]." in table.title


def test_a_cure_that_never_ends_says_so_in_five_seconds():
    ward = Ward(CASES["first-sum"], solved=True)
    play(ward.case)  # what starts slowly has started
    begin = time.monotonic()
    with pytest.raises(FixFailed, match=r"never ends: a circle.* rank 0 for 1, rank 1 for 2"):
        ward.treat(lambda peers: list(reversed(peers)))
    assert time.monotonic() - begin < 9  # with the sick run before it


def test_a_case_is_played_in_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("course.lessons.casebook.ward.ROUNDS", 1)  # it decides on a calm machine
    letter = Ward(CASES["228-bytes"]).letter("late")
    words = ["nonsense", "m", "4", letter, "one comes late"]

    def answer(_):
        if not words:  # asked once more
            assert "not judged, either way" in capsys.readouterr().out
            pytest.skip(f"{claims.NOT_JUDGED}: other programs used the CPUs")
        return words.pop(0)

    monkeypatch.setattr("builtins.input", answer)
    assert main(["case", "228-bytes"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("diagnose: ") == 2 * len(CASES["228-bytes"].suspects)  # at first, and by m
    for part in ("q leaves", "call counts: running", "stands", "the reply in", "In production"):
        assert part in shown
    assert main(["case"]) == 0
    assert "diagnosed with 1 instrument, at try 1" in capsys.readouterr().out
