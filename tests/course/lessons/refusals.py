"""Wrong answers, made of right ones, and what a check says to them."""

import contextlib
import json
from pathlib import Path

from pytest import raises

from course.checks.checking import CheckFailed

SOLUTIONS = Path(__file__).resolve().parents[3] / "solutions"


def altered(exercise, *changes, **names):
    """Our answer to an exercise, such as "2-3", with something changed: old, new, old, new, ..."""
    text = (SOLUTIONS / f"{int(exercise[0]):02}_solutions.ipynb").read_text()
    sources = {cell["id"]: "".join(cell["source"]) for cell in json.loads(text)["cells"]}
    source = sources[f"ex-{exercise}-answer"]
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in source, old
        source = source.replace(old, new)
    exec(source, names)
    return names.popitem()[1]


def refusal(check, *given):
    """The whole message, on one line."""
    with raises(CheckFailed) as failure:
        check(*given)
    return " ".join(str(failure.value).split())


def patiently(judge, limits=(1.0, 5.0, 25.0)):
    """Give ranks that hang a longer limit where, on a busy machine, they are not yet there."""
    for limit in limits[:-1]:
        with contextlib.suppress(AssertionError):
            return judge(limit)
    return judge(limits[-1])
