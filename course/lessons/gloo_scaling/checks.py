"""The checks of lesson 01's exercises.

Two of these exercises are about time and races. Their checks do not hope that a mistake shows:
they script the calls (`sick_calls`) and the meetings of the partners (`meetings`) so that each
usual mistake shows every time, on a busy machine too.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from course import checking
from course.checking import CheckFailed
from course.lessons.gloo_scaling import machines, meetings, sick_calls
from course.lessons.gloo_scaling.machines import CASES, KNEES, LAWS, PAIRS, Figures
from course.lessons.gloo_scaling.sick_calls import SickCall
from labkit.measure import calls, memory, timing
from labkit.ranks.launcher import launch

# 1.1: the stopwatch

WITHIN = 0.4
"""Accepted relative error. The usual mistakes are off by a factor of 2 or more."""
OWN_COST = 0.05
"""What a stopwatch may add to a call, in barriers. Reading a clock costs a thousandth of one."""
PATIENCE = 5.0
"""Seconds for one sick call, which takes half of one at most."""
ATTEMPTS = 3
"""A busy machine can spoil a reading, hardly three in a row; a mistake spoils all of them."""


def check_time_call(time_call: Callable[..., float]) -> None:
    """Judge 1.1: ``time_call(call, warmup=, iters=, group=)``, on every rank of a group.

    It returns, on each of them, the median over iterations of the slowest rank's seconds.
    """
    par = "within 40 % on seven sick calls, own cost at most 5 % of a barrier"
    with checking.exercise("1.1", par=par) as verdict:
        first, *others = sick_calls.SICK_CALLS
        errors = [_error(time_call, first)]
        own = _own_cost(time_call)
        errors += [_error(time_call, sick) for sick in others]
        verdict.reached = f"within {max(errors):.0%}, own cost {own:.2%} of a barrier"


def _error(time_call: Callable[..., float], sick: SickCall) -> float:
    """Return the relative error of what was measured."""
    for _ in range(ATTEMPTS):
        seen = _examined(time_call, sick)
        got = seen[0]["got"]
        truth = sick.slowest([one["durations"] for one in seen])
        error = abs(got / statistics.median(truth) - 1)
        if error <= WITHIN:
            return error
    raise CheckFailed(
        f"{sick.name}: {statistics.median(truth) * 1e3:.1f} ms per call, give or take {WITHIN:.0%}",
        f"{got * 1e3:.1f} ms",
        _why_the_time(got, truth, sick),
    )


def _why_the_time(got: float, truth: list[float], sick: SickCall) -> str:
    """Name the mistake that gives this time, from what the calls really took."""
    middle = statistics.median(truth)
    if got < middle / 20:
        return (
            "the clock stands while a rank waits or sleeps: process_time and thread_time count the "
            "CPU's time alone. Use time.perf_counter"
        )
    ordered = sorted(truth)
    mistakes = {
        "a mean lets one slow call decide; the median does not": statistics.fmean(truth),
        "a mean without its extremes still depends on how slow the slow calls are: take the "
        "median": statistics.fmean(ordered[1:-1] or ordered),
        "the fastest call is the luckiest one: take the median": ordered[0],
        "the slowest call is an accident: take the median": ordered[-1],
    }
    otherwise = sick.if_long if got > middle else sick.if_short
    spread_out = ordered[-1] > 2 * ordered[0]  # else these figures are all alike
    return checking.diagnose(got, mistakes if spread_out else {}, otherwise=otherwise, within=0.15)


def _examined(time_call: Callable[..., float], sick: SickCall) -> list[dict[str, Any]]:
    """Run a sick call under a stopwatch; return what each rank of the group saw."""
    hang = (
        "not all ranks make the same calls. If ranks outside the group are waited for, a "
        "collective lacks group=group. In general: {general}"
    )
    program = (sick_calls.examine, time_call, sick)
    ranks = {"world_size": len(sick.script), "timeout": PATIENCE}
    results = checking.on_ranks(*program, **ranks, hang=hang)
    seen = [result for result in results if result is not None]
    for one in seen:
        made, asked = len(one["durations"]), sick.warmup + sick.iters
        if made != asked:
            raise CheckFailed(
                f"{sick.name}: {sick.warmup} calls to warm up and {sick.iters} that count",
                f"{made} calls",
                "there is no warm-up: the first `warmup` calls must not be counted"
                if made == sick.iters
                else "a call too many or too few: some call is made outside the two loops",
            )
        checking.answer(one["got"], float, what=f"{sick.name}: seconds, on every rank")
    answers = [one["got"] for one in seen]
    if max(answers) > 1.001 * min(answers):
        raise CheckFailed(
            f"{sick.name}: the same answer on every rank",
            f"{', '.join(f'{answer * 1e3:.2f}' for answer in answers)} ms on the ranks",
            "each rank reports its own time. A collective is done when its slowest rank is: "
            "exchange the times (all_reduce with ReduceOp.MAX) before you take the median",
        )
    return seen


def _own_cost(time_call: Callable[..., float]) -> float:
    """Return what the stopwatch adds to a call, in barriers."""
    for _ in range(ATTEMPTS):
        seen = _examined(time_call, sick_calls.NOTHING)
        own = seen[0]["got"] / seen[0]["barrier"]
        if own <= OWN_COST:
            return own
    raise CheckFailed(
        f"a call that does nothing: at most {OWN_COST:.0%} of a barrier's time",
        f"{own:.2f} barriers",
        "the stopwatch times itself: a barrier or another collective runs between start and stop",
    )


# 1.2: many small sums in one call

HUGE = 2**60
"""So large that neither float32 nor float64 can tell it from its neighbours; five fit an int64."""
COUNT, LENGTH = 64, 4096
"""The tensors of the case whose memory is watched: 64 of 16 KiB."""
_ERRORS = {
    "view size is not compatible": "`view` cannot flatten a tensor with gaps or in another order, "
    "such as a transposed one; `reshape(-1)` copies it where it must",
    "equal size": "`stack` needs equal shapes; flatten each tensor, then `cat`",
    "zero-dimensional": "a 0-dimensional tensor has no axis to join along: flatten it first",
}


def tensors_of(rank: int, turn: int) -> list[torch.Tensor]:
    """Make a rank's tensors of one turn: every shape, stride and type that is promised.

    Turn 0 has them all, turn 1 the same with other values, turn 2 others, with the integers first;
    turn 3 has none.
    """

    def made(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1000 * seed + 10 * turn + rank)
        whole = torch.randint(-(2**21), 2**21, shape, generator=generator)  # sums need 24 bits
        return whole.to(dtype) + (HUGE if dtype == torch.int64 else 0)

    if turn == 3:
        return []
    if turn == 2:
        return [made((5,), 1, torch.int64), made((4, 4), 2), made((4, 4), 3)]
    return [
        made((10, 10), 1),
        made((10, 10), 2),
        made((7,), 3, torch.int64),
        made((10, 7), 4).t(),
        made((), 5),
        made((0,), 6),
        made((2, 5, 7), 7),
        made((6, 10), 8)[:, ::2],
        made((), 9, torch.int64),
    ]


def check_fused_all_reduce(fused_all_reduce: Callable[..., None]) -> None:
    """Judge 1.2: ``fused_all_reduce(tensors, group)`` sums each in place over the group."""
    par = "1 call per dtype, 1 S, 1 S of extra memory"
    with checking.exercise("1.2", par=par) as verdict:
        for world_size in (4, 3):
            results = checking.on_ranks(_fused, fused_all_reduce, world_size=world_size)
            for rank, turns in enumerate(results):
                for turn, result in enumerate(turns):
                    _judge_calls(result, tensors_of(rank, turn), members_of(rank, world_size))
                    _judge_sums(result, turn, rank, world_size)
        peak = max(checking.on_ranks(_peak, fused_all_reduce, world_size=2))
        checking.at_most(
            peak,
            1.1,
            what="memory of tensors that the function makes, at its peak",
            unit="S",
            meaning="a copy too many is alive: `cat` already copies, so no clone() before it, and "
            "no list of results after it",
        )
        verdict.reached = f"1 call per dtype, 1 S, {peak:.2f} S of extra memory"


def members_of(rank: int, world_size: int) -> list[int]:
    """Return the ranks that sum together: pairs where there are four ranks, else all."""
    first = rank - rank % 2
    return [first, first + 1] if world_size == 4 else list(range(world_size))


def _fused(fused_all_reduce: Callable[..., None]) -> list[dict[str, Any]]:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])] if world_size == 4 else [None] * 2
    results = []
    for turn in range(4):
        given = tensors_of(rank, turn)
        places = [tensor.data_ptr() for tensor in given]
        with calls.CallLog() as log:
            try:
                with checking.own_work():
                    fused_all_reduce(list(given), groups[rank // 2 % 2])
            except CheckFailed:
                raise
            except Exception as error:
                known = next((why for text, why in _ERRORS.items() if text in str(error)), None)
                if given and known is None:
                    raise
                known = known or "for an empty list there is nothing to do"
                return [*results, {"error": repr(error), "meaning": known}]
        moved = [tensor.data_ptr() for tensor in given] != places
        got = [tensor.clone() for tensor in given]
        results.append({"got": got, "moved": moved, "calls": log.calls})
    return results


def _judge_calls(result: dict[str, Any], given: list[torch.Tensor], members: list[int]) -> None:
    """Hold the calls to the only plan that is at par: an all_reduce per dtype, of its bytes."""
    if "error" in result:
        what = "sums of tensors of any shape" if given else "no tensors, no calls"
        raise CheckFailed(what, result["error"], result["meaning"])
    plan: dict[torch.dtype, int] = {}
    for tensor in given:
        plan[tensor.dtype] = plan.get(tensor.dtype, 0) + tensor.nbytes
    made = result["calls"]
    got = [(call.dtype, call.nbytes) for call in made]
    kinds = {call.kind for call in made}
    if got == list(plan.items()) and kinds <= {"all_reduce", "all_reduce_coalesced"}:
        if made and any(call.ranks != tuple(members) for call in made):
            raise CheckFailed(f"ranks {members} sum", f"{made[0].ranks}", "pass group=group")
        if any(call.waited is None or call.touched for call in made):
            raise CheckFailed(
                "each sum is waited for before it is read",
                "; ".join(f"{c.kind}: {c.touched or 'nobody'} before a wait" for c in made),
                "with async_op=True a call only begins: wait() for its work before you copy from "
                "its tensor",
            )
        return
    shown = "; ".join(f"{call.kind} of {call.nbytes} bytes, {_short(call.dtype)}" for call in made)
    asked = "; ".join(f"all_reduce of {n} bytes, {_short(dtype)}" for dtype, n in plan.items())
    raise CheckFailed(asked or "no calls", shown or "no calls", _why_the_calls(made, plan, given))


def _why_the_calls(
    made: Sequence[calls.Call], plan: dict[torch.dtype, int], given: list[torch.Tensor]
) -> str:
    if not made:
        return "nothing is summed through torch.distributed: the ranks cannot know of each other"
    if not {call.kind for call in made} <= {"all_reduce", "all_reduce_coalesced"}:
        return (
            "an all_reduce sums on the way; gathering everybody's tensors moves (n-1) S instead, "
            "and every further collective pays the latency of a call once more"
        )
    if len(made) >= len(given):
        return "a call per tensor: each pays the latency and the CPU time of a call once more"
    if len(made) > len(plan):
        return "more than one call per dtype: pack all tensors of a dtype into one"
    if dict.fromkeys(plan) != dict.fromkeys(call.dtype for call in made):
        width = sum(call.nbytes for call in made) - sum(plan.values())
        if len(made) < len(plan):
            return (
                "one flat tensor for all dtypes: `cat` of int64 and float32 gives float32, which "
                "has 24 bits for a number (float64 has 53). One flat tensor per dtype"
            )
        return f"the elements travel in a {'wider' if width > 0 else 'narrower'} dtype than theirs"
    if [call.dtype for call in made] != list(plan):
        return (
            "the dtypes are called in another order than the list has them first. All ranks must "
            "agree on the order, and a set has one of its own in every process: dict.fromkeys "
            "keeps the list's"
        )
    return "more or less travels than the elements: padding to equal shapes, or parts left out"


def _judge_sums(result: dict[str, Any], turn: int, rank: int, world_size: int) -> None:
    def sums(ranks: Sequence[int], turn: int = turn) -> list[torch.Tensor]:
        return [sum(parts) for parts in zip(*(tensors_of(r, turn) for r in ranks), strict=True)]

    before, got = tensors_of(rank, turn), result["got"]
    members = members_of(rank, world_size)
    expected = sums(members)
    wrong = [i for i in range(len(got)) if not torch.equal(got[i], expected[i])]
    if not wrong and not result["moved"]:
        return
    meaning = (
        "assigning `.data` swaps the memory under the tensor; whoever holds a view of the old "
        "memory (an optimizer, a bucket) never sees the sum. Use copy_"
    )
    if not wrong:
        raise CheckFailed(
            "the tensors' own memory holds the sums", "tensors that point at other memory", meaning
        )
    first = wrong[0]
    order = "" if before[first].is_contiguous() else ", not contiguous"
    described = f"{_short(before[first].dtype)} of shape {tuple(before[first].shape)}{order}"
    what = f"turn {turn}, tensor {first} ({described}) on rank {rank} of {world_size}"
    otherwise = "parts are cut in another order or with other lengths than they were packed"
    if all(not before[i].is_contiguous() for i in wrong):
        otherwise = (
            "only tensors with gaps or another order are wrong: reshape(-1) or flatten() of such a "
            "tensor is a copy, and writing to it changes nothing. Shape the part like the tensor, "
            "not the tensor like the part: tensor.copy_(part.view_as(tensor))"
        )
    mistakes = {
        "the sums are somewhere else: in the flat tensor, or in new ones that are returned. Copy "
        "each part back into its tensor": before,
        "these are the sums over *all* ranks: pass group=group": sums(range(world_size)),
        "these are means: an all_reduce sums unless it is told otherwise, and nobody asked you to "
        "divide": [total / len(members) for total in expected],
    }
    if turn:
        kept = "these are the sums of the call before: the function keeps something between calls"
        mistakes[kept] = sums(members, turn - 1)
    as_lists = {why: [value.tolist() for value in values] for why, values in mistakes.items()}
    meaning = checking.diagnose([tensor.tolist() for tensor in got], as_lists, otherwise=otherwise)
    checking.same_values(got[first], expected[first], what=what, meaning=meaning)


def _peak(fused_all_reduce: Callable[..., None]) -> float:
    """Sum 64 tensors of two dtypes; return the memory that this takes at its peak, in S."""
    tensors = [
        torch.ones(LENGTH) if i % 2 else torch.ones(LENGTH // 2, dtype=torch.int64)
        for i in range(COUNT)
    ]
    fused_all_reduce(tensors, None)
    with memory.watch() as usage:
        fused_all_reduce(tensors, None)
    return usage.peak / sum(tensor.nbytes for tensor in tensors)


def _short(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


# 1.3: the law from raw figures, and where its curve bends

EXACT = 1e-9


def check_knee(
    time_per_call: Callable[[int, Figures], float], first_slower: Callable[[Figures], int]
) -> None:
    """Judge 1.3: ``time_per_call(pairs, figures)`` in seconds, and ``first_slower(figures)``.

    The second is the smallest number of pairs at which a call takes longer than with one alone.
    """
    with checking.exercise("1.3", par="exact, from one run of one pair") as verdict:
        grid = {f"{name}, {n} pairs": (CASES[name], n) for name in CASES for n in PAIRS}
        what = "seconds per call"
        times = [
            checking.answer(checking.ask(time_per_call, n, figures), float, what=f"{name}: {what}")
            for name, (figures, n) in grid.items()
        ]
        checking.agree(
            list(grid),
            times,
            lambda name: machines.time_per_call(*grid[name]),
            what=what,
            mistakes={why: lambda name, law=law: law(*grid[name]) for why, law in LAWS.items()},
            otherwise="T = max(latency, ranks / cores x CPU per call), with all figures per call",
            unit="s",
            within=EXACT,
        )
        knees = [
            checking.answer(
                checking.ask(first_slower, figures), (int, float), what=f"{name}: pairs"
            )
            for name, figures in CASES.items()
        ]
        checking.agree(
            list(CASES),
            knees,
            lambda name: machines.first_slower(CASES[name]),
            what="the first number that is slower",
            mistakes={why: lambda name, law=law: law(CASES[name]) for why, law in KNEES.items()},
            otherwise="the first number of pairs with time_per_call(pairs) > time_per_call(1)",
            unit="pairs",
            within=EXACT,
        )
        verdict.reached = f"{len(times)} times and {len(knees)} knees, all exact"


# 1.4: a sum through shared memory


def check_shared_sum(shared_sum: Callable[..., None]) -> None:
    """Judge 1.4: ``shared_sum(tensor, slots, me, turn, wake, wait)`` adds the partner's tensor.

    In place; ``slots`` are float32, of shape (2, 2) and then the tensor's.
    """
    with checking.exercise("1.4", par="1 wake-up per sum, right in every meeting") as verdict:
        for delay, means in meetings.MEETINGS.items():
            for slow in (0, 1) if delay else (0,):
                results = checking.on_ranks(meetings.turns, shared_sum, delay, slow, world_size=2)
                for rank, result in enumerate(results):
                    _judge_meeting(result, rank, f"; rank {slow} {means}" if delay else "")
        per_rank = launch(meetings.race, shared_sum, 100, 5, world_size=2)
        ours, gloo = (
            timing.summarize(timing.slowest([rank[way] for rank in per_rank])).median / 100
            for way in (0, 1)
        )
        verdict.reached = f"1 wake-up per sum, {ours * 1e6:.0f} µs (gloo: {gloo * 1e6:.0f} µs)"


def _judge_meeting(result: dict[str, Any], rank: int, who: str) -> None:
    if result["calls"]:
        raise CheckFailed(
            "a sum through `slots`, `wake` and `wait`",
            f"a call of {result['calls'][0].kind}",
            "torch.distributed does the sum here, not the shared memory: that is what you are to "
            "be faster than",
        )
    for turn, (tensor, view) in enumerate(zip(result["got"], result["views"], strict=True)):
        meaning = _why_the_sum(tensor, turn, rank, result)
        expected = meetings.data(turn, 0) + meetings.data(turn, 1)
        what = f"turn {turn} on rank {rank}{who}"
        checking.same_values(tensor, expected, what=what, meaning=meaning)
        checking.same_values(
            view,
            expected,
            what=f"{what}, in the tensor's own memory",
            meaning="the tensor was pointed at other memory (`.data =`, `set_`): whoever holds a "
            "view of the old one never sees the sum. Add in place (add_)",
        )
    sums = len(result["got"])
    if result["stuck"]:
        raise CheckFailed(
            f"turn {sums} on rank {rank} ends{who}",
            f"its wait() number {result['waits']} was never answered: wake() was called "
            f"{result['wakes']} times here",
            "nobody calls wake(): each partner must wake the other"
            if not result["wakes"]
            else "each waits before it wakes the other: write, wake, and only then wait",
        )
    counted = {"wake": result["wakes"] / sums, "wait": result["waits"] / sums}
    if any(number > 1 for number in counted.values()):
        raise CheckFailed(
            "1 wake() and 1 wait() per sum",
            f"{counted['wake']:g} and {counted['wait']:g}",
            "the values are right, but the partners meet twice. A second meeting does keep the "
            "fast one from overwriting; writing to the other half in every second turn is free",
        )
    if any(number < 1 for number in counted.values()) or max(result["cpu"]) > meetings.BUSY:
        raise CheckFailed(
            f"a rank that sleeps in wait() until its partner wakes it{who}",
            f"{counted['wake']:g} wake() and {counted['wait']:g} wait() per sum, up to "
            f"{max(result['cpu']) * 1e3:.0f} ms of CPU in one",
            "the partner's slot is polled: looking again and again takes a CPU, which on a busy "
            "machine is the partner's. wait() sleeps",
        )


def _why_the_sum(got: torch.Tensor, turn: int, rank: int, result: dict[str, Any]) -> str:
    """Name the mistake that leads to this value."""
    if not result["waits"]:
        return "wait() is never called: the partner's slot is read before the partner wrote it"
    mine, theirs = meetings.data(turn, rank), meetings.data(turn, 1 - rank)
    later = meetings.data(turn + 1, 1 - rank)
    overwritten = (
        "we read what the partner wrote for the *next* turn: it was faster and overwrote its slot "
        "before we had read it. Two halves, used in turns, make that impossible"
    )
    unwritten = (
        "we read a slot that the partner had not written in this turn: write first, then wake, "
        "then wait, then read; and both partners must use the same half, told by `turn`"
    )
    mistakes = [
        (
            mine,
            "the tensor is as it was: `tensor = tensor + ...` makes a new one. Add in place (add_)",
        ),
        (2 * mine, "this is twice our own tensor: the partner's slot is the one at 1 - me"),
        (mine + later, overwritten),
        (later, overwritten),
        *((mine + meetings.data(old, 1 - rank), unwritten) for old in range(turn)),
        (theirs, "this is the partner's tensor alone: add it to ours"),
        ((mine + theirs) / 2, "this is the mean: nobody asked you to divide"),
    ]
    if torch.isnan(got).any():
        return unwritten
    otherwise = "write slots[half, me], wake, wait, add slots[half, 1 - me]; half = turn % 2"
    if torch.allclose(got, mine + theirs, rtol=0.01):
        otherwise = "digits are lost: the slots hold float32, so nothing needs a narrower dtype"
    return next((why for wrong, why in mistakes if torch.equal(got, wrong)), otherwise)
