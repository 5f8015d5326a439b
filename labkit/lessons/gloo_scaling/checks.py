"""The checks of lesson 01's exercises.

Some of these exercises are about time and races. Their checks do not hope that a mistake shows:
they script the calls (`sick_calls`) and the meetings of the partners (`meetings`) so that each
usual mistake shows every time, on a busy machine too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
import torch.distributed as dist

from labkit.course import checking
from labkit.course.checking import CheckFailed
from labkit.launch.launcher import launch
from labkit.lessons.gloo_scaling import meetings, sick_calls
from labkit.lessons.gloo_scaling.model import Saturation
from labkit.measure import memory, timing, wire

LOW, HIGH = 0.7, 1.4
"""Accepted ratio of what was measured to the truth. The usual mistakes are off by 2 or more."""
OWN_COST = 0.05
"""What a stopwatch may add to a call, in barriers. Reading a clock costs a thousandth of one."""
ATTEMPTS = 3
"""A busy machine can spoil a reading, hardly three in a row; a mistake spoils all of them."""
_OWN = (
    "each rank reports its own time. A collective is done when its slowest rank is: exchange the "
    "times (all_reduce with ReduceOp.MAX) before you take the median"
)


def check_time_call(time_call: Callable[..., float]) -> None:
    """Judge a stopwatch.

    Args:
        time_call: Called on every rank of a group as ``time_call(call, warmup=, iters=, group=)``;
            returns, on each of them, the median over iterations of the slowest rank's seconds.

    Raises:
        CheckFailed: Says which patient it misjudged.
    """
    with checking.exercise("1.1", par="within 40 %, at 5 % of a barrier") as verdict:
        first, *others = sick_calls.PATIENTS
        errors = [abs(_judged(time_call, first) - 1)]
        own = _own_cost(time_call)
        errors += [abs(_judged(time_call, patient) - 1) for patient in others]
        reached = f"{len(sick_calls.PATIENTS)} sick calls within {max(errors):.0%}"
        verdict.reached = f"{reached}, at {own:.2%} of a barrier"


def examine(
    time_call: Callable[..., float], patient: sick_calls.Patient
) -> list[dict[str, Any] | None]:
    """Run a patient under a stopwatch on real ranks; return what each rank of the group saw."""
    size = len(patient.script)
    try:
        return checking.on_ranks(
            sick_calls.examine, time_call, patient, world_size=size, timeout=5.0
        )
    except CheckFailed as hang:
        hang.meaning = (
            "not all ranks make the same calls. If ranks outside the group are waited for, a "
            f"collective lacks group=group. In general: {hang.meaning}"
        )
        raise


def _judged(time_call: Callable[..., float], patient: sick_calls.Patient) -> float:
    """Return what was measured, divided by the truth."""
    for attempt in range(1, ATTEMPTS + 1):
        seen = [one for one in examine(time_call, patient) if one is not None]
        _same_on_all(seen, patient)
        got = float(seen[0]["got"])
        truth = patient.truth([one["durations"] for one in seen])
        if LOW <= got / truth <= HIGH:
            break
        if attempt == ATTEMPTS:
            raise CheckFailed(
                f"{patient.name}: {truth * 1e3:.1f} ms per call (0.7 to 1.4 times that)",
                f"{got * 1e3:.1f} ms",
                patient.if_long if got > truth else patient.if_short,
            )
    return got / truth


def _same_on_all(seen: list[dict[str, Any]], patient: sick_calls.Patient) -> None:
    """Hold the stopwatch to have made all calls, and to answer the same on every rank."""
    for one in seen:
        made, asked = len(one["durations"]), patient.warmup + patient.iters
        if made != asked:
            raise CheckFailed(
                f"{patient.name}: {patient.warmup} calls to warm up and {patient.iters} that count",
                f"{made} calls",
                "there is no warm-up: the first `warmup` calls must not be counted"
                if made == patient.iters
                else "a call too many or too few: some call is made outside the two loops",
            )
        if one["got"] is None:
            raise CheckFailed(
                "seconds, on every rank", "None", "a `return` is missing, or only one rank returns"
            )
    answers = [float(one["got"]) for one in seen]
    if max(answers) > 1.001 * min(answers):
        shown = ", ".join(f"{answer * 1e3:.2f}" for answer in answers)
        raise CheckFailed(
            f"{patient.name}: the same answer on every rank", f"{shown} ms on the ranks", _OWN
        )


def _own_cost(time_call: Callable[..., float]) -> float:
    """Return what the stopwatch adds to a call, in barriers."""
    for _ in range(ATTEMPTS):
        seen = examine(time_call, sick_calls.NOTHING)
        _same_on_all(seen, sick_calls.NOTHING)
        own = float(seen[0]["got"]) / seen[0]["barrier"]
        if own <= OWN_COST:
            return own
    raise CheckFailed(
        f"a call that does nothing: at most {OWN_COST:.0%} of a barrier's time",
        f"{own:.2f} barriers",
        "the stopwatch times itself: a barrier or another collective runs between start and stop",
    )


HUGE = 2**60
"""So large that neither float32 nor float64 can tell it from its neighbours; five fit an int64."""
COUNT, LENGTH = 64, 4096
"""The tensors of the cost case: 64 of 16 KiB."""
_ERRORS = {
    "view size is not compatible": "`view` cannot flatten a tensor with gaps or in another order, "
    "such as a transposed one; `reshape(-1)` copies it where it must",
    "equal size": "`stack` needs equal shapes; flatten each tensor, then `cat`",
    "zero-dimensional": "a 0-dimensional tensor has no axis to join along: flatten it first",
}


def tensors_of(rank: int) -> list[torch.Tensor]:
    """Make a rank's tensors: every shape, stride and type that the exercise promises."""
    shapes = [(10, 10), (3,), (), (0,), (2, 5, 7)]
    made = [
        checking.rank_data(_numel(shape), rank=rank, seed=seed).reshape(shape)
        for seed, shape in enumerate(shapes)
    ]
    flipped = checking.rank_data(70, rank=rank, seed=11).reshape(10, 7).t()
    gaps = checking.rank_data(60, rank=rank, seed=12).reshape(6, 10)[:, ::2]
    counts = checking.rank_data(7, rank=rank, seed=13, dtype=torch.int64) + HUGE
    steps = checking.rank_data(1, rank=rank, seed=14, dtype=torch.int64).reshape(())
    return [*made[:2], counts, flipped, *made[2:], gaps, steps]


def check_fused_all_reduce(fused_all_reduce: Callable[..., None]) -> None:
    """Judge a fused all_reduce.

    Args:
        fused_all_reduce: ``(tensors, group)``; replaces each tensor, in place, by the sum over the
            group's ranks.

    Raises:
        CheckFailed: Says which tensor on which rank is wrong, or which cost is above par.
    """
    par = "1 call per dtype, 1 S, 1 S"
    with checking.exercise("1.2", par=par) as verdict:
        for world_size in (4, 3):
            results = checking.on_ranks(_sums, fused_all_reduce, world_size=world_size)
            for rank, result in enumerate(results):
                _judge_values(result, rank, world_size)
        calls, sent, peak = _judge_cost(checking.on_ranks(_cost, fused_all_reduce, world_size=3))
        verdict.reached = f"{calls} calls for {COUNT} tensors, {sent}, {peak:.2f} S of memory"


def members_of(rank: int, world_size: int) -> list[int]:
    """Return the ranks that sum together: pairs where there are four ranks, else all."""
    first = rank - rank % 2
    return [first, first + 1] if world_size == 4 else list(range(world_size))


def _sums(fused_all_reduce: Callable[..., None]) -> dict[str, Any]:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    group = None
    if world_size == 4:
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        group = groups[rank // 2]
    given = tensors_of(rank)
    tensors = list(given)
    places = [tensor.data_ptr() for tensor in given]
    try:
        fused_all_reduce(tensors, group)
    except RuntimeError as error:
        known = next((why for text, why in _ERRORS.items() if text in str(error)), None)
        if known is None:
            raise
        return {"error": str(error), "meaning": known}
    return {
        "got": [tensor.clone() for tensor in given],
        "moved": [tensor.data_ptr() for tensor in given] != places,
    }


def _judge_values(result: dict[str, Any], rank: int, world_size: int) -> None:
    if "error" in result:
        raise CheckFailed("sums of tensors of any shape", result["error"], result["meaning"])
    members = members_of(rank, world_size)
    before = tensors_of(rank)
    expected = [sum(parts) for parts in zip(*map(tensors_of, members), strict=True)]
    everybody = [sum(parts) for parts in zip(*map(tensors_of, range(world_size)), strict=True)]
    got = result["got"]
    wrong = [i for i in range(len(got)) if not torch.equal(got[i], expected[i])]
    if wrong:
        first = wrong[0]
        what = f"tensor {first} ({_described(before[first])}) on rank {rank} of {world_size}"
        meaning = _why(got, before, expected, everybody, wrong)
        if got[first].dtype == torch.int64:
            off = (got[first] - expected[first]).flatten().tolist()
            raise CheckFailed(f"{what}: exact sums", f"sums that are off by {off}", meaning)
        checking.same_values(got[first], expected[first], what=what, meaning=meaning)
    if result["moved"]:
        raise CheckFailed(
            "the tensors' own memory holds the sums",
            "tensors that were pointed at other memory",
            "assigning `.data` swaps the memory under the tensor; whoever holds a view of the old "
            "memory (an optimizer, a bucket) never sees the sum. Use copy_",
        )


def _why(
    got: list[torch.Tensor],
    before: list[torch.Tensor],
    expected: list[torch.Tensor],
    everybody: list[torch.Tensor],
    wrong: list[int],
) -> str:
    """Name the mistake that leads to these values."""
    if all(torch.equal(a, b) for a, b in zip(got, before, strict=True)):
        return (
            "the sums are somewhere else: in the flat tensor, or in new ones that are returned. "
            "Copy each part back into its tensor"
        )
    if all(torch.equal(a, b) for a, b in zip(got, everybody, strict=True)):
        return "these are the sums over *all* ranks: pass group=group"
    if all(not before[i].is_contiguous() for i in wrong):
        return (
            "only tensors with gaps or another order are wrong: reshape(-1) or flatten() of such a "
            "tensor is a copy, and writing to it changes nothing. Shape the part like the tensor, "
            "not the tensor like the part: tensor.copy_(part.view_as(tensor))"
        )
    if all(before[i].dtype == torch.int64 for i in wrong):
        return (
            "only the integers are wrong: `cat` of int64 and float32 gives float32, which has 24 "
            "bits for a number (float64 has 53). One flat tensor per dtype"
        )
    return "parts are cut in another order or with other lengths than they were packed"


def _cost(fused_all_reduce: Callable[..., None]) -> dict[str, Any]:
    """Sum 64 tensors of two dtypes; return wire reports, of two plain calls too, and memory."""
    tensors = [
        torch.ones(LENGTH) if i % 2 else torch.ones(LENGTH // 2, dtype=torch.int64)
        for i in range(COUNT)
    ]
    whole = [torch.ones(COUNT // 2 * LENGTH), torch.ones(COUNT // 4 * LENGTH, dtype=torch.int64)]
    for flat in whole:
        dist.all_reduce(flat)  # opens connections
    with wire.meter() as reference:
        for flat in whole:
            dist.all_reduce(flat)
    dist.barrier()
    with wire.meter() as theirs:
        fused_all_reduce(tensors, None)
    dist.barrier()
    with memory.watch() as usage:
        fused_all_reduce(tensors, None)
    total = sum(tensor.nbytes for tensor in tensors)
    reports = {"reference": reference.report, "theirs": theirs.report}
    return {**reports, "peak": usage.peak / total}


def _judge_cost(results: list[dict[str, Any]]) -> tuple[int, str, float]:
    calls = max(len(result["theirs"].calls) for result in results)
    checking.at_most(
        calls,
        2,
        what=f"{COUNT} tensors of 2 dtypes",
        unit="calls",
        meaning="a call per tensor: each pays the latency and the CPU time of a call once more"
        if calls >= COUNT
        else "more than one call per dtype: pack all tensors of a dtype into one",
    )
    try:
        ours, theirs = (
            wire.matrix([result[key] for result in results]).sum()
            for key in ("reference", "theirs")
        )
    except wire.WireUnavailable:
        sent = "bytes not countable here"
    else:
        checking.at_most(
            theirs / ours,
            1.05,
            what="bytes on the wire, against one all_reduce of the same elements",
            unit="S",
            meaning="more travels than the elements: padding to equal shapes, a wider dtype, or "
            "everybody's tensors gathered instead of summed on the way",
        )
        sent = f"{theirs / ours:.2f} S on the wire"
    peak = max(result["peak"] for result in results)
    checking.at_most(
        peak,
        1.1,
        what="memory at its peak",
        unit="S",
        meaning="a copy too many is alive: `cat` already copies, so no clone() before it, and no "
        "list of results after it",
    )
    return calls, sent, peak


def _described(tensor: torch.Tensor) -> str:
    order = "" if tensor.is_contiguous() else ", not contiguous"
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}{order}"


def _numel(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()


@dataclass(frozen=True, slots=True)
class Figures:
    """What one pair's run and the machine's files say; the raw material of a prediction."""

    calls: int
    """Calls that each of the two ranks made."""
    wall: float
    """Seconds that they took."""
    on_cpu: float
    """Seconds on a CPU of *one* rank, all its threads, over all calls."""
    cpus: int
    """CPUs that the program sees where it is to run."""
    cpu_max: str
    """What /sys/fs/cgroup/cpu.max says there: "QUOTA PERIOD" in microseconds, or "max PERIOD"."""


CASES = {
    "the asker's 48 CPUs": Figures(1024, 0.25, 0.125, 48, "max 100000"),
    "a laptop": Figures(1024, 0.25, 0.125, 4, "max 100000"),
    "two CPUs, an expensive call": Figures(2048, 0.5, 0.5, 2, "max 100000"),
    "a container with 1.5 of 48 CPUs": Figures(512, 0.1875, 0.0625, 48, "150000 100000"),
    "a container allowed more than there is": Figures(4096, 1.0, 0.25, 2, "800000 100000"),
    "another period": Figures(1024, 0.75, 0.125, 16, "100000 50000"),
    "half a CPU, slow from the start": Figures(1024, 0.25, 0.125, 8, "50000 100000"),
}
PAIRS = (1, 2, 3, 5, 8, 40)


def quota(figures: Figures) -> float:
    """Return the CPUs' worth of time that the control group allows; infinite without a limit."""
    allowed, period = figures.cpu_max.split()
    return float("inf") if allowed == "max" else int(allowed) / int(period)


def law(figures: Figures) -> Saturation:
    """Return the saturation law of these figures."""
    return Saturation(
        latency=figures.wall / figures.calls,
        cpu_per_call=figures.on_cpu / figures.calls,
        cores=min(figures.cpus, quota(figures)),
    )


def check_knee(
    time_per_call: Callable[[int, Figures], float], first_slower: Callable[[Figures], int]
) -> None:
    """Judge a prediction.

    Args:
        time_per_call: ``(pairs, figures)`` -> seconds per call.
        first_slower: ``(figures)`` -> the smallest number of pairs at which a call takes longer
            than with one pair alone.

    Raises:
        CheckFailed: Says for which figures it is wrong.
    """
    with checking.exercise("1.3", par="exact, from one run of one pair") as verdict:
        got = [time_per_call(pairs, figures) for figures in CASES.values() for pairs in PAIRS]
        _judge_times(got)
        _judge_knees([first_slower(figures) for figures in CASES.values()])
        verdict.reached = f"{len(got)} times and {len(CASES)} knees, all exact"


def _judge_times(got: list[float]) -> None:
    asked = [(name, pairs) for name in CASES for pairs in PAIRS]
    meaning = _explained(
        got,
        {why: [wrong(CASES[name], pairs) for name, pairs in asked] for why, wrong in LAWS.items()},
        otherwise="T = max(latency, ranks / cores x CPU per call), with all figures per call",
    )
    for (name, pairs), answer in zip(asked, got, strict=True):
        expected = law(CASES[name]).time(2 * pairs)
        scaled = answer * 1e6 if isinstance(answer, int | float) else answer
        what = f"{name}, {pairs} pairs: time per call"
        checking.close_to(
            scaled, expected * 1e6, within=1e-6, what=what, unit="µs", meaning=meaning
        )


def _judge_knees(got: list[int]) -> None:
    meaning = _explained(
        got,
        {why: [wrong(figures) for figures in CASES.values()] for why, wrong in KNEES.items()},
        otherwise="the first number of pairs with time_per_call(pairs) > time_per_call(1)",
    )
    for (name, figures), answer in zip(CASES.items(), got, strict=True):
        expected = _first(law(figures))
        if answer != expected:
            raise CheckFailed(f"{name}: {expected} pairs", repr(answer), meaning)


def _explained(got: list[float], mistakes: dict[str, list[float]], *, otherwise: str) -> str:
    """Return the mistake that leads to exactly these answers, all of them."""
    return next(
        (
            why
            for why, wrong in mistakes.items()
            if all(_equal(a, b) for a, b in zip(got, wrong, strict=True))
        ),
        otherwise,
    )


def _equal(got: float, wrong: float) -> bool:
    return isinstance(got, int | float) and abs(got - wrong) <= 1e-6 * abs(wrong)


def _first(right: Saturation) -> int:
    return next(p for p in count(2) if right.time(2 * p) > right.time(2) * (1 + 1e-9))


def _busy(figures: Figures, pairs: int) -> float:
    right = law(figures)
    return 2 * pairs / right.cores * right.cpu_per_call


def _with_cores(figures: Figures, cores: float) -> Saturation:
    return replace(law(figures), cores=cores)


def _assuming_the_period(figures: Figures) -> float:
    period = int(figures.cpu_max.split()[1])
    return min(figures.cpus, quota(figures) * period / 100_000)


LAWS: dict[str, Callable[[Figures, int], float]] = {
    "the max is missing: while CPUs are free, the latency decides": _busy,
    "the law is missing: this is the time of one pair, however many there are": lambda figures, _: (
        law(figures).latency
    ),
    "the larger of the two counts, not their sum: latency and queue overlap": lambda figures, p: (
        law(figures).latency + _busy(figures, p)
    ),
    "a pair has two ranks, and each of them needs the CPU": lambda figures, p: law(figures).time(p),
    "these are the CPUs that the container shows. cpu.max may allow fewer: quota / period": (
        lambda figures, p: _with_cores(figures, figures.cpus).time(2 * p)
    ),
    "a quota above the number of CPUs gives no further CPUs: take the smaller of the two": (
        lambda figures, p: _with_cores(
            figures, figures.cpus if quota(figures) == float("inf") else quota(figures)
        ).time(2 * p)
    ),
    "the period is not always 100000 µs: a quota of 100000 in 50000 us is two CPUs": (
        lambda figures, p: _with_cores(figures, _assuming_the_period(figures)).time(2 * p)
    ),
    "wall and on_cpu are of all calls together: divide by their number": lambda figures, p: (
        figures.calls * law(figures).time(2 * p)
    ),
}
"""What the usual mistakes give."""

KNEES: dict[str, Callable[[Figures], int]] = {
    "this is the last number that is as fast as one pair; asked for is the first that is not": (
        lambda figures: _first(law(figures)) - 1
    ),
    "the knee is a number of ranks, asked for are pairs": lambda figures: (
        int(law(figures).knee) + 1
    ),
    "these are the CPUs that the container shows: look into cpu.max": lambda figures: _first(
        _with_cores(figures, figures.cpus)
    ),
    "at the knee itself a call is not slower yet: the time must have *grown*": lambda figures: max(
        2, math.ceil(law(figures).knee / 2)
    ),
    "one pair cannot be slower than one pair: where even one is above the knee, two are the first "
    "that are slower": lambda figures: int(law(figures).knee / 2) + 1,
}
"""The same for the second question."""


def check_shared_sum(shared_sum: meetings.SharedSum) -> None:
    """Judge a sum of two partners through shared memory.

    Args:
        shared_sum: ``(tensor, slots, me, turn, wake, wait)``; adds the partner's tensor to ours, in
            place. ``slots``: float32, shape (2, 2) and then the tensor's.

    Raises:
        CheckFailed: Says which value is wrong under which meeting, or what costs too much.
    """
    with checking.exercise("1.4", par="1 wake-up per sum") as verdict:
        for delay, means in meetings.MEETINGS.items():
            for slow in (0, 1) if delay else (0,):
                results = checking.on_ranks(meetings.turns, shared_sum, delay, slow, world_size=2)
                for rank, result in enumerate(results):
                    who = "" if not delay else f"; rank {slow} {means}"
                    _judge(result, rank, who)
        ours, gloo = race(shared_sum)
        verdict.reached = f"1 wake-up per sum, {ours * 1e6:.0f} µs (gloo: {gloo * 1e6:.0f} µs)"


def _judge(result: dict[str, Any], rank: int, who: str) -> None:
    got = result["got"]
    for turn, tensor in enumerate(got):
        expected = meetings.data(turn, 0) + meetings.data(turn, 1)
        meaning = _why_shared(tensor, turn, rank, result)
        checking.same_values(
            tensor, expected, what=f"turn {turn} on rank {rank}{who}", meaning=meaning
        )
    turn = len(got)
    if result["stuck"]:
        raise CheckFailed(
            f"turn {turn} on rank {rank} ends{who}",
            f"its wait() number {result['waits']} was never answered: wake() was called "
            f"{result['wakes']} times here",
            "nobody calls wake(): each partner must wake the other"
            if not result["wakes"]
            else "each waits before it wakes the other: write, wake, and only then wait",
        )
    checking.at_most(
        result["wakes"] / turn,
        1,
        what="wake-ups per sum",
        unit="",
        meaning="the values are right, but the partners meet twice. A second meeting does keep the "
        "fast one from overwriting; writing to the other half in every second turn does it free",
    )


def _why_shared(got: torch.Tensor, turn: int, rank: int, result: dict[str, Any]) -> str:
    """Name the mistake that leads to this value."""
    mine, theirs = meetings.data(turn, rank), meetings.data(turn, 1 - rank)
    later = meetings.data(turn + 1, 1 - rank)
    if not result["waits"]:
        return "wait() is never called: the partner's slot is read before the partner wrote it"
    if torch.equal(got, mine):
        return (
            "the tensor is as it was: `tensor = tensor + ...` makes a new one; add in place (add_)"
        )
    if torch.equal(got, 2 * mine):
        return "this is twice our own tensor: the partner's slot is the one at 1 - me"
    if torch.equal(got, mine + later) or torch.equal(got, later):
        return (
            "we read what the partner wrote for the *next* turn: it was faster and overwrote its "
            "slot before we had read it. Two halves, used in turns, make that impossible"
        )
    earlier = [meetings.data(before, 1 - rank) for before in range(turn)]
    if torch.isnan(got).any() or any(torch.equal(got, mine + old) for old in earlier):
        return (
            "we read a slot that the partner had not written in this turn: write first, then wake, "
            "then wait, then read; and both partners must use the same half, told by `turn`"
        )
    if torch.equal(got, theirs):
        return "this is the partner's tensor alone: add it to ours"
    return "write slots[half, me], wake, wait, add slots[half, 1 - me]; half alternates by turn"


def race(shared_sum: meetings.SharedSum, calls: int = 100, blocks: int = 5) -> tuple[float, float]:
    """Measure seconds per sum of a 10 x 10 tensor: the learner's, and gloo's all_reduce."""
    per_rank = launch(meetings.race, shared_sum, calls, blocks, world_size=2)
    ours, gloo = (
        timing.summarize(timing.slowest([rank[way] for rank in per_rank])).median / calls
        for way in (0, 1)
    )
    return ours, gloo
