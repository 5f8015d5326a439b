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


@by_value
def uses_a_global():
    return [LOCK for _ in range(1)]  # inside a nested code object


def uses_a_helper(lock):
    def helper():
        return lock

    def program():
        return helper()

    return program


def use_each_other(the_lock):
    def ping():
        return pong()

    def pong():
        return ping(), the_lock  # in alphabetical order: ping is looked at first

    return ping


class Holder:
    def __init__(self):
        self.lock = LOCK

    def program(self):
        return self


CULPRITS = [
    (Holder().program, (), r"self \(a .*Holder\), because of its \.lock \(a _thread\.lock\)"),
    (lambda a, b: 0, (1, LOCK), r"launch\(.*<lambda>\): argument 2 \(a _thread\.lock\) can"),
    (uses_a_helper(LOCK), (), r"'lock' \(a _thread\.lock\), which .*helper uses,"),
    (use_each_other(LOCK), (), "'the_lock'"),
    (uses_a_global, (), r"the global 'LOCK' .* which uses_a_global uses,"),
    (functools.partial(uses_a_helper(LOCK), 1), (), r"the closed-over variable 'lock'"),
    (functools.partial(int, LOCK), (), r"partial.* cannot be sent to the ranks"),
    (print, (LOCK,), "Create it inside the program"),
]


@pytest.mark.parametrize("program, arguments, says", CULPRITS)
def test_what_cannot_travel_is_named(program, arguments, says):
    with pytest.raises(TypeError, match=says) as caught:
        pack(program, arguments)
    assert "cannot pickle" in str(caught.value.__cause__)


def test_a_variable_that_is_not_assigned_yet_does_not_hide_the_culprit():
    lock = LOCK

    def program():
        return later, lock

    with pytest.raises(TypeError, match="closed-over variable 'lock'"):
        pack(program, ())
    later = 1
