import subprocess
import sys

from pytest import mark, raises

from course.predictions import judging
from course.predictions.judging import judge
from labkit.ranks.machine import usable_cpus

ROUNDS = [
    ([True] * 19 + [False], 0.0, None),
    ([True, True, None], 0.0, None),
    ([True, True], 1.6, None),
    (False, 1.6, None),
    (False, None, False),
]


@mark.parametrize(("rounds", "others", "comes_to"), ROUNDS)
def test_rounds_decide_by_agreeing_and_noise_is_judged_both_ways(rounds, others, comes_to):
    judged = judging.judge(rounds, others=others)
    assert judged.outcome is comes_to
    assert bool(judged.why_not) is (comes_to is None)
    with raises(ValueError, match="three at least"):
        judging.judge([])  # nothing is no evidence


def test_what_lies_between_the_limits_says_nothing_in_both_directions():
    growing = [judging.outcome(x, stands=2, fell=1) for x in (2.0, 1.5, 1.0, -3)]
    falling = [judging.outcome(x, stands=0.5, fell=0.9) for x in (0.5, 0.7, 0.9, 2)]
    assert growing == falling == [True, None, False, False]
    assert judge([False, None, None]).why_not == "of 3 rounds 1 says no, 2 say neither"


def test_without_records_the_cells_since_the_last_judgement_are_looked_at(monkeypatch):
    monkeypatch.setattr(judging, "SHORTEST", 1.5)  # a busy machine may make us wait meanwhile
    cells = judging.Cells()
    cells.ended = [(2.0, 0.9), (3.0, 0.1)]
    assert cells.others() == 0.9
    cells.begin_cell(None)  # the next cell: what was judged is over
    cells.ended = [(0.01, 5.0)]
    assert cells.others() is None, "too short to tell"


def test_importing_looks_at_no_process():
    code = "import course.predictions.ledger, course.predictions.judging as j; "
    code += "print(j.watch_cells.cache_info().currsize)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_a_ratio_of_times_is_not_believed_where_others_use_half_of_the_cpus():
    for share, outcome in ((0.4, True), (0.6, None)):
        judged = judge([True] * 3, others=share * usable_cpus(), ratio=True)
        assert judged.outcome is outcome
    assert "too many for a ratio of times" in judged.why_not
