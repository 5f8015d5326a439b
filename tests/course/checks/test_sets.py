"""Which sets get an order of the rank's own: however they are made, and wherever."""

import pickle

from pytest import mark

from course.checks.sets import OwnSet, own_sets

LETTERS, NAMES = "ab", {"a", "b"}


def of_a_call():
    return [*set(LETTERS)]


def of_a_display():
    return [*{*LETTERS}]


def of_a_comprehension():
    return [*{letter.lower() for letter in LETTERS}]


def of_an_operator():
    return [*(dict.fromkeys(LETTERS).keys() & {"a", "b", "c"})]


def taken_out():
    names = {*LETTERS}
    return [names.pop(), names.pop()]


def of_the_module():
    return [*NAMES]


def of_a_helper():
    return of_a_call()


def around(letters):
    return lambda: [*letters]


MADE = (of_a_call, of_a_display, of_a_comprehension, of_an_operator, taken_out)


@mark.parametrize("program", [*MADE, of_the_module, of_a_helper])
def test_a_set_has_an_order_of_the_ranks_own(program, monkeypatch):
    for rank, order in enumerate(("ab", "ba")):
        monkeypatch.setattr("torch.distributed.get_rank", lambda rank=rank: rank)
        assert own_sets(program)() == [*order]


def test_such_a_set_travels_to_the_ranks_from_where_there_is_none():
    assert pickle.loads(pickle.dumps(OwnSet("ab"))) == {"a", "b"}


def test_the_line_of_a_lambda_is_not_run_and_what_takes_names_from_around_it_stays():
    calls = []
    judged = calls.append(own_sets(lambda: {1}))
    assert judged is None and len(calls) == 1 and calls[0]() == {1}
    inner = around("ab")
    assert own_sets(inner) is inner
