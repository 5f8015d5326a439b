"""The usual mistakes in lesson 01's exercises: each is caught, and told apart from the others."""

import dataclasses
from unittest import mock

import torch
from pytest import mark, raises

from course.checks.checking import CheckFailed
from course.lessons.gloo_scaling import checks, confined
from course.lessons.gloo_scaling.model import Saturation
from tests.course.lessons.gloo_scaling import answers

pytestmark = mark.slow


def caught(check, *given):
    with raises(CheckFailed) as failure:
        check(*given)
    return " ".join(failure.value.meaning.split())


# 1.2: fusing


FUSED = {
    answers.returned_instead: "new ones that are returned",
    answers.lone_as_it_is: "sums a tensor with gaps as if it had none",
    answers.in_storage_order: "another order",
    answers.by_torchs_packers: "write one yourself",
    answers.lone_as_a_copy: "writing to it changes nothing",
    answers.only_1024: "not all sums were copied",
    answers.put_back_by(
        lambda t, total: t.copy_(total if t.dtype == torch.int64 else total.float())
    ): "digits got lost",
    answers.promoted: "one flat tensor for several dtypes",
    answers.wrong_order: "cut in another order",
    answers.swapped_data: "assigning `.data` swaps the memory",
    answers.one_by_one: "more than one call per dtype",
    answers.gathered: "gathering everybody's tensors",
    answers.in_a_thread(answers.cloned_first): "a copy too many is alive",
    answers.waits_too_late: "with async_op=True a call only begins",
    answers.by_a_sets_order: "in another order than the list has them",
    answers.remembering: "keeps something between calls",
    answers.by_turns_of_the_list: "more than one call per dtype",
    answers.each_tensor_once: "has new values in them",
    answers.one_dtype_unpacked: "more than one call per dtype",
    answers.in_another_shape: "as_strided_ its elements",
    answers.clones_by_dtype: "a copy too many is alive",
    answers.cannot_do_none: "for an empty list there is nothing to do",
    answers.means: "these are means",
    answers.coalesced: "all_reduce_coalesced packs for you",
    answers.labkits_own: "the exercise is to write one yourself",
    answers.nothing_is_sent: "nothing is summed through torch.distributed",
    answers.then(lambda tensors: tensors.append(tensors)): "the list is the caller's",
    answers.then(list.reverse): "sort a list of your own",
    answers.replaced_in_the_list: "copy_ the sums into these",
    answers.put_back_by(lambda t, total: t.copy_(total.nan_to_num())): "an infinity was replaced",
    answers.put_back_by(lambda t, total: t.add_(total)): "copy it there",
    answers.put_back_by(answers.times_ranks): "times the number of ranks",
    answers.largest: "ReduceOp.MAX",
    answers.without_counters: "a dtype is left out",
    answers.always_calls: "make no call",
    answers.small_counters_narrowed: "in another dtype",
}


# 1.4: shared memory


SHARED = {
    answers.no_wait: "wait() is never called",
    answers.no_wake: "nobody calls wake()",
    answers.wait_first: "each waits before it wakes the other",
    answers.wake_before_writing: "What does a wake-up promise",
    answers.own_slot: "twice our own tensor",
    answers.new_tensor: "add in place",
    answers.meets_twice: "the partners meet twice",
    answers.library_instead: "torch.distributed does the sum here",
    answers.swaps_memory: "swap the memory under a tensor",
    answers.half_precision: "which slot was read",
    answers.the_courses_own: "the exercise is to write one yourself",
    answers.clears_too_early: "cleared before we had read it",
    answers.wakes_twice: "more wake-ups than sums",
    answers.waits_every_second_time: "sums without a wait()",
    answers.mean_of_both: "this is the mean",
    answers.by_halves(lambda turn, me: turn % 19 % 2): "overwrote its slot before we had read it",
    answers.by_halves(lambda turn, me: turn % 255 % 2): "overwrote its slot before we had read it",
    answers.writes_what_changed: "what was written there last",
    answers.leaves_zeros_out: "what was written there last",
    answers.meets_again_late: "the partners meet twice",
    answers.by_halves(lambda turn, me: (turn + me) % 2): "do both partners mean the same half",
    answers.by_halves(answers.in_turns, answers.waits_if_unchanged): "sums without a wait()",
    answers.by_halves(answers.in_turns, answers.polls_for_ever): "polled",
    answers.by_halves(answers.in_turns, answers.naps): "polled",
    answers.by_view: "copy in its own shape",
    answers.leaves_nan_out: "a nan was left out or replaced",
    answers.by_reshape: "reshape(-1) of one that is not contiguous is a copy",
    answers.up_to_ten: "a tensor may be of any size",
    answers.by_first_dimension: "a tensor may have any shape",
}


WRONG = [(checks.check_fused_all_reduce, *wrong) for wrong in FUSED.items()]
WRONG += [(checks.check_shared_sum, *wrong) for wrong in SHARED.items()]


def name(value):
    return getattr(value, "__name__", "")


@mark.parametrize("answer", [answers.shared_by_numpy, answers.one_sums_for_both], ids=name)
def test_a_right_shared_sum_passes(answer, capsys):
    checks.check_shared_sum(answer)
    assert "1 wake-up per sum" in capsys.readouterr().out


@mark.parametrize(("check", "answer", "says"), WRONG, ids=name)
def test_each_wrong_sum_is_named(check, answer, says):
    assert says in caught(check, answer)


# 1.3 and 1.5: the short forms


@mark.parametrize(
    ("got", "meaning"),
    [
        ("a", "160 µs"),
        ("c", "two ranks"),
        ("d", "cpu.max"),
        ("b or c", "one letter"),
        ("e", "letter"),
        ("b) 6", "b is another number"),
        (("b", 6), "b is another number"),
    ],
)
def test_each_wrong_knee_is_named(got, meaning):
    assert meaning in caught(checks.check_first_slower, lambda: got)


RIGHT_KNEES = ["b", "B) 3 pairs", ("b", "2p / 1.5 x 60 > 200"), "b: 2 pairs take 160 µs", ("b", 3)]


@mark.parametrize("got", RIGHT_KNEES)
def test_a_right_knee_passes_with_any_reason(got, capsys):
    checks.check_first_slower(lambda: got)
    assert "Exercise 1.3 passed" in capsys.readouterr().out


def test_the_knee_follows_from_the_law():
    law = Saturation(alone=200e-6, cpu_per_call=60e-6)
    assert next(p for p in range(2, 99) if law.time(2 * p / 1.5) > law.time(2 / 1.5)) == 3


# 1.5: two launches


RULES = {
    "quota": lambda r: (confined.throttled(r) >= 0.1, "quota"),
    "none": lambda r: (confined.spent(r)[1] < confined.spent(r)[0] / 2, "none"),
    "mask": lambda r: (confined.allowed(r.allowed) < r.cpus, "mask"),
}


def cpus_of(reading):
    return min(confined.allowed(reading.allowed), confined.quota(reading))


def in_order(*names, number=cpus_of):
    """The rules in another order, or some of them."""

    def confinement(reading):
        for name in names:
            holds, says = RULES[name](reading)
            if holds:
                return says, number(reading)
        return "neighbours", number(reading)

    return confinement


def numbered(number):
    """The right name, and another number."""
    return in_order("quota", "none", "mask", number=number)


def since_the_beginning(reading):
    """Counters as they are."""
    return confined.answer(
        dataclasses.replace(
            reading, before={}, stat_before=reading.stat_before and confined._stat(0, 0)
        )
    )


def main_thread_only(reading):
    first = dict([next(iter(reading.after.items()))])
    return confined.answer(dataclasses.replace(reading, after=first))


def old_threads_only(reading):
    after = {thread: text for thread, text in reading.after.items() if thread in reading.before}
    return confined.answer(dataclasses.replace(reading, after=after))


def of_threads(differences):
    """Other sums of what the threads did: made of the pairs `differences(reading)`."""

    def confinement(reading):
        on_cpu, waiting = (sum(pair) for pair in zip(*differences(reading), strict=True))
        after = {7: f"{on_cpu} {waiting} 0"}
        return confined.answer(dataclasses.replace(reading, before={}, after=after))

    return confinement


def figures(text):
    return [int(figure) for figure in text.split()[:2]]


def of_each(reading, threads=None):
    """What each thread did."""
    for thread in threads or reading.after:
        new, old = (figures(one.get(thread, "0 0 0")) for one in (reading.after, reading.before))
        yield new[0] - old[0], new[1] - old[1]


def with_ended(reading):
    return of_each(reading, {**reading.before, **reading.after})


def with_ended_in_absolute(reading):
    return [(abs(on_cpu), abs(waiting)) for on_cpu, waiting in with_ended(reading)]


def mean_ratio(reading):
    return [(10**9, waiting * 10**9 // on_cpu) for on_cpu, waiting in of_each(reading) if on_cpu]


def one_that_waits(reading):
    return [max(of_each(reading), key=lambda pair: pair[1] / max(pair[0], 1))]


def by_periods(holds):
    """The right answer, with another first rule: of the throttled periods, and of all."""

    def confinement(reading):
        texts = (reading.stat_before, reading.stat_after)
        old, new = (text.split() if text else "0" * 10 for text in texts)
        fits = holds(*(int(new[k]) - int(old[k]) for k in (9, 7)))
        return ("quota", cpus_of(reading)) if fits else in_order("none", "mask")(reading)

    return confinement


def own_limit(name, limit):
    """The right answer, but this name has a number of its own."""

    def confinement(reading):
        found, cpus = confined.answer(reading)
        return found, limit(reading) if found == name else cpus

    return confinement


def any_throttling(reading):
    name, cpus = confined.answer(reading)
    return ("quota" if confined.throttled(reading) else name), cpus


def by_cpu_max(reading):
    name, cpus = confined.answer(reading)
    return ("quota" if confined.quota(reading) < reading.cpus else name), cpus


def by_total_waiting(reading):
    """The third column for the second."""

    def swapped(texts):
        return {k: "{0} {2} {1}".format(*t.split()) for k, t in texts.items()}

    return confined.answer(
        dataclasses.replace(reading, before=swapped(reading.before), after=swapped(reading.after))
    )


CONFINEMENTS = {
    "mask before quota": in_order("mask", "quota", "none"),
    "none before quota": in_order("none", "quota", "mask"),
    "cpus of the mask": numbered(lambda r: confined.allowed(r.allowed)),
    "cpus of the quota where there is one": numbered(
        lambda r: q if (q := confined.quota(r)) < r.cpus else confined.allowed(r.allowed)
    ),
    "waiting since the beginning": lambda r: confined.answer(dataclasses.replace(
        r, before={k: "{0} 0 {2}".format(*t.split()) for k, t in r.before.items()}
    )),
    "more than a tenth": lambda r: confined.answer(r) if confined.throttled(r) != 0.1 else (
        "none", cpus_of(r)
    ),
    "half at most": lambda r: ("none", cpus_of(r)) if (
        2 * confined.spent(r)[1] == confined.spent(r)[0]
    ) else confined.answer(r),
    "cpus of the machine": numbered(lambda r: r.cpus),
    "the quota as it stands": numbered(
        lambda r: int((r.cpu_max or "1 1").split()[0].replace("max", "1"))
    ),
    "a list without ranges": numbered(lambda r: min(len(r.allowed.split(",")), confined.quota(r))
    ),
    "ranges without their end": numbered(
        lambda r: min(confined.allowed(r.allowed) - 1, confined.quota(r))
    ),
    "since the beginning": since_the_beginning,
    "main thread": main_thread_only,
    "old threads": old_threads_only,
    "any throttling": any_throttling,
    "by cpu.max": by_cpu_max,
    "slices for waiting": by_total_waiting,
    "a name alone": lambda reading: "mask",
    "an unknown name": lambda reading: ("confined", 1),
    "none at all": lambda reading: None,
    "quota by cpu.max, too": lambda r: confined.answer(r) if confined.quota(r) < 999 else (
        in_order("none", "mask")(r)
    ),
    "ended threads": of_threads(with_ended),
    "ended threads in absolute": of_threads(with_ended_in_absolute),
    "the busiest thread": of_threads(lambda r: [max(of_each(r))]),
    "one that waits": of_threads(one_that_waits),
    "the mean ratio": of_threads(mean_ratio),
    "half rounded down": lambda r: confined.answer(r) if (
        confined.spent(r)[1] != confined.spent(r)[0] // 2
    ) else in_order("quota", "mask")(r),
    "a period of 100000": numbered(lambda r: min(
        confined.allowed(r.allowed), float((r.cpu_max or "max 1").split()[0].replace("max", "inf"))
        / 1e5
    )),
    "a number as text": numbered(lambda r: str(cpus_of(r))),
    "two digits": numbered(lambda r: round(cpus_of(r), 2)),
    "the mask's number for mask": own_limit("mask", lambda r: confined.allowed(r.allowed)),
    "the quota's number for quota": own_limit("quota", lambda r: (
        q if (q := confined.quota(r)) < 999 else cpus_of(r)
    )),
    "ten periods": by_periods(lambda hits, periods: hits >= 10),
    "a twentieth": by_periods(lambda hits, periods: 0 < periods <= 20 * hits),
    "of ten periods or more": by_periods(lambda hits, periods: 10 <= periods <= 10 * hits),
    "a tenth rounded down": by_periods(lambda hits, periods: periods > 0 and hits >= periods // 10),
    "the first three threads": of_threads(lambda r: [*of_each(r)][:3]),
    "the busiest two threads": of_threads(lambda r: sorted(of_each(r))[-2:]),
}  # fmt: skip
"""What people return who did not see our answer."""
SAYS = {
    "quota by cpu.max, too": "rule 1 asks nothing else",
    "ended threads": "it has ended",
    "ended threads in absolute": "it has ended",
    "the busiest thread": "add up first",
    "one that waits": "add up first",
    "the mean ratio": "add up first",
    "half rounded down": "nothing is rounded",
    "a period of 100000": "not always 100000",
    "a number as text": "another type",
    "two digits": "not rounded",
    "the mask's number for mask": "but the quota fewer",
    "the quota's number for quota": "but the mask fewer",
    "ten periods": "the share counts",
    "a twentieth": "6 of 100",
    "of ten periods or more": "3 of 8",
    "a tenth rounded down": "1 of 11",
    "the first three threads": "add up all five",
    "the busiest two threads": "add up all five",
}
"""What some of them are told; each of the others, one thing or another."""


def judge_confinement(answer):
    """Without the ban on the course's own functions, from which these answers are made."""
    with mock.patch.object(checks.checking, "ask", lambda function, *given, **_: function(*given)):
        checks.check_confinement(answer)


@mark.parametrize("wrong", CONFINEMENTS)
def test_each_wrong_reading_is_refused_with_a_reason(wrong):
    meaning = caught(judge_confinement, CONFINEMENTS[wrong])
    assert len(meaning) > 20
    assert SAYS.get(wrong, "") in meaning


def test_a_right_reading_passes(capsys):
    judge_confinement(lambda reading: [confined.answer(reading)[0].upper(), cpus_of(reading)])
    assert "Exercise 1.5 passed" in capsys.readouterr().out


@mark.parametrize("text", ["0", "0-3,8", "0-1,24-25"])
def test_a_list_of_cpus_is_counted(text):
    assert confined.allowed(text) == {"0": 1, "0-3,8": 5, "0-1,24-25": 4}[text]
