"""Checks of lesson 2: a trace, a cap, hooks that overlap, a program to repair, two boards."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace

from torch import nn

from course.checks import boards, checking
from course.checks.checking import hold
from course.checks.memory import BufferCall
from course.checks.trial import Case, trials
from course.comm import buckets
from course.lessons.gradient_all_reduce import evidence
from course.lessons.gradient_all_reduce.steps import Gradients, train

TRACE = (
    (31, 12, 9, 40, 6, 5),
    (1, 10, 2, 60, 5, 5),
    (36, 2, 12, 42, 8, 4),
    (40, 13, 14, 10, 2, 3),
)
"""Milliseconds: ``TRACE[rank][call]``; made so that each of the usual short cuts errs."""


def check_reading(reading: Callable[[], tuple[int, float, float]]) -> None:
    """Judge exercise 2.1: three figures from a trace of several late ranks."""
    last = "in each call the last rank has the smallest timer; add up, by rank, what it cost"
    victim = "the rank with the largest timers waits most: the first victim, not the cause"
    begins = "moving begins when the last rank arrives: the smallest timer of each call, summed"
    own = "those are the straggler's own timers, with its waiting for others who were late"
    without = """without the last rank the next to last decides: the second smallest timer minus the
        smallest, in the calls where yours was last"""
    anyway = "the bytes move anyway: subtract the smallest timers from the second smallest"
    by_all = "that is what all ranks cost: only the calls in which yours was last"
    asked: list[checking.Asked] = [
        ("the straggler", 1, {victim: 2}, last),
        ("milliseconds that moved bytes", 20, {own: 83}, begins),
        ("milliseconds that the straggler alone cost", 37, {anyway: 40, by_all: 79}, without),
    ]
    with checking.exercise("2.1", reading, par="the straggler, the transfer and the loss"):
        checking.figures(checking.ask(reading), asked)


LAYERS = (
    (6, 12), (1, 20), (1, 32), (2, 44), (1, 56), (1, 68), (1, 80), (1, 90), (0.5, 100),
)  # fmt: skip
"""MB of each layer's gradients, and ms after the begin of backward at which they are complete."""
LEFT = {1: 56.5, 2: 32.5, 3: 24.5, 4: 28.5, 8: 40.5, None: 80.5}
"""Cap in MB -> the ms by which the last bucket ends after backward; None: one bucket for all."""
EXPOSED = {
    "the wire is not always busy before 100 ms: follow it bucket by bucket": 12.5,
    "that is all the time on the wire; what backward hides does not count": 112.5,
    "that is when the last bucket ends; backward ended at 100 ms": 124.5,
}


def check_cap(best: Callable[[], tuple[float | None, float]]) -> None:
    """Judge exercise 2.2: the cap that leaves least to move when backward ends, and how much."""
    with checking.exercise("2.2", best, par="the cap, and the ms that stay exposed"):
        pair = checking.answer(checking.ask(best), (tuple, list), what="(cap, ms)")
        hold(len(pair) == 2, "(cap, ms)", pair, "two figures are asked, in this order")
        no_cap = str(pair[0]).strip().lower() in ("none", "no cap")
        cap = None if no_cap else checking.number(pair[0], what="the cap, in MB")
        hold(cap in LEFT, f"one of {[*LEFT]}", cap, "the caps to choose from are in MB")
        left = f"{pair[0]}: {LEFT[cap]:g} ms are left; another cap leaves less"
        why = """few calls leave late, each of many takes its 8 ms, and a small last bucket may
            have to wait for the wire"""
        hold(cap == 3, "the cap that leaves least exposed", left, why)
        free = "bucket by bucket: when is the wire free?"
        checking.figures(pair[1:], [("ms exposed", LEFT[3], EXPOSED, free)])


RAISES = {
    "'works'": "`works = []` in finish() makes another list than that of `attach`: works.clear()",
    "NoneType": "a hook of register_hook runs before the gradient is in .grad; one of "
    "register_post_accumulate_grad_hook runs after it",
}


def check_overlap(attach: Callable[[nn.Module], Callable[[], None]]) -> None:
    """Judge exercise 2.3: three steps on two ranks and on three, in each another rank is late.

    In each step: an all_reduce for each gradient, each waited for, and the means. All but the first
    layer's start before its backward begins, and nobody waits before backward is over.
    """
    par = "all but the first layer's on their way when its backward begins"
    with checking.exercise("2.3", attach, par=par, raises=RAISES) as verdict:
        for n in (2, 3):
            ranks = checking.on_ranks(train, attach, world_size=n, timeout=20.0, checks=False)
            for number, steps in enumerate(zip(*ranks, strict=True)):
                own = [step.own for step in steps]
                sizes = [gradient.nbytes for gradient in own[0]]
                for rank, step in enumerate(steps):
                    what = f"rank {rank} of {n}, step {number}"
                    _hold_overlap(step, len(sizes) - 2, what)
                    _hold_average(step.calls, sizes, step.gradients, own, rank, what)
        verdict.reached = f"{step.early[0]} of {len(sizes)} on their way"


def _hold_overlap(step: SimpleNamespace, least: int, what: str) -> None:
    """Hold a step to calls that start in hooks, and that are waited for in finish, once."""
    early = step.early[0]
    hook = "each starts in the hook of its own parameter, not when backward is over"
    hold(early >= least, f"{what}: {least} calls before the first layer's backward", early, hook)
    waited = f"{step.waited} works waited for"
    stops = "a hook that waits stops backward: only start there, and wait in finish()"
    hold(not step.waited, f"{what}: nobody waits, or asks, before backward is over", waited, stops)
    alone = f"{what}: nobody touches what is under way while backward runs"
    copies = """a hook of register_hook gets the gradient before backward has put it into .grad, and
        there backward copies it; one of register_post_accumulate_grad_hook runs after that"""
    by_whom = copies if step.touched == "aten.copy_" else BELONGS
    hold(not step.touched, alone, step.touched, by_whom)
    again = f"{step.again} are waited for again"
    grows = "empty the list in finish(): else it grows with every step"
    hold(not step.again, f"{what}: works of earlier steps are forgotten", again, grows)


DIVIDED = """is it summed, waited for, cut out in the order of packing, and divided by the world
size once?"""
BELONGS = """from the call to the end of the wait a tensor belongs to the library: divide before or
after"""


def _hold_average(
    calls: Sequence[BufferCall], sizes: list[int], gradients: Gradients, own: list[Gradients],
    rank: int, what: str,
) -> None:  # fmt: skip
    """Hold a rank to all_reduces of these sizes, waited for, and to the means of all ranks' own."""
    sums = [(call.kind, call.nbytes) for call in calls]
    as_asked = sorted(sums) == [("all_reduce", size) for size in sorted(sizes)]
    whole = "each gradient, or bucket of the plan, has one all_reduce, in its own dtype, and whole"
    hold(as_asked, f"{what}: all_reduces of {sorted(sizes)} bytes", sums or "no call", whole)
    missing = sum(call.waited is None for call in calls)
    any_order = """works can end in any order: that one has ended says nothing of the others, and no
        sleep is long enough. And each needs a place of its own: two gradients may have one shape"""
    left = f"{missing} of {len(calls)} are not"
    hold(not missing, f"{what}: every work is waited for", left, any_order)
    touched = next((call.touched for call in calls if call.touched), None)
    hold(not touched, f"{what}: nobody touches what is under way", touched, BELONGS)
    for place, gradient in enumerate(gradients):
        alone, total = own[rank][place], sum(ranks_own[place] for ranks_own in own)
        mistakes = {
            "this is the rank's own: an assignment gives a name, or a place in a list, another "
            "tensor, and reshape copies what has gaps; copy into the one that is there": alone,
            "this is the rank's own, divided: the sum is elsewhere": alone / len(own),
            "this is the sum: divide by the world size": total,
        }
        mean = total / len(own)
        words = {"what": f"{what}: gradient {place}, the mean of all ranks'", "meaning": DIVIDED}
        checking.same_values(gradient, mean, **words, mistakes=mistakes, within=1e-5)


SHAPES = ((3, 5), (7,), (), (2, 2, 2), (40,), (4, 3))
CAP = 64  # bytes of a bucket in exercise 2.4


def _with_one_turned(case: Case, rank: int) -> tuple[Gradients, int]:
    """Make a rank's gradients, of which the last one is not contiguous, and a cap in bytes."""
    data = [Case(1, shape).data(rank) for shape in SHAPES]
    return [*data[:-1], data[-1].t()], CAP


def check_average(average: Callable[[Gradients, int], None]) -> None:
    """Judge exercise 2.4: odd shapes, one transposed, on two and four ranks, half of them late.

    An all_reduce for each bucket of the plan, each waited for, and the means; then: gradients stay
    where they are, and all calls start before the first wait.
    """
    with checking.exercise("2.4", average, par="every gradient the mean, one call for each bucket"):
        cases = [Case(n, make=_with_one_turned, late=0.2) for n in (2, 4)]
        runs = trials(average, cases, checks=False)
        for case, rank, ran in ((case, *pair) for case, ranks in runs for pair in enumerate(ranks)):
            own = [_with_one_turned(case, each)[0] for each in range(case.world_size)]
            sizes = [bucket.nbytes for bucket in buckets.plan(own[0], cap=CAP, reverse=True)]
            what = f"rank {rank} of {case.world_size}"
            _hold_average(ran.calls, sizes, ran.given[0], own, rank, what)
            view = "the optimizer may hold a view of it: copy_ into it, do not replace its data"
            stays = f"{what}: gradients stay where they are"
            hold(ran.stays, stays, "a gradient has new memory", view)
            first_wait = min(call.waited for call in ran.calls)
            started = sum(call.at < first_wait for call in ran.calls)
            waits = """right, but some bucket waits for one before it: two lines are wrong, and
                async_op=True is in neither"""
            every = f"{what}: every call starts before the first wait"
            hold(started == len(sizes), every, f"{started} of {len(sizes)} did", waits)


WHO = boards.WhoWasIt("2.5", evidence.INVESTIGATION, {"first": "d", "second": "a"})


def check_turned(turned: Callable[[], tuple[float, float, float]]) -> None:
    """Judge exercise 2.6: where 80 ms of lateness show when the loop is turned round."""
    first = "which call comes first after backward, and is it one of the six?"
    call_0 = "the lateness is in the first call after it: call 0, which is not the classifier's"
    waits = "the loop now begins with the classifier: its first call waits for rank 2, once for all"
    moves = "the first call waits for rank 2, and then its bytes still have to move"
    together = "when the sixteen begin, all ranks go on together"
    paid = "the lateness was paid in the first call, which is now one of the six"
    asked: list[checking.Asked] = [
        ("ms of the six, loop as posted", 45, {call_0: 125}, first),
        ("ms of the six, loop backwards", 125, {moves: 80}, waits),
        ("ms of the sixteen, loop backwards", 9, {paid: 89}, together),
    ]
    with checking.exercise("2.6", turned, par="all three figures"):
        checking.figures(checking.ask(turned), asked)
