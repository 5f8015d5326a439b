"""The checks of lesson 01's exercises.

Two of these exercises are about time and races. Their checks do not hope that a mistake shows:
they script the calls (`sick_calls`) and the meetings of the partners (`meetings`) so that each
usual mistake shows every time, on a busy machine too.
"""

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from course import checking
from course.checking import CheckFailed
from course.lessons.gloo_scaling import experiment, meetings, sick_calls
from course.lessons.gloo_scaling.sick_calls import SickCall
from course.trial import Case, Ran, Trial
from labkit.measure import timing
from labkit.measure.tables import Table
from labkit.ranks.launcher import launch

# 1.1: the stopwatch

WITHIN = 0.4
"""Accepted relative error. The usual mistakes are off by a half or more."""
OWN_COST = 0.05
"""What a stopwatch may add to a call, in barriers. Reading a clock costs a thousandth of one."""
PATIENCE = 5.0
"""Seconds for one sick call, which takes one of them at most."""
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
        if not launch(sick_calls.comes_through, time_call, world_size=1)[0]:
            raise CheckFailed(
                "an exception of the call comes out of the stopwatch",
                "it was swallowed",
                "a call that fails must not be timed as if it had worked: no bare `except`",
            )
        own = _own_cost(time_call)
        errors += [_error(time_call, sick) for sick in others]
        verdict.reached = f"within {max(errors):.0%}, own cost {own:.2%} of a barrier"


def _error(time_call: Callable[..., float], sick: SickCall) -> float:
    """Return the relative error of what was measured."""
    for _ in range(ATTEMPTS):
        seen = _examined(time_call, sick)
        got = seen[0]["got"]
        truth = sick.slowest([one["calls"] for one in seen])
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
    seen = [one for one in checking.on_ranks(*program, **ranks, hang=hang) if one is not None]
    for one in seen:
        made, asked = len(one["calls"]), sick.warmup + sick.iters
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
    shown = f"{', '.join(f'{answer * 1e3:.2f}' for answer in answers)} ms on the ranks"
    if min(answers) < 0:
        raise CheckFailed(
            f"{sick.name}: a time",
            shown,
            "a negative time: something is subtracted that differs from call to call, such as a "
            "barrier's cost. Keep it outside of start and stop instead",
        )
    if max(answers) > 1.001 * min(answers):
        raise CheckFailed(
            f"{sick.name}: the same answer on every rank",
            shown,
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
MOST = 1.3
"""Memory that the whole process may take meanwhile, in S: one copy, and what gloo needs."""


def tensors_of(rank: int, turn: int) -> list[torch.Tensor]:
    """Make a rank's tensors of one turn: every shape, stride and type that is promised.

    Turn 0 has them all, turn 1 the same with other values, turn 2 others in another order; turn 3
    has none.
    """

    def made(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1000 * seed + 10 * turn + rank)
        whole = torch.randint(-(2**21), 2**21, shape, generator=generator)  # sums need 24 bits
        return whole.to(dtype) + (HUGE if dtype == torch.int64 else 0)

    if turn == 3:
        return []
    whole, wide = torch.int64, torch.float64
    if turn == 2:
        return [made((5,), 1, whole), made((3,), 4, wide), made((4, 4), 2), made((4, 4), 3)]
    return [
        made((10, 10), 1),
        made((7,), 3, whole),
        made((10, 7), 4).t(),
        made((), 5),
        made((0,), 6),
        made((2, 5), 2, wide),
        made((2, 5, 7), 7),
        made((6, 10), 8)[:, ::2],
        made((), 9, whole),
    ]


def check_fused_all_reduce(fused_all_reduce: Callable[..., None]) -> None:
    """Judge 1.2: ``fused_all_reduce(tensors, group)`` sums each in place over the group."""
    par = "1 call per dtype, 1 S, 1 S of extra memory"
    with checking.exercise("1.2", par=par) as verdict:
        trial = Trial(partial(_in_place, fused_all_reduce), hint=_hint)
        plan = [(4, 0), (4, 1), (4, 2), (3, 0), (3, 1), (3, 2), (2, 3)]
        cases = [Case(n, make=partial(_turn, turn=turn)) for n, turn in plan]
        for case, ranks in trial.runs(cases):
            turn = case.make.keywords["turn"]
            for rank, ran in enumerate(ranks):
                members = members_of(rank, case.world_size)
                _judge_calls(ran, tensors_of(rank, turn), members)
                _judge_sums(ran, turn, rank, case.world_size)
        peak = max(checking.on_ranks(_peak, fused_all_reduce, world_size=2))
        checking.at_most(
            peak,
            MOST,
            what="memory that the process takes meanwhile, at its peak",
            unit="S",
            meaning="a copy too many is alive: `cat` already copies, so no clone() before it, and "
            "no list of results after it",
        )
        verdict.reached = f"1 call per dtype, 1 S, {peak:.2f} S of extra memory"


def members_of(rank: int, world_size: int) -> list[int]:
    """Return the ranks that sum together: pairs where there are four ranks, else all."""
    first = rank - rank % 2
    return [first, first + 1] if world_size == 4 else list(range(world_size))


def _turn(case: Case, rank: int, *, turn: int) -> tuple[list[torch.Tensor]]:
    return (tensors_of(rank, turn),)


def _in_place(fused_all_reduce: Callable, tensors: list[torch.Tensor]) -> bool:
    """Let the learner sum a list; return whether all tensors still have their memory."""
    rank, n = dist.get_rank(), dist.get_world_size()
    sets = [[0, 1], [2, 3]] if n == 4 else [list(range(n))]
    group = [dist.new_group(members) for members in sets][rank // 2 % len(sets)]
    places = [tensor.data_ptr() for tensor in tensors]
    with checking.own_work():
        fused_all_reduce(list(tensors), group)
    return [tensor.data_ptr() for tensor in tensors] == places


def _hint(case: Case) -> str:
    if case.make.keywords["turn"] == 3:
        return "for an empty list there is nothing to do"
    return "the lists differ: other shapes, another order of dtypes, another number of tensors"


def _judge_calls(ran: Ran, given: list[torch.Tensor], members: list[int]) -> None:
    """Hold the calls to the only plan that is at par: an all_reduce per dtype, of its bytes."""
    plan: dict[torch.dtype, int] = {}
    for tensor in given:
        plan[tensor.dtype] = plan.get(tensor.dtype, 0) + tensor.nbytes
    made = ran.calls
    kinds = {call.kind for call in made}
    if [(call.dtype, call.nbytes) for call in made] != list(plan.items()) or (
        not kinds <= {"all_reduce", "all_reduce_coalesced"}
    ):
        shown = "; ".join(f"{c.kind} of {c.nbytes} bytes, {_short(c.dtype)}" for c in made)
        asked = "; ".join(f"all_reduce of {n} bytes, {_short(dtype)}" for dtype, n in plan.items())
        raise CheckFailed(asked or "no calls", shown or "no calls", _why_calls(made, plan, given))
    if made and any(call.ranks != tuple(members) for call in made):
        raise CheckFailed(f"ranks {members} sum", f"{made[0].ranks}", "pass group=group")
    if ran.unwaited or any(call.touched for call in made):
        raise CheckFailed(
            "each sum is waited for before it is read",
            "; ".join(f"{c.kind}: {c.touched or 'nobody'} before a wait" for c in made),
            "with async_op=True a call only begins: wait() for its work before you copy from its "
            "tensor",
        )


def _why_calls(made: Sequence, plan: dict[torch.dtype, int], given: list[torch.Tensor]) -> str:
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
    if len(made) < len(plan):
        return (
            "one flat tensor for several dtypes: `cat` of int64 and float32 gives float32, which "
            "has 24 bits for a number (float64 has 53). One flat tensor per dtype"
        )
    if set(plan) != {call.dtype for call in made}:
        wider = sum(call.nbytes for call in made) > sum(plan.values())
        return f"the elements travel in a {'wider' if wider else 'narrower'} dtype than theirs"
    if [call.dtype for call in made] != list(plan):
        return (
            "the dtypes are called in another order than the list has them first. All ranks must "
            "agree on the order, and a set has one of its own in every process: dict.fromkeys "
            "keeps the list's"
        )
    return "more or less travels than the elements: padding to equal shapes, or parts left out"


def _judge_sums(ran: Ran, turn: int, rank: int, world_size: int) -> None:
    def sums(ranks: Sequence[int], turn: int = turn) -> list[torch.Tensor]:
        return [sum(parts) for parts in zip(*(tensors_of(r, turn) for r in ranks), strict=True)]

    before, got, members = tensors_of(rank, turn), ran.given[0], members_of(rank, world_size)
    expected = sums(members)
    wrong = [i for i in range(len(got)) if not torch.equal(got[i], expected[i])]
    if not wrong and ran.returned:
        return
    if not wrong:
        raise CheckFailed(
            "the tensors' own memory holds the sums",
            "tensors that point at other memory",
            "assigning `.data` swaps the memory under the tensor; whoever holds a view of the old "
            "memory (an optimizer, a bucket) never sees the sum. Use copy_",
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
            "not the tensor like the part"
        )
    mistakes = {
        "the sums are somewhere else: in the flat tensor, or in new ones that are returned. Copy "
        "each part back into its tensor": before,
        "these are the sums over *all* ranks: pass group=group": sums(range(world_size)),
        "these are means: an all_reduce sums unless it is told otherwise, and nobody asked you to "
        "divide": [total / len(members) for total in expected],
    }
    if turn == 1:
        kept = "these are the sums of the call before: the function keeps something between calls"
        mistakes[kept] = sums(members, 0)
    as_lists = {why: [value.tolist() for value in values] for why, values in mistakes.items()}
    meaning = checking.diagnose([tensor.tolist() for tensor in got], as_lists, otherwise=otherwise)
    checking.same_values(got[first], expected[first], what=what, meaning=meaning)


def _peak(fused_all_reduce: Callable[..., None], nbytes: int = 2**25) -> float:
    """Sum tensors of two dtypes; return what the process took meanwhile at its peak, in S.

    The kernel's count: it sees numpy's memory, and what other threads take. 0 where it keeps none.
    """
    dtypes = (torch.float32, torch.int64) * 32
    tensors = [torch.ones(nbytes // 64 // dtype.itemsize, dtype=dtype) for dtype in dtypes]
    fused_all_reduce([tensor[:1] for tensor in tensors], None)  # connections are up, threads run

    def resident(key: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith(key)))

    try:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        before = resident("VmRSS")
    except OSError:
        return 0.0
    fused_all_reduce(tensors, None)
    return (resident("VmHWM") - before) / nbytes


def _short(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


# 1.3 and 1.5: a prediction, and two jobs to read


def check_first_slower(pairs: float) -> None:
    """Judge 1.3: the first number of pairs that is slower than one pair."""
    mistakes = {
        "these are all the CPUs that the machine shows: cpu.max allows fewer, quota / period": 81,
        "a pair has two ranks, and each of them needs the CPU": 6,
        "this is the last number that is as fast as one pair, or one and a half CPUs were rounded "
        "down": 2,
        "one and a half CPUs are not two": 4,
        "the knee is a number of ranks, asked for are pairs": 5,
    }
    with checking.exercise("1.3", par="the number") as verdict:
        right = 3
        checking.answer(pairs, (int, float), what="a number of pairs")
        if pairs != right:
            meaning = checking.diagnose(
                pairs, mistakes, otherwise="where does ranks / CPUs x c exceed the time alone?"
            )
            raise CheckFailed("the first number of pairs that is slower", f"{pairs}", meaning)
        verdict.reached = f"{right}"


JOBS = {"job 1": "apart", "job 2": "one core"}
"""Two recorded sweeps, and what they are."""
DIAGNOSES = {
    "confined": "one core",
    "spinning": "apart",
    "late rank": "",
    "network": "",
}


def tabulate_jobs() -> Table:
    """Lay out two recorded jobs without their names."""
    rows = [
        [job, r.params["pairs"], *(round(1e6 * t) for t in (r.summary.median, r.values["on_cpu"],
         r.values["waiting"])), round(r.values["ours"], 1)]
        for job, case in JOBS.items() for r in experiment.recorded("sweep")
        if r.case == case and r.params["pairs"] in (1, 2, 4, 8)
    ]  # fmt: skip
    columns = ["", "pairs", "µs per call", "on a CPU", "waiting for a CPU", "CPUs busy in all"]
    return Table(columns, rows, title="RECORDED on 2 CPUs; per call, all threads of a rank")


def check_jobs(diagnoses: dict[str, str]) -> None:
    """Judge 1.5: job -> diagnosis."""
    why = {
        "confined": "its ranks would keep at most one CPU busy, and CPU time per call would hardly "
        "depend on the number of pairs",
        "spinning": "CPU time per call would be large where there is nobody to compete with",
        "late rank": "threads would be asleep, neither on a CPU nor waiting for one",
        "network": "threads would be asleep, neither on a CPU nor waiting for one",
    }
    with checking.exercise("1.5", par="both jobs") as verdict:
        for job, case in JOBS.items():
            got = checking.answer(diagnoses, dict, what="job -> diagnosis").get(job)
            if got not in DIAGNOSES:
                raise CheckFailed(
                    f"{job}: one of {', '.join(DIAGNOSES)}", f"{got!r}", "one of these words"
                )
            if DIAGNOSES[got] != case:
                raise CheckFailed(f"{job}: another diagnosis", got, why[got])
        verdict.reached = "both"


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
        if who and torch.equal(tensor, meetings.data(turn, rank)):
            meaning = "the partner's slot was cleared before we had read it"
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
