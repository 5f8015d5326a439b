"""What all checks are built on: a verdict, its three fields, and answers as people write them."""

import time

import numpy as np
import torch
import torch.distributed as dist
from pytest import mark, raises

from course.checks import checking
from course.checks.checking import CheckFailed
from course.predictions import claims, ledger_file
from tests.course.lessons.refusals import patiently, refusal

pytestmark = mark.usefixtures("book")


def test_success_says_what_was_reached_and_is_noted(capsys):
    with checking.exercise("9.1", par="1.5 S per rank") as verdict:
        verdict.reached = "1.4 S per rank"
    said = "✔ Exercise 9.1 passed: you reached 1.4 S per rank; par is 1.5 S per rank.\n"
    assert capsys.readouterr().out == said
    assert "9.1" in ledger_file.load().passed


@mark.parametrize("timed", [False, True])
def test_failure_names_exercise_expected_got_and_meaning(timed):
    with raises(CheckFailed) as caught, checking.exercise("9.1", par="-"):
        checking.at_most(7.0, 1.75, what="sent", unit="S", meaning="whole tensors?", timed=timed)
    text, clock = str(caught.value), f", {claims.BY_THE_CLOCK}" if timed else ""
    assert text.splitlines() == [
        f"exercise 9.1 is not right yet{clock}",
        "  expected      sent: at most 1.75 S",
        "  got           7 S",
        "  usually means whole tensors?",
    ]
    assert caught.value._render_traceback_() == [text]
    assert "9.1" not in ledger_file.load().passed


def both_send_first():
    other = 1 - dist.get_rank()
    dist.send(torch.ones(1), other)
    dist.recv(torch.ones(1), other)


def never_ends():
    while True:
        time.sleep(0.01)


ENDLESS = [(both_send_first, "a deadlock", "send"), (never_ends, "a loop that does not", "sleep")]


@mark.slow
@mark.parametrize(("program", "meaning", "waits"), ENDLESS)
def test_ranks_that_do_not_end_show_where_and_a_loop_is_no_deadlock(program, meaning, waits):
    def judge(limit):
        with raises(CheckFailed) as caught:
            checking.on_ranks(program, world_size=2, timeout=limit)
        assert meaning in caught.value.meaning and waits in caught.value.got
        assert caught.value.__cause__ is None, "the timeout itself is not told twice"

    patiently(judge)


RIGHT, LARGE = torch.tensor([1.0, 2.0]), torch.tensor([2**60])


DIFFERENT = [
    (None, RIGHT, "ends without `return`"),
    (torch.zeros(3), RIGHT, "shape (3,)"),
    ([1.0, 0.0], RIGHT, "1 of 2 elements differ, the first at index 1: 0 instead of 2"),
    ((2 * RIGHT).requires_grad_(), RIGHT, "usually means twice"),
    (LARGE + 1, LARGE, f"{2**60 + 1} instead of {2**60}"),  # all digits, where need be
]


@mark.parametrize(("values", "right", "says"), DIFFERENT)
def test_values_that_differ_say_where_and_name_the_usual_mistake(values, right, says):
    words = {"what": "it", "meaning": "-", "mistakes": {"twice": 2 * right}}
    assert says in refusal(lambda: checking.same_values(values, right, **words))


def test_an_answer_must_leave_its_arguments_alone():
    assert checking.ask(sorted, [3, 1]) == [1, 3]
    said = refusal(checking.ask, list.sort, [3, 1])
    assert "[1, 3]" in said and "use a copy" in said


def test_a_name_that_stands_for_a_value_is_no_answer():
    with raises(CheckFailed, match="a function"), checking.exercise("9.1", (1, 2), par="-"):
        raise AssertionError("it is not run")


def divides_by_its_rank():
    return 1 / (dist.get_rank() if dist.is_initialized() else 0)


@mark.parametrize("run", [checking.ask, lambda way: checking.on_ranks(way, world_size=2)])
def test_an_answer_that_raises_is_refused_with_its_own_lines_alone(run):
    words = {"par": "a quotient", "raises": {"division by": "look at 0"}}
    with raises(CheckFailed) as caught, checking.exercise("9.1", **words):
        run(divides_by_its_rank)
    text = str(caught.value)
    assert "expected      a quotient" in text and "usually means look at 0" in text
    assert "return 1 / " in text and "ZeroDivisionError: division by zero" in text
    assert "course/checks/checking.py" not in text and "labkit/" not in text


def test_an_endless_answer_that_is_interrupted_shows_where_it_was():
    def interrupted():
        raise KeyboardInterrupt

    with raises(KeyboardInterrupt) as caught, checking.exercise("9.1", par="-"):
        checking.ask(interrupted)
    (shown,) = caught.value._render_traceback_()
    assert "exercise 9.1: interrupted" in shown and "raise KeyboardInterrupt" in shown


def unattempted():
    raise NotImplementedError("exercise 9.1: not attempted yet")


@mark.parametrize("left_open", [{"a": ...}, (1, ...), None])
def test_an_open_answer_is_not_attempted_yet_in_one_line(left_open):
    with raises(NotImplementedError) as caught, checking.exercise("9.1", par="-"):
        checking.plain(left_open)
        checking.on_ranks(unattempted, world_size=2)
    assert caught.value._render_traceback_() == ["exercise 9.1: not attempted yet"]


def test_an_answer_as_it_was_given_is_not_run():
    def written():
        return 1
        raise NotImplementedError("exercise 9.1: not attempted yet")

    with raises(NotImplementedError), checking.exercise("9.1", unattempted, par="-"):
        raise AssertionError("it is not run")
    with checking.exercise("9.1", written, par="-"):
        pass


@mark.parametrize("answer", [" C ", "(c)", "c, it waits", "my vote is c.", ("c", "a way"), {"c"}])
def test_a_letter_is_read_as_people_write_it(answer):
    assert checking.chosen(answer, "abcd") == "c"


@mark.parametrize("answer", ["cat", "c, d", ("c", "d"), "e", "", None, 3, ["c", "so", "b"]])
def test_what_is_no_letter_or_two_of_them_is_refused(answer):
    refusal(checking.chosen, answer, "abcd")


def test_a_word_is_read_whatever_its_dress_and_another_is_told_which_there_are():
    words = ["possible", "ring_scatter"]
    for answer in ("Possible.", " POSSIBLE ", "'possible'"):
        assert checking.word(answer, words, what="it is") == "possible"
    assert checking.word("ring scatter", words, what="it is") == "ring_scatter"
    said = refusal(lambda: checking.word("perhaps", words, what="it is"))
    assert "there is possible, ring_scatter" in said


@mark.parametrize("answer", [np.int64(1200), torch.tensor(1200.0), "1 200 ms", "1.2e3", [1200]])
def test_a_figure_is_read_as_people_write_it(answer):
    assert checking.number(answer, what="it") == 1200


@mark.parametrize("answer", ["2,5", "about ten", None, True, [1, 2], "1.2.3"])
def test_what_is_no_figure_is_refused(answer):
    refusal(lambda: checking.number(answer, what="it"))


def test_sequences_and_sets_stay_what_they_are_and_what_is_yielded_is_a_list():
    assert checking.plain(frozenset({1})) == frozenset({1})
    assert checking.plain(np.array([[1, 2]])) == [[1, 2]]
    assert checking.plain(torch.ones(1, requires_grad=True)) == [1.0]
    assert checking.plain(place for place in range(2)) == [0, 1]


def test_figures_of_a_dict_go_by_its_names_and_others_by_their_order_in_pairs_too():
    rights = [("GPipe's", 8, {}, ""), ("1F1B's", 4, {}, ""), ("GB beyond 1F1B", 1.5, {}, "")]
    checking.figures({"1F1B": 4, "gb": 1.5, "GPipe": 8}, rights)
    checking.figures({"a": 8, "b": 4, "c": 1.5}, rights)
    checking.figures((np.array([8, 4]), "1.5 GB"), rights)
    with raises(CheckFailed, match="another figure for 1F1B's"):
        checking.figures({"1F1B": 3, "GB": 1.5, "GPipe": 8}, rights)
