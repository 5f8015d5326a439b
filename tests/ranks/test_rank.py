"""What can travel to the ranks, and how what cannot is named."""

import functools
import threading

import pytest

from labkit.ranks.parcel import pack

LOCK = threading.Lock()


def by_value(function):
    """Make a module's function travel as a notebook's does: with the globals that it uses."""
    function.__module__ = "__main__"
    return function


def unpacked(program, *args):
    function, arguments, _ = pack(program, args).load()
    return function(*arguments)


def test_a_function_travels_with_its_closure_and_arguments():
    offset = [10]
    assert unpacked(lambda x, y: offset[0] + x * y, 2, 3) == 16


def test_the_argument_is_named():
    with pytest.raises(
        TypeError, match=r"launch\(.*<lambda>\): argument 2 \(a _thread\.lock\) can"
    ):
        pack(lambda a, b: None, (1, LOCK))


def test_the_closed_over_variable_is_named():
    lock = LOCK

    def program():
        return lock.locked()

    with pytest.raises(TypeError, match=r"the closed-over variable 'lock' \(a _thread\.lock\)"):
        pack(program, ())


def test_the_innermost_user_of_it_is_named():
    lock = LOCK

    def helper():
        return lock

    def program():
        return helper()

    with pytest.raises(TypeError, match=r"'lock' \(a _thread\.lock\), which .*helper uses,"):
        pack(program, ())


@by_value
def uses_a_global():
    return [LOCK for _ in range(1)]  # inside a nested code object


def test_the_global_is_named_also_inside_a_comprehension():
    with pytest.raises(TypeError, match=r"the global 'LOCK' .* which uses_a_global uses,"):
        pack(uses_a_global, ())


def test_what_is_inside_a_partial_is_found():
    lock = LOCK
    with pytest.raises(TypeError, match=r"the closed-over variable 'lock'"):
        pack(functools.partial(lambda x: lock, 1), ())
    with pytest.raises(TypeError, match=r"partial.* cannot be sent to the ranks"):
        pack(functools.partial(int, LOCK), ())


def test_a_variable_that_is_not_assigned_yet_does_not_hide_the_culprit():
    lock = LOCK

    def program():
        return later, lock

    with pytest.raises(TypeError, match="closed-over variable 'lock'"):
        pack(program, ())
    later = 1


def test_functions_that_use_each_other_are_looked_through_once():
    the_lock = LOCK

    def ping():
        return pong()

    def pong():
        return ping(), the_lock  # in alphabetical order: ping is looked at first

    with pytest.raises(TypeError, match="'the_lock'"):
        pack(ping, ())


def test_the_advice_and_the_cause_are_there():
    with pytest.raises(TypeError, match="Create it inside the program") as caught:
        pack(print, (LOCK,))
    assert "cannot pickle" in str(caught.value.__cause__)
