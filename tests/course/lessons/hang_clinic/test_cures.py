"""What is accepted as a cure, and why other versions are not."""

import pytest

from course.lessons.hang_clinic.checks import check_cure, treat
from course.lessons.hang_clinic.programs import PATIENTS
from tests.course.lessons.hang_clinic import cures
from tests.course.lessons.refusals import refusal
from tests.marks import seldom

pytestmark = pytest.mark.slow
RIGHT = sorted(name for name in vars(cures) if name[0] == "g" and name[1:2].isdigit())
WRONG = {
    "b1const": "every rank still sums or sends its own numbers",
    "b1barrier": "no barrier",
    "b1swapped": "sent or returned than before",
    "b1unwaited": "every call is waited for",
    "b1n": "every rank still sums",
    "b2gather": "the job can be done with less",
    "b2const": "got rank 0: no call",
    "b2allrecv": "it never ends",
    "b2barrier": "barrier #1",
    "b2drop": "keep the handle",
    "b2three": "4 ranks: it ends",
    "b3noraise": "[3.0, 6.0, 9.0]",
    "b3barrier": "it never ends",
    "b3extra": "no barrier",
    "b3const": "no call",
    "b3three": "2 ranks: rank 0 returns [1.0, 4.0, 6.0]",
    "b4sleep": "a race: where the values are right, that is luck",
    "b4two": "a race",
    "b4const": "no call",
    "b4bcast": "the job can be done with less",
    "b4barrier": "no barrier",
    "b5start": "is made once and told",
    "b5every": "5 barriers of a rank at most",
    "b5none": "no checkpoint is ever written",
    "b5nosleep": "it never ends",
    "b6five": "3 ranks: rank 0 returns",
    "b6barrier": "1 barriers of a rank at most",
    "b6drop": "[1024.0, 1024.0, 1024.0, 1024.0, 1.0]",
    "b6rank0": "3 ranks: it ends",
    "b6nobarrier": "it never ends",
    "b6const": "no call",
}


@pytest.fixture(autouse=True)
def own_ledger(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))


@pytest.mark.parametrize("name", RIGHT)
def test_a_cure_is_accepted(name):
    check_cure(int(name[1]), getattr(cures, name))


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_cure_is_refused_with_its_reason(name):
    assert WRONG[name] in refusal(check_cure, int(name[1]), getattr(cures, name))


def test_every_version_is_tried():
    versions = {name for name in vars(cures) if name[:1] == "b" and name[1:2].isdigit()}
    assert versions == set(WRONG)


@pytest.mark.parametrize("number", [seldom(n) if n > 2 else n for n in PATIENTS])
def test_the_patient_itself_is_not_cured(number):
    assert "is not right yet" in refusal(check_cure, number, PATIENTS[number].program)


def test_a_hang_shows_the_learners_own_line():
    words = refusal(check_cure, 2, cures.b2allrecv)
    assert "in b2allrecv, line" in words and "dist.recv(t, (r - 1) % n)" in words


def test_an_untouched_patient_is_not_treated(capsys):
    def mended():
        raise NotImplementedError

    treat(2, mended)
    assert capsys.readouterr().out == "Patient 2 is not treated yet.\n"
