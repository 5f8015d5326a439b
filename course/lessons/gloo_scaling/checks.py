"""The checks of lesson 01: a stopwatch, a table, a knee, shared memory, readings, who pays.

Two of these exercises are about time and races. Their checks do not hope that a mistake shows:
they script the calls (`stopwatches`) and the meetings of the partners (`meetings`) so that each
usual mistake shows every time, on a busy machine too.
"""

from collections.abc import Callable, Collection
from itertools import product
from statistics import mean, median

import torch

from course.checks import checking
from course.checks.checking import hold
from course.lessons.gloo_scaling import confined, meetings, paying, stopwatches
from course.lessons.gloo_scaling.confined import Reading
from course.lessons.gloo_scaling.meetings import Meeting
from course.lessons.gloo_scaling.model import OURS, TABLES
from course.lessons.gloo_scaling.paying import Fleet
from course.lessons.gloo_scaling.stopwatches import SickCall, examine, examine_well

WITHIN = 0.4  # accepted relative error; the usual mistakes are off by a half or more
OWN_COST = 0.05  # of a barrier, added to a call; reading a clock costs a thousandth of one
ATTEMPTS = 3  # a busy machine spoils a reading, hardly three in a row; a mistake spoils all
ITSELF = """the stopwatch times itself: a barrier, another collective or work of Python's own is
done between start and stop"""
LOOPS = "there is no warm-up, or a loop begins with 1, ends early, or does not go by its argument"
EXCHANGE = """each rank reports its own time. A collective is done when its slowest rank is:
exchange the times (all_reduce with ReduceOp.MAX) before you take the median"""


def check_time_call(time_call: Callable[..., float]) -> None:
    """Judge 1.1: ``time_call(call, warmup=, iters=)`` returns the same seconds on every rank.

    Three ranks time five calls that sleep by a script: one rank is slower, some calls are, their
    number is even, ranks take turns, a rank comes late. Then a call that does nothing, and one that
    fails.
    """
    par = "within 40 % on five sick calls, own cost at most 5 % of a barrier"
    with checking.exercise("1.1", time_call, par=par) as verdict:
        errors = [_hold_time(time_call, sick) for sick in stopwatches.SICK_CALLS]
        for _ in range(ATTEMPTS):
            first, _ = checking.on_ranks(examine_well, time_call, world_size=2, checks=False)
            cost, calls, swallowed, printed = first
            defaults = "who gives no `warmup` and `iters` wants 5 and 20: keep the signature's"
            hold(calls == 25, "5 calls to warm up and 20 that count", f"{calls} calls", defaults)
            hold(not printed, "only call() between start and stop", "a print()", ITSELF)
            raised = "an exception of the call comes out of the stopwatch"
            bare = "a call that fails must not be timed as if it had worked: no bare `except`"
            hold(not swallowed, raised, "it was swallowed", bare)
            digits = "a call that does nothing takes no time: return all digits of the median"
            hold(cost > 0, "more than 0 seconds", cost, digits)
            if cost <= OWN_COST:
                break
        nothing = "a call that does nothing"
        checking.at_most(cost, OWN_COST, what=nothing, unit="barriers", meaning=ITSELF, timed=True)
        verdict.reached = f"within {max(errors):.0%}, own cost {cost:.2%} of a barrier"


def _hold_time(time_call: Callable[..., float], sick: SickCall) -> float:
    """Hold the number of calls, the ranks' answers and the time; return its relative error."""
    first, iters, right = len(sick.first), len(sick.calls), median(map(max, sick.calls))
    for _ in range(ATTEMPTS):
        ranks = checking.on_ranks(examine, time_call, sick, world_size=3, checks=False)
        calls = [calls for _, calls in ranks]
        number = f"{sick.name}: {first} calls to warm up and {iters} that count"
        hold(calls == 3 * [first + iters], number, f"{calls} calls on the ranks", LOOPS)
        what = f"{sick.name}: ms, the same on every rank"
        seconds = [checking.plain(reported) for reported, _ in ranks]
        every = [1e3 * checking.answer(of_rank, float, what=what) for of_rank in seconds]
        alike = max(every) - min(every) <= 1e-3 * abs(max(every))
        hold(alike, what, ", ".join(f"{ms:.4g}" for ms in every), EXCHANGE)
        ms = every[0]
        if (error := abs(ms / right - 1)) <= WITHIN:
            return error
    slowest, own = map(max, sick.calls), map(median, zip(*sick.calls, strict=True))
    clock = "time.time() is for dates, its clock can be set back, and was: use time.perf_counter"
    mistakes = {
        clock: min(ms, -1.0),
        "that is the mean, which a few slow calls decide: sort the samples, take the "
        "middle one": mean(slowest),
        "ranks add up: a call is done when its slowest rank is": median(map(sum, sick.calls)),
        "that is the slowest of the ranks' own medians, which hides that every single call was "
        "slow for somebody. First the slowest rank of each call, then the median": max(own),
        "you time the wait for a rank that is late. Meet (barrier) before *every* call, and start "
        "the clock after that": 2 * right,
    }
    otherwise = """the median of the slowest rank's seconds, not ms: the middle one of *all* calls
        that count, sorted, and of no warm-up. (Or is this machine busy? Then run it once more)"""
    meaning = checking.diagnose(ms, mistakes, otherwise=otherwise, within=0.2)
    expected = f"{sick.name}: {right:.1f} ms per call, give or take {WITHIN:.0%}"
    raise checking.CheckFailed(expected, f"{ms:.1f} ms", meaning, timed=True)


def check_cpus_like_ours(cpus_like_ours: Callable[..., float | None]) -> None:
    """Judge 1.2: the median of ours / theirs where calls queue; None where they do not.

    Seven tables: two CPUs, half a CPU, spoilt rows, rows in no order, times that do not grow.
    """
    otherwise = """the rows of 4 pairs and more that both tables have; None where the time of the
        most pairs is less than 1.5 times that of the fewest: then calls do not queue"""
    with checking.exercise("1.2", cpus_like_ours, par="every table"):
        for name, (theirs, right) in TABLES.items():
            cpus = checking.ask(cpus_like_ours, dict(OURS), dict(theirs), case=name)
            if right is None or cpus is None:
                hold(cpus is right, f"{name}: {right}", repr(cpus), otherwise)
                continue
            ratios = {pairs: OURS[pairs] / theirs[pairs] for pairs in theirs if pairs in OURS}
            full = [ratio for pairs, ratio in ratios.items() if pairs >= 4]
            every = median(ratios.values())
            of_most_pairs = ratios[max(ratios)]
            lower = "of an even number of rows, take the mean of the two in the middle"
            single = "that is one row, which may be the spoilt one: take the median of all"
            mistakes = {
                "that is theirs / ours; a call gets shorter with more CPUs": 1 / right,
                "fewer than four pairs do not fill a CPU yet: leave them out": every,
                "that is the mean, which one spoilt row moves: take the median": mean(full),
            }
            if len(full) % 2:
                mistakes[single] = of_most_pairs
            else:
                mistakes[lower] = min(full)
            checking.figures([cpus], [(name, right, mistakes, otherwise)], within=1e-6)


def check_first_slower(vote: Callable[[], str]) -> None:
    """Judge 1.3: the first number of pairs that is slower than one pair."""
    wrong = {
        "a": "2 pairs are 4 ranks: 4 / 1.5 x 60 µs = 160 µs, less than the 200 of one pair alone",
        "c": "a pair has two ranks, and each of them needs the CPU",
        "d": "these are all the CPUs that the machine shows: cpu.max allows fewer, quota / period",
    }
    with checking.exercise("1.3", vote, par="the number"):
        checking.letter(vote, right="b", wrong=wrong)


def check_shared_sum(shared_sum: Callable[..., None]) -> None:
    """Judge 1.4: ``shared_sum(tensor, slots, me, turn, wake, wait)`` adds the partner's tensor.

    Eight meetings of eight sums each, with tensors of four shapes, contiguous and not: one partner
    comes late, and dawdles at every bad moment. Then two real ranks are timed.
    """
    par = "1 wake-up per sum, right in every meeting"
    raises = {"view size is not compatible": "a tensor need not be contiguous, and view(-1) of one "
              "that is not fails: copy in its own shape"}  # fmt: skip
    with checking.exercise("1.4", shared_sum, par=par, raises=raises) as verdict:
        hang = """the partner's slot is polled: looking again and again takes a CPU, which on a busy
            machine is the partner's, and here it never gets on. wait() sleeps"""
        checking.on_ranks(_hold_meetings, shared_sum, world_size=1, timeout=6.0, hang=hang)
        ranks = checking.on_ranks(meetings.race, shared_sum, world_size=2, checks=False)
        ours, gloo = (1e6 * max(times) for times in zip(*ranks, strict=True))
        verdict.reached = f"1 wake-up per sum, {ours:.0f} µs (gloo: {gloo:.0f} µs)"


def _hold_meetings(shared_sum: Callable[..., None]) -> None:
    for shape, slow in product(meetings.SHAPES, (1, 0)):
        meeting = Meeting(slow, shape)
        with checking.named(str(meeting)):
            meeting.hold(shared_sum)
        for turn, both in enumerate(zip(*meeting.sums, strict=False)):
            for me, tensor in enumerate(both):
                _hold_sum(meeting, turn, me, tensor)
        asleep = "nobody calls wake(), or each waits before it wakes the other, so that both sleep"
        never = f"partner {meeting.stuck}'s never did"
        hold(meeting.stuck is None, f"every wait() ends ({meeting})", never, asleep)
        is_once = meeting.wakes == meeting.waits == [meetings.TURNS, meetings.TURNS]
        counts = f"{meeting.wakes} and {meeting.waits} on the partners, in {meetings.TURNS} sums"
        free = """a second meeting does keep the fast one from overwriting, but writing to the other
            half in every second turn is free. And that a slot has changed does not say that all of
            it is written: no sum without a wait()"""
        hold(is_once, "1 wake() and 1 wait() per sum", counts, free)


def _hold_sum(meeting: Meeting, turn: int, me: int, tensor: torch.Tensor) -> None:
    own, theirs = meeting.data(turn, me), meeting.data(turn, 1 - me)
    later = meeting.data(turn + 1, 1 - me)
    mistakes = {
        "the tensor is as it was: add in place (add_), into the tensor's own memory. `tensor = "
        "tensor + ...` and `.data =` do not; reshape(-1) of one with gaps is a copy": own,
        "this is twice our own: the partner's slot is the one at 1 - me": 2 * own,
        "we read what the partner wrote for the *next* turn: it was faster and overwrote its slot "
        "before we had read it. Two halves, used in turns, make that impossible": own + later,
    }
    early = """we read a slot that the partner had not written in this turn: is a wait() missing?
        What does a wake-up promise to who is woken? And do both partners mean the same half?"""
    what = f"turn {turn} on partner {me} ({meeting})"
    checking.same_values(tensor, own + theirs, what=what, meaning=early, mistakes=mistakes)


CPUS = """the CPUs of the mask ("0-3,8" are five, "0-47" are 48), or quota / period if that is
less. It may be a part of a CPU, and is not rounded; both figures stand in cpu_max"""


def check_confinement(confinement: Callable[[Reading], tuple[str, float]]) -> None:
    """Judge 1.5: ``confinement(reading)`` names what holds a rank back, and counts its CPUs.

    On nine readings in the kernel's format; each is special in its own way (`readings.json`).
    """
    with checking.exercise("1.5", confinement, par="every reading"):
        for reading, right, special in confined.readings():
            expected = f"{right}, of {reading}"
            pair = checking.ask(confinement, reading, case=str(reading))
            checking.answer(pair, (tuple, list), what="a name and a number of CPUs")
            hold(len(pair) == 2, expected, repr(pair), "a name and a number of CPUs are asked")
            name = checking.word(pair[0], confined.NAMES, what="a name")
            is_whole = reading.allowed == f"0-{reading.cpus - 1}"  # one short, it looks like a mask
            reason = CPUS if name == "mask" and is_whole else special
            hold(name == right[0], expected, repr(pair), reason)
            cpus = checking.number(pair[1], what="a number of CPUs")
            hold(abs(cpus - right[1]) < 1e-6, expected, repr(pair), CPUS)


CLEAR = 2.0  # times as long, or as short: what lies between is not judged on the learner's machine


def check_who_pays(who_pays: Callable[..., tuple[dict[str, list[int]], str]]) -> None:
    """Judge 1.6: ``who_pays(programs, nbytes)`` names programs, the ranks that pay, and the reason.

    Three times by programs that sleep by a script, then by real ones, which are timed here as well:
    what is not at least twice as long, or as short, as the largest in each round is not judged.
    """
    wrong = {
        "a": "8.5 kB in 16 sums are less than 350 kB in one, and the loopback carries each at "
        "once: what is paid for is not the bytes",
        "c": "you meet before each run, so that nobody is late",
    }
    with checking.exercise("1.6", who_pays, par="every program, and the reason") as verdict:
        for fleet in paying.FLEETS:
            for pays, _ in _answers(who_pays, fleet):
                _hold_payers(_payers(pays, fleet.nbytes), fleet)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                measured = checking.on_ranks(paying.measure, world_size=3, checks=False)
                (payers, reason), *_ = _answers(who_pays, None)
                _hold_measured(_payers(payers, paying.NBYTES), measured)
                break
            except checking.CheckFailed as failed:
                if attempt == ATTEMPTS or not failed.timed:
                    raise
        checking.letter(lambda: reason, right="b", wrong=wrong)
        ms = {name: max(1e3 * median(rank[name]) for rank in measured) for name in paying.PROGRAMS}
        timed = ", ".join(f"{name} {each:.1f} ms" for name, each in ms.items())
        verdict.reached = f"all (the check's own times, of the slowest rank: {timed})"


def _answers(who_pays: Callable[..., object], fleet: Fleet | None) -> list[tuple]:
    ranks = checking.on_ranks(paying.ask, who_pays, fleet, world_size=3, checks=False)
    what = "a dict, and the letter of the reason"
    for answer in ranks:
        checking.answer(answer, (tuple, list), what=what)
        hold(len(answer) == 2, what, repr(answer), "two things are asked")
    return ranks


def _payers(pays: object, programs: Collection[str]) -> dict[str, list[int]]:
    payers = checking.answer(checking.plain(pays), dict, what="programs -> ranks that pay")
    others = [name for name in payers if name not in programs]
    names = f"names of the programs that were given: {', '.join(programs)}"
    hold(not others, names, others, "`programs` has these names, and the check's own have others")
    for name, ranks in payers.items():
        in_a_list = isinstance(ranks, list | tuple | set)
        fits = in_a_list and all(type(rank) is int and 0 <= rank <= 2 for rank in ranks)
        what = f"{name}: the ranks that pay, as in [0, 2]"
        hold(fits, what, repr(ranks)[:200], "ranks are asked in a list, also a single one")
    return {name: sorted({*ranks}) for name, ranks in payers.items() if ranks}


def _hold_payers(payers: dict[str, list[int]], fleet: Fleet) -> None:
    every = {name: [0, 1, 2] for name in fleet.pays}
    largest = max(fleet.nbytes, key=fleet.nbytes.__getitem__)
    itself = fleet.pays | {largest: [0, 1, 2]}
    mistakes = {
        "the program with the most bytes takes no longer than itself": itself,
        "each rank's *own* time is asked here, not the slowest rank's. And the wait for a rank "
        "that is late is no time of this program: meet (barrier) before each run": every,
    }
    otherwise = "compare with the program that sends the *most* bytes, rank by rank"
    reason = next((text for text, wrong in mistakes.items() if wrong == payers), otherwise)
    right = f"{fleet.name}: {fleet.pays}"
    hold(payers == fleet.pays, right, repr(payers), reason, timed=True)


def _hold_measured(payers: dict[str, list[int]], measured: list[dict[str, list[float]]]) -> None:
    """Hold who pays for a real program to what each rank took for it, three times, just now."""
    for rank, name in product(range(len(measured)), ("pieces", "errand")):
        pairs = zip(measured[rank][name], measured[rank]["whole"], strict=True)
        ratios = [seconds / of_whole for seconds, of_whole in pairs]
        is_longer, is_shorter = min(ratios) > CLEAR, max(ratios) < 1 / CLEAR
        if is_longer or is_shorter:
            pays = rank in payers.get(name, [])
            seen = f"{median(ratios):.2g} times as long as whole on rank {rank}, timed just now"
            reason = "take the median of several runs, after one to warm up, on each rank"
            hold(pays == is_longer, f"{name}: {seen}", f"pays: {pays}", reason, timed=True)
