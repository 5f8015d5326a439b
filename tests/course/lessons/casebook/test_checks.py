"""Wrong answers to the exercises of lesson 08 are named, right ones pass in any style."""

from collections import ChainMap

import pytest

from course.checking import CheckFailed
from course.lessons.casebook import checks
from tests.course.lessons.casebook import answers


@pytest.fixture(autouse=True)
def ledger(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))


@pytest.fixture
def ungained(monkeypatch):
    """Leave out the measurement, which comes last: what is refused is refused without it."""
    monkeypatch.setattr(checks, "_gain", lambda name, fix: "measured elsewhere")


def refused(check, answer, words):
    with pytest.raises(CheckFailed) as caught:
        check(answer)
    assert words in caught.value.meaning.replace("\n", " ")


@pytest.mark.parametrize("style", answers.RIGHT_ORDERS)
def test_right_orders(style, ungained):
    checks.check_order(answers.RIGHT_ORDERS[style])


@pytest.mark.parametrize("mistake", answers.WRONG_ORDERS)
def test_wrong_orders(mistake, ungained):
    refused(checks.check_order, *answers.WRONG_ORDERS[mistake])


@pytest.mark.parametrize("style", answers.RIGHT_GROUPS)
def test_right_groups(style, ungained):
    checks.check_groups(answers.RIGHT_GROUPS[style])


@pytest.mark.parametrize("mistake", answers.WRONG_GROUPS)
def test_wrong_groups(mistake, ungained):
    refused(checks.check_groups, *answers.WRONG_GROUPS[mistake])


@pytest.mark.parametrize("style", answers.RIGHT_MEANS)
def test_right_means(style, ungained):
    checks.check_metrics(answers.RIGHT_MEANS[style])


@pytest.mark.parametrize("mistake", answers.WRONG_MEANS)
def test_wrong_means(mistake, ungained):
    refused(checks.check_metrics, *answers.WRONG_MEANS[mistake])


@pytest.mark.parametrize("style", answers.RIGHT_SHARES)
def test_right_shares(style, ungained):
    checks.check_shares(answers.RIGHT_SHARES[style])


@pytest.mark.parametrize("mistake", answers.WRONG_SHARES)
def test_wrong_shares(mistake, ungained):
    refused(checks.check_shares, *answers.WRONG_SHARES[mistake])


@pytest.mark.parametrize("style", answers.RIGHT_DEALS)
def test_right_deals(style, ungained):
    checks.check_deal(answers.RIGHT_DEALS[style])


@pytest.mark.parametrize("mistake", answers.WRONG_DEALS)
def test_wrong_deals(mistake, ungained):
    refused(checks.check_deal, *answers.WRONG_DEALS[mistake])


# --- the measurement


@pytest.mark.timed
def test_an_answer_that_gains_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(checks, "TRIES", 1)
    monkeypatch.setattr(checks, "_graphs", lambda n: {})  # what it does is not looked at
    refused(checks.check_order, sorted, "the fault is still there")


@pytest.mark.timed
def test_a_right_answer_passes_with_its_gain(capsys):
    checks.check_metrics(lambda metrics: answers.mean(dict(ChainMap(metrics))))
    assert "times" in capsys.readouterr().out
