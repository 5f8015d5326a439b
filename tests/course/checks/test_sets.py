"""Which functions get sets of an order of their own."""

from course.checks.sets import own_sets

LETTERS = "ab"


def letters():
    return {*LETTERS}


def in_a_list():
    return [*letters()]


NAMES = {"a", "b"}


def of_the_module():
    return [*NAMES]


def around(letters):
    return lambda: [*letters]


def test_a_function_and_those_of_its_module_that_it_calls_are_made_anew(monkeypatch):
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 1)
    assert own_sets(in_a_list)() == own_sets(of_the_module)() == ["b", "a"]


def test_the_line_of_a_lambda_is_not_run_and_what_takes_names_from_around_it_stays():
    calls = []
    judged = calls.append(own_sets(lambda: {1}))
    assert judged is None and len(calls) == 1 and calls[0]() == {1}
    inner = around("ab")
    assert own_sets(inner) is inner
