"""What a check says to a wrong answer."""

from pytest import raises

from course.checking import CheckFailed


def said(check, *given):
    """The whole message, on one line."""
    with raises(CheckFailed) as failure:
        check(*given)
    return " ".join(str(failure.value).split())
