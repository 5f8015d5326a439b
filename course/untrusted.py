"""Files that nobody vouches for: JSON, bounded in size, depth and digits, checked by fields.

What is wrong is said in one line without control characters, so that a reader can leave one file
out and go on with the others. A check is a function of a value and of its place in the document:

    PERSON = fields({"name": text(80), "ages": array(number())}, optional=("ages",))
    PERSON({"name": "Ada"}, "")     # nothing is wrong
    PERSON({"name": 3}, "")         # ValueError: name: no text
"""

import json
import math
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn

from labkit.measure import records as recording
from labkit.measure.untrusted import MOST_DIGITS, one_line

MOST_BYTES = 64 * 2**20
MOST_DEPTH = 32
Check = Callable[[Any, str], None]
"""Raises ValueError, with the place, if the value is not what it should be."""


def text(most: int = 300) -> Check:
    """Check a text in one line."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, str):
            raise ValueError(f"{place}: no text")
        if len(value) > most or any(c < " " or "\x7f" <= c <= "\x9f" for c in value):
            raise ValueError(f"{place}: no line of at most {most} characters")

    return check


def number(
    *, low: float = -math.inf, high: float = math.inf, whole: bool = False, missing: bool = False
) -> Check:
    """Check a number, `low` and `high` included; with `missing` it may be null."""
    kind = int if whole else int | float

    def check(value: Any, place: str) -> None:
        if missing and value is None:
            return
        if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
            raise ValueError(f"{place}: no {'whole ' * whole}number from {low:g} to {high:g}")

    return check


def one_of(choices: Collection[Any]) -> Check:
    """Check that a value is one of a few."""

    def check(value: Any, place: str) -> None:
        if not any(type(value) is type(one) and value == one for one in choices):
            raise ValueError(f"{place}: none of {', '.join(map(str, choices))}")

    return check


def array(item: Check, *, least: int = 0, most: int = 100_000) -> Check:
    """Check each item of a list."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise ValueError(f"{place}: no list of {least} to {most} items")
        for i, one in enumerate(value):
            item(one, f"{place}[{i}]")

    return check


def mapping(value_check: Check, *, most: int = 100_000) -> Check:
    """Check each value of an object whose keys may be any short texts."""
    key_check = text(100)

    def check(value: Any, place: str) -> None:
        if not isinstance(value, dict) or len(value) > most:
            raise ValueError(f"{place}: no object of at most {most} fields")
        for key, one in value.items():
            key_check(key, f"{place}: a key")
            value_check(one, f"{place}.{key}")

    return check


def fields(checks: Mapping[str, Check], *, optional: Collection[str] = ()) -> Check:
    """Check an object that has just these fields, all but the optional ones."""
    needed = checks.keys() - set(optional)

    def check(value: Any, place: str) -> None:
        if not isinstance(value, dict) or needed - value.keys() or value.keys() - checks.keys():
            raise ValueError(f"{place}: no object with the fields {', '.join(checks)}")
        for name, one in value.items():
            checks[name](one, f"{place}.{name}".lstrip("."))

    return check


def anything(value: Any, place: str) -> None:
    """Check nothing: whoever uses the value does."""


FIGURE = number(missing=True)
BOOLEAN = one_of((True, False))


def load(path: Path, *, what: str, versions: Mapping[int, Check]) -> dict[str, Any]:
    """Read a JSON file whose ``version`` says which of the checks it must pass.

    `what` says what it should be: ``"file of labkit records"``.

    Raises:
        ValueError: It is none; the message names the file and the reason, in one line.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MOST_BYTES:
                raise ValueError(f"{size / 2**20:.0f} MiB; at most {MOST_BYTES // 2**20} are read")
            document = json.loads(
                file.read(MOST_BYTES + 1).decode(),
                parse_int=_int,
                parse_float=_float,
                parse_constant=_refuse,
            )
        _check_depth(document)
        version = document.get("version") if isinstance(document, dict) else None
        if type(version) is not int:
            raise ValueError("it names no version")
        if version not in versions:
            known = ", ".join(map(str, versions))
            raise ValueError(f"version {version}; this labkit reads {known}")
        versions[version](document, "")
        return document
    except RecursionError:
        reason = f"nested deeper than {MOST_DEPTH} levels"
    except json.JSONDecodeError as error:
        reason = f"no JSON: {error}"
    except (OSError, ValueError) as error:
        reason = str(error)
    raise ValueError(one_line(f"{path} is no {what}: {reason}"))


def _check_depth(document: Any) -> None:
    level, depth = [document], 0
    while level := [part for part in level if isinstance(part, dict | list)]:
        if (depth := depth + 1) > MOST_DEPTH:
            raise RecursionError
        inner = (part.values() if isinstance(part, dict) else part for part in level)
        level = [one for parts in inner for one in parts]


def _int(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)


def _float(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        _refuse(digits)
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant[:20]} is no finite number")


def records(path: Path) -> list[recording.Record]:
    """Read the records of a file that anybody may have written: each field is checked first.

    Raises:
        ValueError: As `load`.
    """
    load(path, what="file of labkit records", versions={recording.VERSION: _FILE})
    return recording.load(path)


_MACHINE = fields(
    {
        **dict.fromkeys(("cpu_model", "system", "python", "torch"), text()),
        "cpus": number(low=0, whole=True),
        "cpu_quota": FIGURE,
        "memory": number(whole=True),
        "gpus": array(text(), most=10_000),
        "virtual": BOOLEAN,
    }
)
_RANKS = array(number(whole=True), least=1)
_NODE = fields({"ranks": _RANKS, "machine": _MACHINE})
_PROVENANCE = fields(
    {
        "machine": _MACHINE,
        "backend": text(60),
        "date": text(60),
        "command": text(4000),
        "nodes": array(_NODE, most=10_000),
    },
    optional=("nodes",),
)
_SECONDS = number(low=math.ulp(0.0), high=1e9)
_RECORD = fields(
    {
        "experiment": text(),
        "case": text(),
        "params": mapping(anything, most=100),
        "samples": array(array(_SECONDS)),
        "tier": one_of([str(tier) for tier in recording.Tier]),
        "provenance": _PROVENANCE,
        "collective": one_of([None, *recording.COLLECTIVES]),
        "nbytes": number(low=1, whole=True, missing=True),
        "values": mapping(anything),
        "predicted": FIGURE,
        "others": FIGURE,
    },
    optional=("predicted", "others"),
)
_FILE = fields({"version": anything, "records": array(_RECORD)})
