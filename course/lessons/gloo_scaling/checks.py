"""The checks of lesson 01's exercises: a stopwatch, one call, a knee, shared memory, two readings.

Two of these exercises are about time and races. Their checks do not hope that a mistake shows:
they script the calls (`sick_calls`) and the meetings of the partners (`meetings`) so that each
usual mistake shows every time, on a busy machine too.
"""

import inspect
import math
import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch import _utils

from course import other_programs
from course.checks import boards, checking
from course.checks.checking import CheckFailed
from course.checks.trial import Case, Ran, Trial
from course.lessons.gloo_scaling import confined, evidence, meetings, sick_calls
from course.lessons.gloo_scaling.confined import Reading
from course.lessons.gloo_scaling.meetings import Meeting
from course.lessons.gloo_scaling.sick_calls import APART, SickCall
from labkit.measure import calls
from labkit.ranks.launcher import launch

# 1.1: the stopwatch

WITHIN = 0.4
"""Accepted relative error. The usual mistakes are off by a half or more."""
OWN_COST = 0.05
"""What a stopwatch may add to a call, in barriers. Reading a clock costs a thousandth of one."""
LONGEST = 20
"""What takes so many barriers is no barrier."""
ATTEMPTS = 3
"""A busy machine can spoil a reading, hardly three in a row; a mistake spoils all of them."""


def check_time_call(time_call: Callable[..., float]) -> None:
    """Judge 1.1: ``time_call(call, warmup=, iters=)``, on every rank.

    It returns, on each of them, the median over iterations of the slowest rank's seconds.
    """
    par = "within 40 % on eight sick calls, own cost at most 5 % of a barrier"
    with checking.exercise("1.1", time_call, par=par) as verdict:
        first, *others = sick_calls.SICK_CALLS
        errors = [_error(time_call, first)]
        if not launch(sick_calls.comes_through, time_call, world_size=1)[0]:
            raise CheckFailed(
                "an exception of the call comes out of the stopwatch",
                "it was swallowed",
                "a call that fails must not be timed as if it had worked: no bare `except`, "
                "and no second try",
            )
        if not launch(sick_calls.starts_anew, time_call, world_size=1)[0]:
            raise CheckFailed(
                "of a call of 0.01 s and one of 0.1 s, each its own time",
                "about the same time for both",
                "something is kept from one use of the stopwatch to the next",
            )
        own = _own_cost(time_call)
        errors += [_error(time_call, sick) for sick in others]
        if not launch(sick_calls.counts_20, time_call, world_size=1)[0]:
            raise CheckFailed("5 calls to warm up and 20 that count", "another number", _DEFAULTS)
        verdict.reached = f"within {max(errors):.0%}, own cost {own:.2%} of a barrier"


def _error(time_call: Callable[..., float], sick: SickCall) -> float:
    """Return the relative error of what was measured."""
    truth = sick.truth
    with other_programs.watch() as used:
        for _ in range(ATTEMPTS):
            got, _ = _examined(time_call, sick)
            error = abs(got / truth - 1)
            if error <= WITHIN:
                return error
    mistakes = {
        "seconds are asked for, not milliseconds": 1e3 * truth,
        "one rank's stop less another rank's start: each rank's clock has a zero of its own. Take "
        "the difference on each rank, then exchange": got if got > APART / 2 else math.nan,
        "these are all ranks' seconds together: ReduceOp.MAX gives the slowest rank's": (
            sick.together
        ),
        "the fastest call, not the typical one: sort the samples, take the middle one": (
            sick.fastest if sick.fastest < truth / 2 else math.nan
        ),
        "the clock stands while a rank waits or sleeps: process_time and thread_time count the "
        "CPU's time alone. Use time.perf_counter": got if got < truth / 20 else math.nan,
    }
    otherwise = sick.if_long if got > truth else sick.if_short
    if (used.cpus or 0) > other_programs.limit():
        otherwise = (
            f"{otherwise}. But other programs used {used.cpus:.1f} CPUs meanwhile, so it may "
        )
        otherwise += "be theirs: run this once more when they have ended"
    raise CheckFailed(
        f"{sick.name}: {truth * 1e3:.1f} ms per call, give or take {WITHIN:.0%}",
        f"{got * 1e3:.1f} ms",
        checking.diagnose(got, mistakes, otherwise=otherwise, within=0.15),
    )


def _own_cost(time_call: Callable[..., float]) -> float:
    """Return what the stopwatch adds to a call, in barriers; it is called without options."""
    try:
        inspect.signature(time_call).bind(None)
    except TypeError as missing:
        raise CheckFailed("time_call(call) is enough", f"{missing}", _DEFAULTS) from None
    tries = []
    for _ in range(2 * ATTEMPTS):
        got, barrier = _examined(time_call, sick_calls.NOTHING)
        tries.append((got / barrier, got, barrier))
        if got == 0:
            raise CheckFailed(
                "a call that does nothing: some hundred nanoseconds",
                "0 s",
                "the time was rounded, or comes from a clock that ticks too seldom",
            )
        if got <= OWN_COST * barrier:
            return got / barrier
    _, got, barrier = min(tries)  # what other programs added least to
    raise CheckFailed(
        f"a call that does nothing: at most {OWN_COST:.0%} of a barrier's time",
        f"{got / barrier:.2f} barriers",
        "the stopwatch times itself: a barrier, another collective or work of Python's own is done "
        "between start and stop"
        if got < LONGEST * barrier
        else "no barrier takes that long: is what is returned what was measured?",
    )


def _examined(time_call: Callable[..., float], sick: SickCall) -> tuple[float, float]:
    """Run a sick call under a stopwatch; return what all ranks got, and a barrier's seconds."""
    ranks = len(sick.script)
    examine = partial(checking.on_ranks, sick_calls.examine, time_call, sick, world_size=ranks)
    try:
        seen = examine(checks=sick.checks)
    except RuntimeError as error:
        if "mismatch between collectives" not in str(error):
            raise
        try:  # torch's comparison counts what monitored_barrier does differently on every rank
            seen = examine(checks=False)
        except (CheckFailed, RuntimeError):
            raise error from None
    if any(one["borrowed"] for one in seen):
        raise CheckFailed(
            "a stopwatch of your own",
            "labkit's time_calls",
            "labkit's functions are there to be read and compared with; the exercise is to write "
            "one yourself",
        )
    for one in seen:
        if one["calls"] != sick.warmup + sick.iters:
            raise CheckFailed(
                f"{sick.name}: {sick.warmup} calls to warm up and {sick.iters} that count",
                f"{one['calls']} calls",
                _DEFAULTS
                if sick.defaults
                else "there is no warm-up: the first `warmup` calls must not be counted"
                if one["calls"] == sick.iters
                else "too few calls: a loop begins with 1, ends early, or does not go by its "
                "argument"
                if one["calls"] < sick.warmup + sick.iters
                else "too many calls: one is made outside the two loops, or a loop does not go by "
                "its argument",
            )
    answers = [
        checking.answer(
            checking.plain(one["got"]), float, what=f"{sick.name}: seconds, on every rank"
        )
        for one in seen
    ]
    shown = f"{', '.join(f'{answer * 1e3:.6g}' for answer in answers)} ms on the ranks"
    if not all(map(math.isfinite, answers)):
        raise CheckFailed(
            f"{sick.name}: a time",
            shown,
            "no number: a median of no samples, or samples of which one was never filled in",
        )
    if min(answers) < 0:
        raise CheckFailed(
            f"{sick.name}: a time",
            shown,
            "a negative time: time.time() is for dates, its clock can be set back, and was (use "
            "time.perf_counter); or something is subtracted that differs from call to call",
        )
    if max(answers) > 1.001 * min(answers):
        raise CheckFailed(
            f"{sick.name}: the same answer on every rank",
            shown,
            "each rank reports its own time. A collective is done when its slowest rank is: "
            "exchange the times (all_reduce with ReduceOp.MAX) before you take the median",
        )
    return answers[0], seen[0]["barrier"]


_DEFAULTS = "who gives no `warmup` and `iters` wants 5 and 20: keep the defaults of the signature"


# 1.2: many small sums in one call

HUGE = 2**60
"""So large that neither float32 nor float64 can tell it from its neighbours; five fit an int64."""
MOST = 1.05
"""Scratch that a rank may take at one time, in S: one copy."""
LARGE = 4, 6
"""The turns of large tensors, in which it is judged."""
SUMS = {"all_reduce"}


def tensors_of(rank: int, turn: int) -> list[torch.Tensor]:
    """Make a rank's tensors of one turn: every shape, stride and type that is promised.

    Turn 0 has them all, turn 1 the same with other values, turn 5 as many in another order. Turn 2
    has many others, an infinity and small counters, alone of their dtype and with gaps.
    Turn 3 has none. Turn 4 has large ones, but of float32 fewer than before, turn 6 large ones of
    one dtype. From `LOTS_FROM` on they are drawn by lot.
    """
    if turn >= LOTS_FROM:
        return _by_lot(rank, turn)
    whole, wide = torch.int64, torch.float64
    made = partial(_values, rank, turn)
    if turn == 3:
        return []
    if turn == 4:
        large = [made((2**20,), seed, whole) for seed in range(4)]  # more than a bucket of DDP's
        return [*large, *(made((2**17,), seed, wide) for seed in range(4)), made((8,), 5)]
    if turn == 6:
        return [made((2**19,), seed) for seed in range(4)]
    if turn == 2:
        endless = made((3,), 4, wide)
        endless[rank] = math.inf
        many = [row.clone() for row in made((1100, 2), 3)]
        return [made((6, 10), 1, whole)[:, ::2], endless, made((4, 4), 2), *many]
    shaped = [made((10, 10), 1), made((0,), 7, whole), made((2, 5), 2, wide)]
    turned = made((10, 7), 4).t()  # its strides differ from rank to rank
    shaped += [made((7,), 3, whole), turned.contiguous() if rank == 1 else turned, made((), 5)]
    shaped += [made((0,), 6), made((6, 10), 8)[:, ::2]]
    shaped += [made((), 9, dtype) for dtype in (whole, wide)]
    shaped += [made((4, 6), 10, dtype)[:, ::2] for dtype in (whole, wide)]
    if turn == 5:
        shaped[0], shaped[10] = shaped[10], shaped[0]
    return [*shaped, made((2, 1, 3, 2, 2), 11)]


LOTS_FROM, LOTS = 10, 24
"""The first of the turns that are drawn by lot, and how many there are."""


def sums_in(turn: int) -> int:
    """Return how often a turn's tensors are summed: those of every fourth lot twice in a row."""
    return 2 if turn >= LOTS_FROM and turn % 4 == 0 else 1


def _by_lot(rank: int, turn: int) -> list[torch.Tensor]:
    """Draw a list: on all ranks of the same shapes, dtypes and strides; now and then of zeros."""
    lot = random.Random(turn)
    dtypes = lot.sample((torch.float32, torch.float64, torch.int64), lot.choice((1, 1, 2, 3)))
    tensors = []
    for seed in range(lot.choice((1, 2, 2, 3, 5, 9))):
        shape = tuple(lot.randint(1, 6) for _ in range(lot.choice((0, 1, 2, 2, 3))))
        dtype = dtypes[seed] if seed < len(dtypes) else lot.choice(dtypes)
        made = _values(rank, turn, (*shape, 2), seed, dtype)[..., 0]  # with gaps
        if rank == turn // 6 % 2 and turn % 6 == 1:
            made.zero_()
        strides = lot.choice(("contiguous", "gaps", "turned"))
        if strides != "gaps":
            made = made.contiguous()
        if strides == "turned":
            made = made.mT.contiguous().mT if made.dim() > 1 else made
        tensors.append(made)
    return tensors


def _values(
    rank: int,
    turn: int,
    shape: tuple[int, ...],
    seed: int,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Return a rank's numbers: sums need all the digits that the dtype has, and are exact."""
    generator = torch.Generator().manual_seed(1000 * seed + 10 * turn + rank)
    whole = torch.randint(-(2**21), 2**21, shape, generator=generator)  # sums need 24 bits
    if dtype == torch.float64:
        return whole.to(dtype) * (2**29 + 1)  # more digits than a float32 has
    return whole.to(dtype) + (HUGE if dtype == torch.int64 and turn != 2 else 0)


def check_fused_all_reduce(fused_all_reduce: Callable[..., None]) -> None:
    """Judge 1.2: ``fused_all_reduce(tensors)`` sums each in place over all ranks."""
    par = "1 call per dtype, 1 S, 1 S of extra memory"
    with checking.exercise("1.2", fused_all_reduce, par=par) as verdict:
        trial = Trial(partial(_in_place, fused_all_reduce), hint=_hint, timeout=25.0)
        lots = dict.fromkeys(range(LOTS_FROM, LOTS_FROM + LOTS), 2)
        # Last, in a launch of its own, the many tensors: for who is right with few.
        turns = {0: 3, 1: 3, 5: 3, **lots, 4: 2, 6: 2, 3: 3, 2: 2}
        cases = [Case(n, make=partial(_turn, turn=turn)) for turn, n in turns.items()]
        peaks = []
        for turn, (case, ranks) in zip(turns, trial.runs(cases), strict=True):
            sums = _sums(turn, case.world_size)
            for rank, ran in enumerate(ranks):
                _judge_calls(ran, tensors_of(rank, turn), sums_in(turn))
                _judge_sums(ran, turn, rank, sums)
            if turn in LARGE:
                nbytes = sum(t.nbytes for t in tensors_of(0, turn))
                peaks.append(max(ran.peak for ran in ranks) / nbytes)
        checking.at_most(
            max(peaks),
            MOST,
            what="memory that a rank takes meanwhile, at its peak",
            unit="S",
            meaning="a copy too many is alive: `cat` already copies, so no clone() before it, and "
            "no list of results after it",
        )
        verdict.reached = f"1 call per dtype, 1 S, {max(peaks):.2f} S of extra memory"


def _turn(case: Case, rank: int, *, turn: int) -> tuple[list[torch.Tensor], int]:
    return tensors_of(rank, turn), sums_in(turn)


_GIVEN: list[torch.Tensor] = []
"""A caller's list, which is the same one in each turn and holds other tensors."""


def _in_place(fused_all_reduce: Callable, tensors: list[torch.Tensor], times: int) -> bool:
    """Let the learner sum a list, once or twice; return whether all tensors keep their memory."""
    places, _GIVEN[:] = [(tensor.data_ptr(), tensor.stride()) for tensor in tensors], tensors
    packers = _utils._flatten_dense_tensors, _utils._unflatten_dense_tensors
    for _ in range(times):
        with checking.own_work(*packers):
            fused_all_reduce(_GIVEN)
        if [*map(id, _GIVEN)] != [*map(id, tensors)]:
            raise CheckFailed(
                f"the caller's list with its {len(tensors)} tensors, in their order",
                f"a list of {len(_GIVEN)}, with others in it or in another order",
                "the list is the caller's, who goes on with it and with its tensors: copy_ the "
                "sums into these, and clear, extend or sort a list of your own",
            )
    return [(tensor.data_ptr(), tensor.stride()) for tensor in tensors] == places


def _hint(case: Case) -> str:
    if case.make.keywords["turn"] == 3:
        return "for an empty list there is nothing to do"
    return "the lists differ: other shapes, another order of dtypes, another number of tensors"


def _judge_calls(ran: Ran, given: list[torch.Tensor], times: int) -> None:
    """Hold the calls to the only plan that is at par: an all_reduce per dtype, of its bytes."""
    plan: dict[torch.dtype, int] = {}
    for tensor in given:
        plan[tensor.dtype] = plan.get(tensor.dtype, 0) + tensor.nbytes
    made = ran.calls
    sums = {call.kind for call in made} <= SUMS
    if not sums or [(call.dtype, call.nbytes) for call in made] != list(plan.items()) * times:
        reasons = {
            "the list was summed twice, and only once was there a call: who sums the same tensors "
            "again has new values in them": times == 2 and len(made) == len(plan),
            "for an empty list there is nothing to do: make no call": not plan,
            "nothing is summed through torch.distributed: the ranks cannot know of each other": (
                not made
            ),
            "all_reduce_coalesced packs for you, where a backend has it: the exercise is to pack "
            "yourself": any(call.kind == "all_reduce_coalesced" for call in made),
            "an all_reduce sums on the way; gathering everybody's tensors moves (n-1) S instead, "
            "and every further collective pays the latency of a call once more": not sums,
            "more than one call per dtype: each pays the latency and the CPU time of a call once "
            "more. Pack all tensors of a dtype into one": len(made) > len(plan) * times,
            "a dtype is left out: its tensors are not summed at all": (
                {(call.dtype, call.nbytes) for call in made} < set(plan.items())
            ),
            "one flat tensor for several dtypes: `cat` of int64 and float32 gives float32, which "
            "has 24 bits for a number (float64 has 53). One flat tensor per dtype": (
                len(made) < len(plan) * times
            ),
            "the elements travel in another dtype than theirs": (
                set(plan) != {call.dtype for call in made}
            ),
            "the dtypes are called in another order than the list has them first. All ranks must "
            "agree on the order: dict.fromkeys keeps the list's, a set has one of its own in every "
            "process": [call.dtype for call in made] != list(plan) * times,
            "more or less travels than the elements: padding, or parts left out": True,
        }
        shown = "; ".join(f"{c.kind} of {c.nbytes} bytes, {_short(c.dtype)}" for c in made)
        asked = "; ".join(
            f"all_reduce of {n} bytes, {_short(dtype)}" for dtype, n in [*plan.items()] * times
        )
        why = next(reason for reason, holds in reasons.items() if holds)
        raise CheckFailed(asked or "no calls", shown or "no calls", why)
    if ran.unwaited or any(call.touched for call in made):
        raise CheckFailed(
            "each sum is waited for before it is read",
            "; ".join(f"{c.kind}: {c.touched or 'nobody'} before a wait" for c in made),
            "with async_op=True a call only begins: wait() for its work before you copy from its "
            "tensor",
        )


def _judge_sums(ran: Ran, turn: int, rank: int, expected: list[torch.Tensor]) -> None:
    got, world_size = ran.given[0], ran.report.world_size
    wrong = [i for i in range(len(got)) if not torch.equal(got[i], expected[i])]
    if not wrong and ran.returned:
        return
    if not wrong:
        raise CheckFailed(
            "the tensors' own memory holds the sums",
            "tensors that point at other memory",
            "assigning `.data` swaps the memory under the tensor, as_strided_ its elements; who "
            "holds a view of the old memory (an optimizer, a bucket) never sees the sum. Use copy_",
        )
    everybody = [tensors_of(r, turn) for r in range(world_size)]
    before, first = everybody[rank], wrong[0]
    order = "" if before[first].is_contiguous() else ", not contiguous"
    described = f"{_short(before[first].dtype)} of shape {tuple(before[first].shape)}{order}"
    otherwise = "parts are cut in another order or with other lengths than they were packed"
    if all(not before[i].is_contiguous() for i in wrong):
        otherwise = (
            "only tensors with gaps or another order are wrong: reshape(-1) or flatten() of such a "
            "tensor is a copy, and writing to it changes nothing. Shape the part like the tensor, "
            "not the tensor like the part. And gloo sums a tensor with gaps as if it had none"
        )
    elif before[first].is_floating_point() and _nearly(got[first], expected[first]):
        otherwise = "digits got lost: somewhere the elements or sums pass through another dtype"
    mistakes = {
        "the sums are somewhere else: in the flat tensor, or in new ones that are returned. Copy "
        "each part back into its tensor": before[first],
        "these are means: an all_reduce sums unless it is told otherwise, and nobody asked you to "
        "divide": (expected[first] / world_size).to(before[first].dtype),
        "these are the largest of all ranks' elements: ReduceOp.MAX was asked for, not SUM": (
            torch.stack([tensors[first] for tensors in everybody]).amax(0)
            if before[first].numel()
            else before[first]
        ),
        "the sum is added to what the tensor had: copy it there (copy_), do not add": (
            before[first] + expected[first]
        ),
        "these are sums times the number of ranks: a sum needs no factor": (
            expected[first] * world_size
        ),
        "our own elements times the number of ranks: the others have elements of their own": (
            before[first] * world_size
        ),
    }
    if turn == 1:
        kept = "these are the sums of the call before: the function keeps something between calls"
        mistakes[kept] = _sums(0, world_size)[first]
    if first and torch.equal(got[0], expected[0]):
        mistakes = {}  # not all are wrong
        if any(before[i].is_contiguous() for i in wrong):
            some = "as it was, while others are right: not all sums were copied into their tensors"
            mistakes[some] = before[first]
    mistakes["an infinity was replaced: nobody asked for it, and it hides what went wrong"] = (
        expected[first].nan_to_num()
    )
    checking.same_values(
        got[first],
        expected[first],
        what=f"turn {turn}, tensor {first} ({described}) on rank {rank} of {world_size}",
        meaning=checking.diagnose(got[first], mistakes, otherwise=otherwise),
    )


def _sums(turn: int, world_size: int) -> list[torch.Tensor]:
    again = world_size ** (sums_in(turn) - 1)  # by then all ranks have the same
    ranks = (tensors_of(rank, turn) for rank in range(world_size))
    return [sum(parts) * again for parts in zip(*ranks, strict=True)]


def _nearly(got: torch.Tensor, expected: torch.Tensor) -> bool:
    return got.shape == expected.shape and torch.allclose(got, expected, 1e-6)


def _short(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


# 1.3: a prediction


def check_first_slower(vote: Callable[[], str]) -> None:
    """Judge 1.3: the first number of pairs that is slower than one pair."""
    wrong = {
        "a": "2 pairs are 4 ranks: 4 / 1.5 x 60 µs = 160 µs, less than the 200 of one pair alone",
        "c": "a pair has two ranks, and each of them needs the CPU",
        "d": "these are all the CPUs that the machine shows: cpu.max allows fewer, quota / period",
    }
    with checking.exercise("1.3", vote, par="the number"):
        got = vote()
        checking.letter(lambda: got, right="b", wrong=wrong)
        text = got if isinstance(got, str) else " ".join(map(str, got))
        beside = re.fullmatch(r"\W*b\W+(\d+)(\s*pairs?)?\W*", text, re.IGNORECASE)
        if beside and beside[1] != "3":
            raise CheckFailed(
                "a letter, and perhaps its own number", repr(got), "b is another number: which one?"
            )


# 1.4: a sum through shared memory


def check_shared_sum(shared_sum: Callable[..., None]) -> None:
    """Judge 1.4: ``shared_sum(tensor, slots, me, turn, wake, wait)`` adds the partner's tensor.

    In place; ``slots`` are float32, of shape (2, 2) and then the tensor's.
    """
    with checking.exercise(
        "1.4", shared_sum, par="1 wake-up per sum, right in every meeting"
    ) as verdict:
        checking.on_ranks(_hold_meetings, shared_sum, world_size=1, hang=_POLLED)
        ranks = launch(meetings.race, shared_sum, world_size=2)
        ours, gloo = (1e6 * max(times) for times in zip(*ranks, strict=True))
        verdict.reached = f"1 wake-up per sum, {ours:.0f} µs (gloo: {gloo:.0f} µs)"


_POLLED = (
    "the partner's slot is polled: looking again and again takes a CPU, which on a busy machine is "
    "the partner's, and here it never gets on. wait() sleeps"
)


def _hold_meetings(shared_sum: Callable[..., None]) -> None:
    for habit, means in meetings.HABITS.items():
        for slow in (0, 1):
            who = f"; rank {slow} {means}" if habit else ""
            _hold(Meeting(habit, slow, large=bool(slow)), shared_sum, who)
    _hold_to_nan(shared_sum)
    habit = "dawdles when woken"
    for slow in (0, 1):
        long = Meeting(habit, slow, shape=(2,), turns=meetings.MANY)
        _hold(long, shared_sum, f"; rank {slow} {meetings.HABITS[habit]}")
    for shape in meetings.SHAPES:
        try:
            _hold(Meeting("", 0, shape=shape), shared_sum, f"; tensors of shape {shape}")
        except (RuntimeError, ValueError, IndexError, AssertionError) as error:
            if isinstance(error, CheckFailed):
                raise
            raise CheckFailed(
                f"the sum of tensors of shape {shape}",
                f"{type(error).__name__}: {error}"[:300],
                "contiguous tensors of two dimensions work. But a tensor may have any shape, also "
                "() and (0,), and gaps: it need not be contiguous",
            ) from error


def _hold_to_nan(shared_sum: Callable[..., None]) -> None:
    """Hold it to sum what is there, also a partner's nan."""
    meeting = Meeting("", 0, spoilt=True)
    try:
        meeting.hold(shared_sum)
    except meetings.Polled:
        raise CheckFailed(
            "a sum that ends, also where a tensor has nan", "a loop that does not end", _POLLED
        ) from None
    if not all(tensor.flatten()[0].isnan() for tensors in meeting.got for tensor in tensors):
        raise CheckFailed(
            "a sum with nan is nan",
            "a number",
            "a nan was left out or replaced: who hides it hides what went wrong, in the partner's "
            "tensor or between the two. A slot needs no mending once its partner has woken you",
        )


def _hold(meeting: Meeting, shared_sum: Callable[..., None], who: str) -> None:
    with calls.CallLog() as log:
        try:
            meeting.hold(shared_sum)
        except meetings.Polled:
            raise CheckFailed(
                f"a sum that waits{who}", "a loop that does not end", _POLLED
            ) from None
        except (RuntimeError, ValueError, IndexError) as error:
            if not log.calls and not meeting.large:
                raise
            if not log.calls:
                raise CheckFailed(
                    f"the sum of tensors of shape {meeting.shape}, not contiguous",
                    f"{type(error).__name__}: {error}"[:300],
                    "small contiguous tensors work. But a tensor may be of any size, and "
                    "view(-1) of one that is not contiguous fails: copy in its own shape",
                ) from error
    if meeting.borrowed:
        raise CheckFailed(
            "a sum of your own",
            "the course's shared_sum",
            "the course's functions are there to be read and compared with; the exercise "
            "is to write one yourself",
        )
    if log.calls:
        raise CheckFailed(
            "a sum through `slots`, `wake` and `wait`",
            f"a call of {log.calls[0].kind}",
            "torch.distributed does the sum here, not the shared memory: that is what you "
            "are to be faster than",
        )
    _judge_meeting(meeting, who)


def _judge_meeting(meeting: Meeting, who: str) -> None:
    for turn, tensors in enumerate(zip(*meeting.got, strict=False)):
        data = [meeting.data(turn, rank) for rank in (0, 1)]
        unwritten = [bool(tensor.isnan().any()) for tensor in tensors]
        for rank in sorted((0, 1), key=lambda rank: not unwritten[rank]):  # nan tells the most
            tensor = tensors[rank]
            meaning = _why_the_sum(tensor, turn, rank, meeting)
            what = f"turn {turn} on rank {rank}{who}"
            checking.same_values(tensor, data[0] + data[1], what=what, meaning=meaning)
    if not meeting.kept:
        raise CheckFailed(
            f"the sum in the tensor's own memory{who}",
            "a tensor that points at other memory",
            "`.data =` and `set_` swap the memory under a tensor: whoever holds a view of the old "
            "one never sees the sum. Add in place (add_)",
        )
    if meeting.stuck is not None:
        raise CheckFailed(
            f"every wait() ends{who}",
            f"rank {meeting.stuck}'s number {meeting.waits[meeting.stuck]} was never answered",
            "each waits before it wakes the other, so that both sleep"
            if any(meeting.wakes)
            else "nobody calls wake(): each partner must wake the other",
        )
    counts = {*meeting.wakes, *meeting.waits}
    if min(counts) < meeting.turns:
        raise CheckFailed(
            "1 wake() and 1 wait() per sum",
            f"{meeting.wakes} and {meeting.waits} on the ranks, in {meeting.turns} sums",
            "there are sums without a wait() or a wake(): that the slot has changed does not say "
            "that all of it is written",
        )
    if counts != {meeting.turns}:
        raise CheckFailed(
            "1 wake() and 1 wait() per sum",
            f"{meeting.wakes} and {meeting.waits} on the ranks, in {meeting.turns} sums",
            "the values are right, but the partners meet twice. A second meeting does keep the "
            "fast one from overwriting; writing to the other half in every second turn is free",
        )


def _why_the_sum(got: torch.Tensor, turn: int, rank: int, meeting: Meeting) -> str:
    """Name the mistake that leads to this value."""
    mine = meeting.data(turn, rank)
    if not any(meeting.waits):
        return "wait() is never called: the partner's slot is read before the partner wrote it"
    if torch.isnan(got).any():
        return (
            "we read a slot that the partner had not written in this turn. What does a wake-up "
            "promise to who is woken? And do both partners mean the same half?"
        )
    copied = "" if got.is_contiguous() else "reshape(-1) of one that is not contiguous is a copy; "
    mistakes = {
        f"the tensor is as it was: {copied}`tensor = tensor + ...` makes a new one, so add in "
        "place (add_); or the partner's slot was cleared before we had read it": mine,
        "this is twice our own tensor: the partner's slot is the one at 1 - me": 2 * mine,
        "this is the mean: the sum is asked": (mine + meeting.data(turn, 1 - rank)) / 2,
        "we read what the partner wrote for the *next* turn: it was faster and overwrote its slot "
        "before we had read it. Two halves, used in turns, make that impossible": (
            mine + meeting.data(turn + 1, 1 - rank)
        ),
    }
    otherwise = (
        "more wake-ups than sums: one that is left over lets a later wait() return too early"
        if max(meeting.wakes) > meeting.turns
        else "there are sums without a wait(): then the partner's slot may still be an old one"
        if max(meeting.waits) < max(meeting.wakes)
        else "it is neither our tensor, nor twice our own, nor the next turn's: which slot was "
        "read, and what was written there last?"
    )
    return checking.diagnose(got, mistakes, otherwise=otherwise)


# 1.5: two launches, one of them confined


def check_confinement(confinement: Callable[[Reading], tuple[str, float]]) -> None:
    """Judge 1.5: ``confinement(reading)`` names what holds a rank back, and counts its CPUs.

    On readings in the kernel's format, and on two launches that are made here and now.
    """
    with checking.exercise("1.5", confinement, par="every reading") as verdict:
        for title, reading, hint, answer in _confinements(confinement):
            right = confined.answer(reading)
            got = checking.plain(answer)
            got = list(checking.answer(got, (tuple, list), what=f"{title}: a name and a number"))
            if len(got) != 2:
                raise CheckFailed("a name and a number", repr(got), "two things are asked")
            name = checking.word(got[0], confined.NAMES, what=title)
            cpus = checking.answer(got[1], Real, what=f"{title}: CPUs")
            if name != right[0]:
                raise CheckFailed(f"{title}: another name", name, hint or confined.OTHERWISE)
            if not math.isclose(cpus, right[1], rel_tol=1e-6):
                raise CheckFailed(
                    f"{title}: another number of CPUs", f"{cpus:g}", confined.why(reading, cpus)
                )
        verdict.reached = f"{len(confined.CASES) + 2 + READINGS} readings"


READINGS = 200
"""Those that are drawn by lot."""


def _confinements(confinement: Callable) -> Iterator[tuple[str, Reading, str, Any]]:
    """Yield title, reading, hint and what was answered; those drawn by lot are asked at once."""
    for title, one, hint in confined.CASES:
        yield title, one, hint, checking.ask(confinement, one, case=f"{title}, {one}")
    lots = [confined.by_lot(number) for number in range(READINGS)]
    answers = checking.ask_each(confinement, [(one,) for one in lots])
    for one, answer in zip(lots, answers, strict=True):
        yield f"a reading drawn by lot, {one}", one, "", answer
    for one in confined.two_launches().values():  # they take longest: for who got as far as here
        title = "a launch made just now"
        yield title, one, "", checking.ask(confinement, one, case=f"{title}, {one}")


# 1.6: two boards

WHO = boards.WhoWasIt("1.6", evidence.INVESTIGATION, {"first": "c", "second": "a"})
