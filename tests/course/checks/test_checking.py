import contextlib
import functools
import time

import numpy as np
import torch
import torch.distributed as dist
from pytest import mark, param, raises

from course.checks import checking
from course.checks.checking import CheckFailed
from course.predictions import ledger_file
from tests.course.lessons.refusals import patiently, refusal

pytestmark = mark.usefixtures("book")


def test_success_says_what_was_reached_and_is_noted(capsys):
    with checking.exercise("9.1", par="1.5 S per rank") as verdict:
        verdict.reached = "1.4 S per rank"
    assert capsys.readouterr().out == (
        "✔ Exercise 9.1 passed: you reached 1.4 S per rank; par is 1.5 S per rank.\n"
    )
    assert "9.1" in ledger_file.load().passed


def test_failure_names_exercise_expected_got_and_meaning():
    with raises(CheckFailed) as caught, checking.exercise("9.1", par="-"):
        checking.at_most(7.0, 1.75, what="sent per rank", unit="S", meaning="whole tensors?")
    text = str(caught.value)
    for part in ("exercise 9.1", "at most 1.75 S", "7 S", "whole tensors?"):
        assert part in text
    assert caught.value._render_traceback_() == [text]
    assert "9.1" not in ledger_file.load().passed


def both_send_first():
    other = 1 - dist.get_rank()
    dist.send(torch.ones(1), other)
    dist.recv(torch.ones(1), other)


def both_wait_for_an_irecv():
    dist.irecv(torch.ones(1), 1 - dist.get_rank()).wait()


def never_ends():
    while True:
        time.sleep(0.01)


@mark.slow
@mark.parametrize(
    ("program", "calls", "meaning"),
    [
        param(both_send_first, ["send", "rank 0", "rank 1"], "a deadlock", marks=mark.slow),
        param(both_wait_for_an_irecv, ["irecv", "rank 0", "rank 1"], "a deadlock", marks=mark.slow),
        (never_ends, [], "a loop that does not end"),
    ],
)
def test_ranks_that_do_not_end_show_where_and_a_loop_is_no_deadlock(program, calls, meaning):
    def judge(limit):
        with raises(CheckFailed) as caught:
            checking.on_ranks(program, world_size=2, timeout=limit)
        assert meaning in caught.value.meaning
        assert all(words in caught.value.got for words in calls)
        assert caught.value.__cause__ is None, "the timeout itself is not told twice"

    patiently(judge)


def test_rank_data_sum_exactly_and_differ_between_ranks_and_seeds():
    drawn = [checking.rank_data(1000, rank=r, seed=s) for r in range(4) for s in range(2)]
    assert len(torch.unique(torch.stack(drawn), dim=0)) == 8
    assert torch.equal(sum(drawn), sum(reversed(drawn))), "in any order"


@mark.parametrize(
    ("got", "says"),
    [
        (None, "lacks a `return`"),
        (torch.zeros(3), "shape (3,)"),
        (torch.tensor([1.0, 0.0]), "1 of 2 elements differ, the first at index 1: 0 instead of 2"),
    ],
)
def test_values_that_differ_say_where(got, says):
    expected = torch.tensor([1.0, 2.0])
    assert says in refusal(lambda: checking.same_values(got, expected, what="it", meaning="m"))


def grows(n):
    return 1 if n == 0 else grows(n - 1) + grows(n - 1)


def swallows(n):
    while True:
        with contextlib.suppress(Exception):
            grows(n)


@mark.slow
@mark.parametrize("function", [grows, swallows])
def test_an_endless_answer_is_stopped(function):
    def judge(limit):
        with raises(CheckFailed) as caught:
            checking.ask(function, 60, limit=limit)
        assert "return 1 if n == 0 else grows(n - 1)" in caught.value.got
        assert "does not end" in caught.value.meaning

    patiently(judge)


def test_an_answer_must_leave_its_arguments_alone():
    assert checking.ask(lambda values: sorted(values), [3, 1]) == [1, 3]
    said = refusal(checking.ask, lambda values: values.sort(), [3, 1])
    assert "[1, 3]" in said and "use a copy" in said


def labkits_own(n):
    from course.comm.costs import AlphaBeta

    return AlphaBeta(1.0, 2.0).time(n)


def test_labkits_own_functions_are_no_answer():
    assert "labkit's AlphaBeta.time" in refusal(checking.ask, labkits_own, 4)


def test_an_error_of_the_answer_comes_through():
    with raises(ZeroDivisionError) as caught:
        checking.ask(lambda n: 1 / n, 0, case="nothing")
    assert "in the case: nothing" in caught.value.__notes__


# Answers as people write them


@mark.parametrize("got", [" C ", "(c)", "c, it waits", "my vote is c.", ("c", "it waits"), {"c"}])
def test_a_letter_is_read_as_people_write_it(got):
    assert checking.chosen(got, "abcd") == "c"


@mark.parametrize("got", ["Possible.", " POSSIBLE ", "'possible'"])
def test_a_word_is_read_whatever_its_dress_and_another_is_told_which_there_are(got):
    words = ["possible", "ring_scatter"]
    assert checking.word(got, words, what="it is") == "possible"
    assert checking.word("ring scatter", words, what="it is") == "ring_scatter"
    with raises(CheckFailed, match="there is possible, ring_scatter"):
        checking.word("perhaps", words, what="it is")


@mark.parametrize("got", [np.int64(1200), torch.tensor(1200.0), "1 200 ms", "1.2e3", [1200]])
def test_a_figure_is_read_as_people_write_it(got):
    assert checking.number(got, what="it") == 1200


@mark.parametrize("got", ["cat", "c, d", ("c", "d"), "e", "", None, 3, ["c", "because", "b"]])
def test_what_is_no_letter_or_two_of_them_is_refused(got):
    refusal(checking.chosen, got, "abcd")


@mark.parametrize("got", ["2,5", "about ten", None, True, [1, 2], "1.2.3"])
def test_what_is_no_figure_is_refused(got):
    refusal(lambda: checking.number(got, what="it"))


def unattempted():
    raise NotImplementedError("exercise 9.1")


on_ranks = functools.partial(checking.on_ranks, world_size=2)


@mark.parametrize(
    ("look", "answer"),
    [(checking.plain, {"a": ...}), (checking.plain, (1, ...)), (on_ranks, unattempted)],
)
def test_an_open_answer_is_not_attempted_yet_in_one_line(look, answer):
    with raises(NotImplementedError) as caught, checking.exercise("9.1", par="-"):
        look(answer)
    assert caught.value._render_traceback_() == ["exercise 9.1: not attempted yet"]


def test_an_answer_as_it_was_given_is_not_run():
    def as_given():
        raise NotImplementedError("exercise 9.1: not attempted yet")

    def written():
        return 1
        raise NotImplementedError("exercise 9.1: not attempted yet")

    run = []
    for answer in (as_given, written, 3):
        with contextlib.suppress(NotImplementedError), checking.exercise("9.1", answer, par="-"):
            run.append(answer)
    assert run == [written, 3]


def test_sequences_and_sets_stay_what_they_are():
    assert checking.plain(frozenset({1})) == frozenset({1})
    assert checking.plain(np.array([[1, 2]])) == [[1, 2]]
