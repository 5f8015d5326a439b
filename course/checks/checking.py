"""What every `check_*` is built on: ask the learner's function, judge, and say why.

A check is a page that a learner reads as the specification, 30 to 60 lines long::

    USUAL = {"that is the shortest of them": 1.0}    # what it usually means -> the wrong value

    def check_longest(longest):
        '''Judge exercise 6.1: the longest of some times; the list is not sorted.'''
        with checking.exercise("6.1", longest, par="the longest time"):
            times = [1.0, 3.0, 2.0]
            asked = ("the longest time, in s", 3.0, USUAL, "compare all of them")
            checking.figures([checking.ask(longest, times)], [asked])

It holds values first, on few cases, then the stated par: bytes, calls, memory, overlap. It names at
most five mistakes, those that learners really make; for all others `hold` says honestly what was
expected and what came. It does not look for what only somebody would write who wants to get past
it. What needs ranks is tried by `course.checks.trial`, on data that differ from rank to rank.

Whatever is wrong with an answer raises `CheckFailed`, from each function here; an exercise that was
not attempted, or in which an `...` is left, fails with its `NotImplementedError`.
"""

import copy
import dis
import math
import os
import re
import textwrap
import traceback
from collections.abc import Callable, Iterator, KeysView, Mapping, Sequence, ValuesView
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import torch

from course.place import launch
from course.predictions import claims, ledger, ledger_file
from course.predictions.figures import parted
from labkit.ranks.errors import CaseFile, LaunchTimeout, Line, RankCase, RankDied, RankTraceback
from labkit.ranks.machine import usable_cpus

T = TypeVar("T")
NO_RETURN = "the function ends without `return` on this path"
DEADLOCK = """a deadlock. Read who waits in which call, perhaps for a message that nobody sends or
receives. Two ranks that both send first wait for each other for ever (gloo's send returns when
the receive is posted), and a rank that skips a call leaves the others waiting in it"""
OTHER_SIZES = """a buffer with another dtype than the tensor's (use torch.empty_like or
tensor.new_empty), or pieces or calls that the ranks cut or order differently: those of several
threads, or in an order that comes from values, sets or the rank"""


class CheckFailed(AssertionError):
    """An answer that is not right yet; `timed`: by a clock, which other programs may disturb."""

    def __init__(self, expected: str, got: str, meaning: str = "", *, timed: bool = False) -> None:
        super().__init__(expected, got, meaning)
        self.expected, self.got, self.timed = expected, got, timed
        self.meaning = " ".join(meaning.split())  # it may be written in lines
        self.number: str | None = None  # the exercise's, set by `exercise`

    def __str__(self) -> str:
        title = f"exercise {self.number} is not right yet" if self.number else "not right yet"
        title += f", {claims.BY_THE_CLOCK}" if self.timed else ""
        fields = [f"expected      {self.expected}", f"got           {self.got}"]
        if self.meaning:
            fields.append(f"usually means {textwrap.fill(self.meaning, 84)}")
        return "\n  ".join([title, *(field.replace("\n", "\n" + 16 * " ") for field in fields)])

    def _render_traceback_(self) -> list[str]:
        """Show a notebook the message alone: the course's own frames would bury it."""
        return [str(self)]


@contextmanager
def exercise(
    number: str, *answers: Any, par: str, raises: Mapping[str, str] | None = None
) -> Iterator[SimpleNamespace]:
    """Judge an exercise, like `1.2`: name it in a failure; on success say so and note it.

    While one of the `answers`, the learner's functions, is as it was given, nothing is run. `par`
    is the budget in the statement's words. `raises`: words of an exception -> what that usually
    means. Set `reached` of what is yielded to what the answer reached; as it may be measured, it is
    left out where nobody reads it: there nbval compares the line with the stored one.
    """
    verdict, is_open = SimpleNamespace(reached=""), f"exercise {number}: not attempted yet"
    try:
        for answer in answers:
            code = getattr(answer, "__code__", None)
            if code and any(line.argval == is_open for line in dis.get_instructions(code)):
                raise NotImplementedError
            a_value = "its name stands for a value now"
            hold(callable(answer), "a function", repr(answer)[:200], a_value)
        yield verdict
    except CheckFailed as failure:
        failure.number = number
        raise
    except NotImplementedError as untouched:
        untouched.args = (is_open,)
        untouched._render_traceback_ = lambda: [is_open]  # what a notebook shows of it
        raise
    except Exception as error:
        refusal = _refusal(error, answers, par, raises or {})
        if refusal is None:
            raise
        refusal.number = number
        raise refusal from error
    except KeyboardInterrupt as stop:
        shown = f"exercise {number}: interrupted\n{_learners_lines(stop)}"
        stop._render_traceback_ = lambda: [shown]
        raise
    ledger.passed(number)
    is_told = verdict.reached and not ledger_file.nobody_answers()
    reached = f"you reached {verdict.reached}; " if is_told else ""
    print(f"✔ Exercise {number} passed: {reached}par is {par}.")


def _refusal(
    error: Exception, answers: Sequence[Any], par: str, raises: Mapping[str, str]
) -> CheckFailed | None:
    """Return what is said of an exception that is the learner's own; None of another."""
    if lines := _learners_lines(error):
        meanings = [text for words, text in raises.items() if words in str(error)]
        return CheckFailed(par, lines, *meanings[:1])
    if _has_another_signature(answers, error):
        another = "its first line is not the one that was given"
        return CheckFailed(par, f"TypeError: {error}", another)
    return None


def _has_another_signature(answers: Sequence[Any], error: Exception) -> bool:
    """Tell whether an answer could not even be called: Python names it, then what it lacks."""
    calls = tuple(f"{getattr(answer, '__qualname__', None)}() " for answer in answers)
    return isinstance(error, TypeError) and str(error).startswith(calls)


def _learners_lines(error: BaseException) -> str:
    """Return the learner's part of a traceback, the exception last; empty if it has none."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    is_ranks = isinstance(cause, RankTraceback)
    text = str(cause) if is_ranks else "".join(traceback.format_exception(error))
    places = re.findall(r'File "(.+)", line (\d+), in (.+)', text)
    stack = [Line(filename, int(number), name) for filename, number, name in places]
    theirs = [line for line in stack if line.of_program or line.filename.startswith("<")]
    lines = [text for line in theirs for text in line.lines()]
    last = "".join(traceback.format_exception_only(error)).strip()
    return "\n".join([*lines, last]) if lines else ""


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
    """
    limit, n = patience(timeout), f"n={world_size}"
    try:
        return launch(program, *args, world_size=world_size, timeout=limit, checks=checks)
    except LaunchTimeout as late:
        raise CheckFailed(*_endless(late.case, limit), hang or _why_it_hangs(late.case)) from None
    except RankDied as death:
        sizes = re.search(r"op.preamble.length <= op.nbytes. (\d+) vs (\d+)", str(death))
        if not sizes:
            raise
        lengths = f"a message of {sizes[1]} bytes met a receive of {sizes[2]}"
        same = f"{n}: a receive is as long as the message"
        raise CheckFailed(same, lengths, OTHER_SIZES) from None
    except RuntimeError as error:
        if not speaks_to_itself(error):
            raise
        itself = f"a rank that speaks to itself:\n{_learners_lines(error)}"
        others = f"{n}: each rank sends to another rank, and receives from another"
        raise CheckFailed(others, itself, TO_ITSELF) from None


def _endless(hang: CaseFile, limit: float) -> tuple[str, str]:
    """Say what was expected of ranks that did not end, and where they are."""
    ranks = [_in_short(case) for case in hang.ranks]
    if len(ranks) == 1:
        lines = [text for line in ranks[0].stack for text in line.lines()]
        return f"it ends within {limit:.3g} s", "\n".join(["it did not:", *lines])
    shown = f"ranks {hang.running} did not:\n{CaseFile(tuple(ranks))}"
    return f"n={len(ranks)}: all ranks finish within {limit:.3g} s", shown


def speaks_to_itself(error: BaseException) -> bool:
    """Say whether a rank of gloo sent to itself: it has no connection there, in either wording."""
    return any(text in str(error) for text in ("Pair is not connected", "state_ >= CONNECTED"))


TO_ITSELF = """the neighbour is this rank itself: on one rank there is none, so nothing is sent;
else look at where `% n` or a difference of ranks comes to the rank's own number"""


def _in_short(case: RankCase) -> RankCase:
    """Leave out calls that have ended, and the frames that are not the learner's."""
    unended = tuple(call for call in case.entered if not call.finished)
    return replace(case, entered=unended, stack=tuple(x for x in case.stack if x.of_program))


def _why_it_hangs(hang: CaseFile) -> str:
    for case in hang.ranks:
        in_torch = any("distributed" in line.filename for line in case.stack[:4])
        in_wait = case.line and ".wait(" in case.line.source  # a Work's, in C++, without a frame
        if case.waiting_in or in_torch or in_wait:
            return DEADLOCK
    return "no rank waits for another: a loop that does not end, or simply too much work"


def patience(seconds: float) -> float:
    """Return a limit of time for the machine as it is: up to four times as long on a busy one."""
    return seconds * min(4.0, max(1.0, os.getloadavg()[0] / usable_cpus()))


def ask(function: Callable[..., Any], *args: Any, case: str = "") -> Any:
    """Call a learner's function that needs no ranks, here; return what `plain` makes of it.

    An exception of its own names the `case`; a loop without an end is interrupted by who waits.
    """
    given = copy.deepcopy(args)
    with named(case):
        result = plain(function(*args))
    now = f"{args} instead of {given}"[:300]
    usual = "the function changes what it was given, and the caller still needs it: use a copy"
    hold(args == given, "arguments as they were before the call", now, usual)
    return result


@contextmanager
def named(case: str) -> Iterator[None]:
    """Have an exception of the learner's own name the case in which it was raised."""
    try:
        yield
    except Exception as error:
        if case:
            error.add_note(f"in the case: {case}")
        raise


def hold(
    condition: object, expected: str, got: object, meaning: str = "", *, timed: bool = False
) -> None:
    """Refuse an answer unless a condition holds."""
    if not condition:
        raise CheckFailed(expected, str(got), meaning, timed=timed)


def at_most(
    got: float, par: float, *, what: str, unit: str = "", meaning: str, timed: bool = False
) -> None:
    """Hold a cost to its par; `timed` where a clock measured it."""
    expected = f"{what}: at most {par:.4g} {unit}"
    hold(got <= par, expected.rstrip(), f"{got:.4g} {unit}".rstrip(), meaning, timed=timed)


def same_values(
    got: Any,
    expected: torch.Tensor,
    *,
    what: str,
    meaning: str,
    mistakes: Mapping[str, Any] | None = None,
    within: float = 0.0,
) -> None:
    """Hold two tensors to be equal in shape and in every element, or `within` a share of the most.

    `mistakes`, as in `diagnose`, are what else may be meant than `meaning`.
    """
    hold(got is not None, f"{what}: {_shown(expected)}", got, NO_RETURN)
    values = torch.as_tensor(got).detach()
    shape, right_shape = tuple(values.shape), tuple(expected.shape)
    hold(shape == right_shape, f"{what}: shape {right_shape}", f"shape {shape}", meaning)
    differs = ~_close(values, expected, within).flatten()
    if differs.any():
        first = int(differs.nonzero()[0])
        pair = values.flatten()[first].item(), expected.flatten()[first].item()
        wrong, right = (f"{value:g}" for value in pair)
        if wrong == right:  # all digits tell them apart
            wrong, right = map(repr, pair)
        shown = f"{_shown(values)}; {int(differs.sum())} of {values.numel()} elements differ, "
        shown += f"the first at index {first}: {wrong} instead of {right}"
        usual = diagnose(values, mistakes or {}, otherwise=meaning, within=within)
        raise CheckFailed(f"{what}: {_shown(expected)}", shown, usual)


def _close(got: torch.Tensor, expected: torch.Tensor, within: float) -> torch.Tensor:
    return (got - expected).abs() <= within * expected.abs().max() if within else got == expected


def _shown(tensor: torch.Tensor) -> str:
    values = ", ".join(f"{value:g}" for value in tensor.flatten()[:6].tolist())
    return f"[{values}{', ...' if tensor.numel() > 6 else ''}]"


def diagnose(got: Any, mistakes: Mapping[str, Any], *, otherwise: str, within: float = 0.0) -> str:
    """Name the mistake that gives just what was got; return `otherwise` where none does.

    `mistakes`: what is usually meant -> the figure or tensor which that gives. `within` is a
    relative tolerance.
    """

    def fits(wrong: Any) -> bool:
        if not isinstance(got, torch.Tensor):
            return math.isclose(got, wrong, rel_tol=within or 1e-9)
        alike = got.dtype == wrong.dtype and got.shape == wrong.shape
        return alike and bool(_close(got, wrong, within).all())

    return next((meaning for meaning, wrong in mistakes.items() if fits(wrong)), otherwise)


def answer(got: T, kind: type[T] | tuple[type, ...], *, what: str) -> T:
    """Return what a learner's function returned if it is of the right kind at all.

    `float` admits whole numbers; no type admits True and False but `bool`. `what` says in words
    what the function is to return: ``"the rank that was late"``.
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    names = " or ".join("a number" if kind is Real else kind.__name__ for kind in kinds)
    admitted = (*kinds, int) if float in kinds else kinds
    fits = isinstance(got, admitted) and (bool in kinds or not isinstance(got, bool))
    another = f"another type was returned than the statement asks for: {type(got).__name__}"
    hold(fits, f"{what}: {names}", repr(got)[:200], NO_RETURN if got is None else another)
    return got


def plain(got: Any) -> Any:
    """Return what a learner's function returned in Python's own kinds, inside of containers, too.

    Tensors and arrays become numbers or lists; what is yielded becomes a list.
    """
    if got is ...:
        raise NotImplementedError("an answer is left open: ...")
    if isinstance(got, torch.Tensor | np.ndarray | np.generic):
        return got.tolist()
    if isinstance(got, Iterator | KeysView | ValuesView):
        return plain(list(got))
    if isinstance(got, Mapping):
        return {key: plain(value) for key, value in got.items()}
    if isinstance(got, tuple | list | set | frozenset):
        kind = tuple if hasattr(got, "_fields") else type(got)
        return kind(plain(part) for part in got)
    return got


def number(got: Any, *, what: str) -> float:
    """Read a figure: a number, one in an array, or text as people write it: "123,456", "2.5 ms"."""
    figure = plain(got)
    while isinstance(figure, list | tuple) and len(figure) == 1:
        figure = figure[0]
    if isinstance(figure, str) and (parts := parted(figure)):
        return parts[0]
    return answer(figure, Real, what=what)


def word(got: Any, known: Sequence[str], *, what: str) -> str:
    """Return the name of `known` that was meant, whatever its case, dots, dashes and blanks."""

    def bare(text: str) -> str:
        return re.sub(r"[\W_]+", "", text).lower()

    typed, names = plain(got), ", ".join(known)
    meant = {bare(name): name for name in known}
    name = meant.get(bare(typed)) if isinstance(typed, str) else None
    hold(name, f"{what}: one of {names}", repr(typed)[:200], f"there is {names}")
    return str(name)


def chosen(got: Any, letters: Sequence[str]) -> str:
    """Return the letter that was chosen: "C", "c: because ...", "Answer: c", ("why", "c")."""
    typed = plain(got)
    parts = typed if isinstance(typed, tuple | list | set | frozenset) else [typed]
    texts = [part.strip().lower() for part in parts if isinstance(part, str)]
    letter = f"([{re.escape(''.join(letters))}])(?![\\w'])"
    another = rf"(?:\s*(?:or\b|and\b|[/,;+&]))+\s*{letter}"
    first = rf"\W*(?:(?:my\s+)?(?:answer|vote)(?:\s+is)?\W*)?{letter}(?!{another})"
    alone = [match[1] for text in texts if (match := re.fullmatch(rf"\W*{letter}\W*", text))]
    votes = alone or [match[1] for text in texts if (match := re.match(first, text))]
    meaning = NO_RETURN if got is None else f"answer with one letter: {', '.join(letters)}"
    hold(len(votes) == 1, "a letter", repr(typed)[:200], meaning)
    return votes[0]


def letter(vote: Callable[[], Any], *, right: str, wrong: Mapping[str, str]) -> None:
    """Hold a learner's vote to the right letter; `wrong` says what each other usually means."""
    got = chosen(vote(), sorted([*wrong, right]))
    hold(got == right, "another letter", repr(got), wrong.get(got, ""))


Asked = tuple[str, float, Mapping[str, float], str]
"""A figure: what it is, the right one, what is usually meant -> that wrong one, what else to say"""


def figures(got: Any, asked: Sequence[Asked], *, within: float = 1e-9) -> None:
    """Hold figures to the right ones: in a tuple, a list, an array, a dict, or in pairs of such."""
    whats, given = [what for what, *_ in asked], plain(got)
    names = ", ".join(whats)
    row = _in_a_row(_by_name(given, whats) if isinstance(given, dict) else given)
    alike = len(answer(row, (tuple, list), what=names)) == len(asked)
    hold(alike, names, repr(row)[:200], f"{len(asked)} figures are asked, in this order")
    others = {f"that is {what}": float(figure) for what, figure, *_ in asked}
    for figure, (what, right, mistakes, otherwise) in zip(row, asked, strict=True):
        hold(figure is not None, f"{what}: a number", "None", "this figure is missing")
        value = number(figure, what=what)
        usual = _another_unit(value, right) or otherwise
        meaning = diagnose(value, {**mistakes, **others}, otherwise=usual, within=within)
        is_right = math.isclose(value, right, rel_tol=within)
        hold(is_right, f"another figure for {what}", f"{float(value):g}", meaning)


def _by_name(got: dict, asked: Sequence[str]) -> dict:
    """Put a dict's figures into the order asked, where each key begins the name of one of them."""
    order = {}
    for key, figure in got.items():
        places = [k for k, name in enumerate(asked) if name.lower().startswith(str(key).lower())]
        if len(places) != 1:
            return got
        order[places[0]] = figure
    return dict(sorted(order.items()))


def _in_a_row(got: Any) -> Any:
    """Return figures in one list, in the order in which they stand in lists and dicts."""
    if isinstance(got, dict):
        return _in_a_row([*got.values()])
    if not isinstance(got, list | tuple):
        return got
    parts = [_in_a_row(part) for part in got]
    return [figure for part in parts for figure in (part if isinstance(part, list) else [part])]


def _another_unit(got: float, right: float) -> str | None:
    bytes_for_bits = {1: "the figure is right, in another unit", 8: "bits were taken for bytes"}
    if not 0 < got < math.inf:
        return None
    for bits, meaning in bytes_for_bits.items():
        thousands = math.log10(got / right / bits) / 3
        if abs(thousands) < 5 and abs(thousands - round(thousands)) < 1e-4:  # ns for TB: four
            return meaning
    return "that is its inverse" if math.isclose(got * right, 1, rel_tol=1e-3) else None
