"""What every `check_*` is built on: run the learner's function on real ranks, judge, and say why.

A check reads like this::

    def check_longest(longest):
        with checking.exercise("6.1", par="within 3 % of the shortest time") as verdict:
            got = checking.answer(checking.ask(longest, [2.0, 1.0]), float, what="the seconds")
            checking.at_most(got / 2.0, 1.03, what="too long", unit="times", meaning="...")
            verdict.reached = f"{got / 2.0:.2f} times"

A check raises `CheckFailed`, which says what is wrong and what that usually means; no check's own
docstring repeats it. What runs on several ranks is tried by `course.trial`, on data that differ
from rank to rank. An exercise that was not attempted fails with its own `NotImplementedError`.
"""

import copy
import math
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import torch

from course import ledger
from labkit.ranks.errors import CaseFile, LaunchTimeout, RankDied
from labkit.ranks.launcher import launch
from labkit.ranks.machine import usable_cpus

T = TypeVar("T")
_COURSE = Path(__file__).parent
_ALGORITHMS = tuple(str(_COURSE / folder) for folder in ("comm", "lessons"))


class CheckFailed(AssertionError):
    """An answer that is not right yet.

    Attributes:
        expected: What a right answer gives.
        got: What this one gave.
        meaning: What that usually means: the likely mistake, and where to look.
        number: The exercise's number; None outside `exercise`.
    """

    def __init__(self, expected: str, got: str, meaning: str) -> None:
        super().__init__(expected, got, meaning)
        self.expected, self.got, self.meaning = expected, got, meaning
        self.number: str | None = None

    def __str__(self) -> str:
        title = f"exercise {self.number} is not right yet" if self.number else "not right yet"
        return (
            f"{title}\n  expected      {_indented(self.expected)}\n  got           "
            f"{_indented(self.got)}\n  usually means {_indented(textwrap.fill(self.meaning, 84))}"
        )

    def _render_traceback_(self) -> list[str]:
        """Show a notebook the message alone: labkit's own frames would bury it."""
        return [str(self)]


@contextmanager
def exercise(number: str, *, par: str) -> Iterator[SimpleNamespace]:
    """Judge an exercise, like `1.2`: name it in a failure; on success say so and note it.

    `par` is the stated budget, as the statement words it. Set `reached` of what is yielded to what
    the learner's answer reached.
    """
    verdict = SimpleNamespace(reached="")
    try:
        yield verdict
    except CheckFailed as failure:
        failure.number = number
        raise
    except NotImplementedError as untouched:
        untouched._render_traceback_ = lambda: [f"exercise {number}: not attempted yet"]
        raise
    ledger.passed(number)
    reached = f"you reached {verdict.reached}; " if verdict.reached else ""
    print(f"✔ Exercise {number} passed: {reached}par is {par}.")


def on_ranks(
    program: Callable[..., Any],
    *args: Any,
    world_size: int,
    timeout: float = 10.0,
    checks: bool = True,
    hang: str = "",
) -> list[Any]:
    """Run ``program(*args)`` on real ranks; return what each rank returned.

    An exception of the learner's code comes through as it is, with the rank named. With `checks`
    torch compares the ranks' calls, and even an asynchronous call returns only when all ranks have
    made it: not where it matters what overlaps what. `hang` is what it usually means here that
    ranks do not finish, where that is not what it means anywhere.

    Raises:
        CheckFailed: The ranks did not finish in `timeout` seconds of `patience` (shows which rank
            waits where), or gloo ended one since a receive was not as long as its message.
    """
    timeout = patience(timeout)
    try:
        return launch(program, *args, world_size=world_size, timeout=timeout, checks=checks)
    except LaunchTimeout as late:
        raise CheckFailed(
            expected=f"n={world_size}: all ranks finish within {timeout:.3g} s",
            got=f"ranks {late.case.running} did not:\n{late.case}",
            meaning=hang or _why_it_hangs(late.case),
        ) from None
    except RankDied as death:
        sizes = re.search(r"op.preamble.length <= op.nbytes. (\d+) vs (\d+)", str(death))
        if not sizes:
            raise
        raise CheckFailed(
            f"n={world_size}: a receive is as long as the message",
            f"a message of {sizes[1]} bytes met a receive of {sizes[2]}",
            "a buffer with another dtype than the tensor's (use torch.empty_like or "
            "tensor.new_empty), or pieces or calls that the ranks cut or order differently: those "
            "of several threads, or in an order that comes from values, sets or the rank",
        ) from None


def patience(seconds: float) -> float:
    """Return a limit of time for the machine as it is: up to four times as long on a busy one."""
    return seconds * min(4.0, max(1.0, os.getloadavg()[0] / usable_cpus()))


def ask(function: Callable[..., Any], *args: Any, limit: float = 10.0) -> Any:
    """Call a learner's function that needs no ranks, in a process that can be ended.

    Raises:
        CheckFailed: It took longer than `limit` seconds of `patience`, changed what it was given
            (plain data only), or called labkit's own algorithms.

    Example:
        >>> ask(sorted, [3, 1, 2])
        [1, 2, 3]
    """
    hang = "a loop that does not end, or one that tries far too many cases"
    return on_ranks(_answer, function, args, world_size=1, timeout=limit, hang=hang)[0]


def _answer(function: Callable[..., Any], args: tuple) -> Any:
    given = copy.deepcopy(args)
    with own_work():
        got = function(*args)
    if args != given:
        raise CheckFailed(
            "arguments as they were before the call",
            f"{args} instead of {given}"[:300],
            "the function changes what it was given, and the caller still needs it: use a copy",
        )
    return got


@contextmanager
def own_work() -> Iterator[None]:
    """Refuse that labkit's own algorithms, of `course.comm` or a lesson, do a learner's work.

    Raises:
        CheckFailed: One of them was called during the block, in this thread.
    """
    called: list[str] = []

    def watch(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if called or event != "call" or not code.co_filename.startswith(_ALGORITHMS):
            return
        importing = code.co_name == "<module>" or frame.f_back.f_code.co_name == "<module>"
        if not importing:
            called.append(code.co_qualname)

    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)
    if called:
        raise CheckFailed(
            "an answer of your own",
            f"a call of labkit's {called[0]}",
            "labkit's functions are there to be read and compared with; the exercise is to write "
            "one yourself",
        )


def rank_data(
    length: int, *, rank: int, seed: int = 0, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Make a rank's input: whole numbers from -99 to 99 that differ from rank to rank.

    Their sums are exact in float32 in any order, so a right answer is right to the last bit, and an
    answer that forgot or doubled a rank cannot pass. The same arguments give the same data.
    """
    generator = torch.Generator().manual_seed(1_000_003 * seed + rank)
    return torch.randint(-99, 100, (length,), generator=generator).to(dtype)


def same_values(got: Any, expected: torch.Tensor, *, what: str, meaning: str) -> None:
    """Hold two tensors to be equal in shape and in every element.

    Raises:
        CheckFailed: They differ; says where first.
    """
    if got is None:
        raise CheckFailed(
            f"{what}: {_shown(expected)}", "None", "the function lacks a `return` on this path"
        )
    got = torch.as_tensor(got)
    if got.shape != expected.shape:
        raise CheckFailed(
            f"{what}: shape {tuple(expected.shape)}", f"shape {tuple(got.shape)}", meaning
        )
    wrong = (got != expected).flatten().nonzero().flatten().tolist()
    if wrong:
        first = wrong[0]
        raise CheckFailed(
            f"{what}: {_shown(expected)}",
            f"{_shown(got)}; {len(wrong)} of {got.numel()} elements differ, the first at index "
            f"{first}: {got.flatten()[first].item():g} instead of "
            f"{expected.flatten()[first].item():g}",
            meaning,
        )


def answer(got: T, kind: type[T] | tuple[type, ...], *, what: str) -> T:
    """Return what a learner's function returned if it is of the right kind at all.

    `float` admits whole numbers; no type admits True and False but `bool`. `what` says in words
    what the function is to return: ``"the rank that was late"``.

    Raises:
        CheckFailed: It is None, or of another type; the message says which of both.
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    admitted = (*kinds, int) if float in kinds else kinds
    if isinstance(got, admitted) and not (isinstance(got, bool) and bool not in kinds):
        return got
    wanted = " or ".join("a number" if one is Real else one.__name__ for one in kinds)
    meaning = (
        "the function ends without `return` on this path"
        if got is None
        else f"another type was returned than the statement asks for: {type(got).__name__}"
    )
    raise CheckFailed(f"{what}: {wanted}", repr(got)[:200], meaning)


def diagnose(got: Any, mistakes: Mapping[str, Any], *, otherwise: str, within: float = 1e-9) -> str:
    """Name the mistake that gives just what was got; return `otherwise` where none does.

    `mistakes`: what is usually meant -> the figure or tensor which that gives. `within` is a
    relative tolerance for figures.

    Example:
        >>> diagnose(8.0, {"bits were taken for bytes": 8.0}, otherwise="look at the units")
        'bits were taken for bytes'
    """

    def fits(wrong: Any) -> bool:
        if isinstance(got, torch.Tensor):
            return got.dtype == wrong.dtype and torch.equal(got, wrong)
        return math.isclose(got, wrong, rel_tol=within)

    return next((meaning for meaning, wrong in mistakes.items() if fits(wrong)), otherwise)


def letter(vote: Callable[[], str], *, right: str, wrong: Mapping[str, str]) -> None:
    """Hold a learner's vote, a letter and perhaps a reason, to the right letter.

    Raises:
        CheckFailed: It is another letter; `wrong` says what each of them usually means.
    """
    got = answer(vote(), (str, tuple, list), what="a letter")
    first = str(got if isinstance(got, str) else got[0] if got else "")
    match = re.match(r"\W*([a-z])(?![\w'])", first.lower())  # "c: because ..." is c, "cat" is none
    if not match or match[1] != right:
        letters = f"answer with one letter: {', '.join(sorted([*wrong, right]))}"
        meaning = wrong.get(match[1], letters) if match else letters
        raise CheckFailed("another letter", repr(first), meaning)


Asked = tuple[str, float, Mapping[str, float], str]
"""A figure: what it is, the right one, what is usually meant -> that wrong one, what else to say"""


def figures(got: Any, asked: Sequence[Asked], *, within: float = 1e-9) -> None:
    """Hold figures, in a tuple, a list, an array or a tensor, to the right ones.

    Raises:
        CheckFailed: One is wrong by more than the relative tolerance `within`, or missing.
    """
    names = ", ".join(what for what, *_ in asked)
    got = got.tolist() if isinstance(got, torch.Tensor | np.ndarray) else got
    if len(answer(got, (tuple, list), what=names)) != len(asked):
        raise CheckFailed(names, repr(got), f"{len(asked)} figures are asked, in this order")
    for value, (what, right, mistakes, otherwise) in zip(got, asked, strict=True):
        value = value.item() if getattr(value, "ndim", None) == 0 else value
        if not math.isclose(answer(value, Real, what=what), right, rel_tol=within):
            mistakes = {**mistakes, **{f"that is {other}": float(r) for other, r, *_ in asked}}
            otherwise = _another_unit(value, right) or otherwise
            meaning = diagnose(float(value), mistakes, otherwise=otherwise, within=within)
            raise CheckFailed(f"another figure for {what}", f"{value:g}", meaning)


def _another_unit(got: float, right: float) -> str | None:
    bytes_for_bits = {1: "the figure is right, in another unit", 8: "bits were taken for bytes"}
    for bits, meaning in bytes_for_bits.items():
        thousands = math.log10(got / right / bits) / 3 if 0 < got < math.inf else 0.5
        if abs(thousands - round(thousands)) < 1e-4:
            return meaning
    return "that is its inverse" if math.isclose(got * right, 1, rel_tol=1e-3) else None


def at_most(got: float, par: float, *, what: str, unit: str, meaning: str) -> None:
    """Hold a cost to its par.

    Raises:
        CheckFailed: `got` is above `par`.
    """
    if not got <= par:
        raise CheckFailed(f"{what}: at most {par:.4g} {unit}", f"{got:.4g} {unit}", meaning)


def _why_it_hangs(hang: CaseFile) -> str:
    somebody_waits = any(
        case.waiting_in
        or any("distributed" in line.filename for line in case.stack[:4])
        or (case.line and ".wait(" in case.line.source)  # a Work waits in C++, without a frame
        for case in hang.ranks
    )
    if not somebody_waits:
        return "no rank waits for another: a loop that does not end, or simply too much work"
    return (
        "a deadlock. Read who waits in which call, perhaps for a message that nobody sends. Two "
        "ranks that both send first wait for each other for ever (gloo's send returns when the "
        "receive is posted), and a rank that skips a call leaves the others waiting in it"
    )


def _shown(tensor: torch.Tensor, most: int = 6) -> str:
    values = ", ".join(f"{value:g}" for value in tensor.flatten()[:most].tolist())
    return f"[{values}{', ...' if tensor.numel() > most else ''}]"


def _indented(text: str) -> str:
    return text.replace("\n", "\n                ")
