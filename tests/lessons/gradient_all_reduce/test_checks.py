"""The usual mistakes in lesson 2's exercises, each caught with its own message."""

import pytest
import torch.distributed as dist

from labkit.comm import shapes
from labkit.comm.buckets import plan as reference_plan
from labkit.course.checking import CheckFailed
from labkit.lessons.gradient_all_reduce import checks


def caught(check, answer, words):
    with pytest.raises(CheckFailed) as failure:
        check(answer)
    assert words in str(failure.value).replace("\n                ", " ")


def right_diagnosis(seconds):
    transfer, cost = 0.0, [0.0] * len(seconds)
    for timers in zip(*seconds, strict=True):
        ranks = sorted(range(len(timers)), key=timers.__getitem__)
        transfer += timers[ranks[0]]
        cost[ranks[0]] += timers[ranks[1]] - timers[ranks[0]]
    worst = cost.index(max(cost))
    return worst, transfer, cost[worst]


def test_a_right_diagnosis_passes(capsys):
    checks.check_diagnose(right_diagnosis)
    assert "2.1 passed" in capsys.readouterr().out


def largest_timer(seconds):
    sums = [sum(own) for own in seconds]
    return sums.index(max(sums)), 0.0, 0.0


def most_often_last(seconds):
    last = [
        min(range(len(seconds)), key=lambda rank: seconds[rank][call])
        for call in range(len(seconds[0]))
    ]
    rank, (_, transfer, lost) = max(set(last), key=last.count), right_diagnosis(seconds)
    return rank, transfer, lost


def mean_as_transfer(seconds):
    rank, _, lost = right_diagnosis(seconds)
    return rank, sum(map(sum, seconds)) / len(seconds), lost


def lost_against_the_first(seconds):
    rank, transfer, _ = right_diagnosis(seconds)
    calls = list(zip(*seconds, strict=True))
    return rank, transfer, sum(max(timers) - min(timers) for timers in calls)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (largest_timer, "it is the first victim, not the cause"),
        (most_often_last, "need not cost most"),
        (mean_as_transfer, "averaging over ranks mixes the waiting back in"),
        (lost_against_the_first, "the next to last would decide"),
        (lambda seconds: None, "ends without `return`"),
    ],
)
def test_wrong_diagnoses(answer, words):
    caught(checks.check_diagnose, answer, words)


def planned(nbytes, cap, first_cap):
    specs = [shapes.TensorSpec(str(size), (size,), "int8") for size in nbytes]
    buckets = reference_plan(specs, cap=cap, first_cap=first_cap, reverse=True)
    return [list(bucket.members) for bucket in buckets]


def test_a_right_plan_passes(capsys):
    checks.check_plan(planned)
    assert "2.2 passed" in capsys.readouterr().out


def forwards(nbytes, cap, first_cap):
    last = len(nbytes) - 1
    return [[last - place for place in bucket] for bucket in planned(nbytes, cap, first_cap)]


def by_size(nbytes, cap, first_cap):
    order = sorted(range(len(nbytes)), key=lambda place: (-nbytes[place], place))
    shuffled = planned([nbytes[place] for place in order], cap, first_cap)
    return [[order[place] for place in bucket] for bucket in shuffled]


def last_bucket_forgotten(nbytes, cap, first_cap):
    return planned(nbytes, cap, first_cap)[:-1]


def over_the_cap(nbytes, cap, first_cap):
    buckets, bucket, held = [], [], 0
    for place in reversed(range(len(nbytes))):
        bucket.append(place)
        held += nbytes[place]
        if held >= (cap if buckets else first_cap):
            buckets.append(bucket)
            bucket, held = [], 0
    return [*buckets, bucket] if bucket else buckets


def same_cap_for_the_first(nbytes, cap, first_cap):
    return planned(nbytes, cap, cap)


def one_each(nbytes, cap, first_cap):
    return [[place] for place in reversed(range(len(nbytes)))]


def empty_bucket(nbytes, cap, first_cap):
    return [[], *planned(nbytes, cap, first_cap)]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (forwards, "go through the list backwards"),
        (by_size, "do not sort by size"),
        (last_bucket_forgotten, "the last bucket is never closed"),
        (over_the_cap, "look before you put a tensor in"),
        (same_cap_for_the_first, "the first bucket has its own, smaller cap"),
        (one_each, "although the next tensor would have fitted"),
        (empty_bucket, "close a bucket only if something is in it"),
        (lambda *_: None, "ends without `return`"),
    ],
)
def test_wrong_plans(answer, words):
    caught(checks.check_plan, answer, words)


def attached(start, *, divide=True, forget=True, wait=True, give_back=True):
    def attach(model):
        works = []

        def hook(parameter):
            works.append((start(parameter), parameter))

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(hook)

        def finish():
            for work, parameter in works:
                if wait and work is not None:
                    work.wait()
                if divide:
                    parameter.grad /= dist.get_world_size()
            if forget:
                works.clear()

        return finish if give_back else None

    return attach


def in_background(parameter):
    return dist.all_reduce(parameter.grad, async_op=True)


def at_once(parameter):
    dist.all_reduce(parameter.grad)


def copies(parameter):
    return dist.all_reduce(parameter.grad.clone(), async_op=True)


def after_backward(model):
    def finish():
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, async_op=True).wait()
            parameter.grad /= dist.get_world_size()

    return finish


def test_a_right_overlap_passes(capsys):
    checks.check_overlap(attached(in_background))
    assert "2.3 passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (attached(in_background, divide=False), "divide by the world size"),
        (attached(at_once), "the calls start after backward is over, or each hook waits at once"),
        (after_backward, "the calls start after backward is over, or each hook waits at once"),
        (attached(copies, divide=False), "the rank's own gradients"),
        (attached(in_background, forget=False), "forget last step's works"),
        (attached(in_background, give_back=False), "`return finish` is missing"),
        (
            attached(lambda p: (in_background(p), in_background(p))[1], divide=False),
            "starts the all_reduce of its own parameter, once",
        ),
    ],
)
def test_wrong_overlaps(answer, words):
    caught(checks.check_overlap, answer, words)


def exposed(ready, nbytes, cost, backward):
    free = 0.0
    for moment, size in zip(ready, nbytes, strict=True):
        free = max(free, moment) + cost(size)
    return max(0.0, free - backward)


def wire_never_busy(ready, nbytes, cost, backward):
    ends = [moment + cost(size) for moment, size in zip(ready, nbytes, strict=True)]
    return max(0.0, max(ends, default=0.0) - backward)


def negative(ready, nbytes, cost, backward):
    free = 0.0
    for moment, size in zip(ready, nbytes, strict=True):
        free = max(free, moment) + cost(size)
    return free - backward


def test_a_right_exposure_passes(capsys):
    checks.check_exposed(exposed)
    assert "2.4 passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda r, b, cost, w: sum(map(cost, b)), "all of the communication, hidden or not"),
        (wire_never_busy, "the wire carries one bucket at a time"),
        (negative, "exposed time is never negative"),
        (lambda r, b, cost, w: exposed(r, b, cost, w) + w, "subtract backward"),
        (
            lambda r, b, cost, w: sum(map(cost, b)) - w,
            "communication cannot start before a bucket is ready",
        ),
        (lambda *_: None, "ends without `return`"),
        (lambda *_: 1.0, "begin = max(ready, when the wire is free)"),
    ],
)
def test_wrong_exposures(answer, words):
    caught(checks.check_exposed, answer, words)


def test_an_unattempted_exercise_says_so():
    def stub(*_):
        raise NotImplementedError("exercise 2.2")

    with pytest.raises(NotImplementedError, match=r"exercise 2\.2"):
        checks.check_plan(stub)
