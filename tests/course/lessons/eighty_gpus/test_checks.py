"""Right answers in two styles, and the usual wrong ones, each refused with its own words."""

import functools
import itertools
import statistics

import pytest
import torch
import torch.distributed as dist

from course.lessons.eighty_gpus import checks, logs, programs
from tests.course.lessons.refusals import altered, refusal

pytestmark = pytest.mark.slow
MODULES = (checks, dist, torch, logs, functools, itertools, statistics)


def group(host):
    return "nine" if host in checks.NINE else "alone" if host == 8 else "rest"


NAMES = {module.__name__.rpartition(".")[2]: module for module in MODULES}
answer = functools.partial(altered, **NAMES, dist=dist, group=group)


def in_order(jobs, slots=checks.SLOTS):
    hosts = iter([*sorted(checks.NINE), *sorted(checks.ALL - checks.NINE)])
    return [([*itertools.islice(hosts, count)], slots) for count in jobs]


def by_the_largest_gap(figures):
    values = sorted(figures.values())
    gap, at = max((b / a, i + 1) for i, (a, b) in enumerate(itertools.pairwise(values)))
    return {pair for pair, gbs in figures.items() if gap > 1.3 and gbs < values[at]}


def other_sequences(jobs):
    return ((set(hosts), [*slots]) for hosts, slots in answer("7-3")(jobs))


def where_they_start(first, second, gpus):  # slots ascend: the data cannot tell these apart
    alike = group(first) == group(second) and gpus[0][0] == gpus[1][0]
    is_slow = answer("7-4")(first, second, gpus) == "slow"
    return checks.LEVELS[0 if is_slow else 1 + alike]


BATCHED = answer(
    "7-2",
    "[dist.isend(chunks[turn % servers], right), dist.irecv(incoming, left)]",
    "dist.batch_isend_irecv([dist.P2POp(dist.isend, chunks[turn % servers], right), "
    "dist.P2POp(dist.irecv, incoming, left)])",
)


RIGHT = [
    (checks.check_slow_pairs, by_the_largest_gap),
    (checks.check_slow_pairs, lambda figures: sorted(answer("7-1")(figures))),
    (checks.check_rails, programs.all_reduce_along_rings),
    (checks.check_rails, BATCHED),
    (checks.check_placement, other_sequences),
    (checks.check_level, where_they_start),
]


@pytest.mark.parametrize(("check", "right"), RIGHT)
def test_right_answers_in_another_style(check, right):
    check(right)


@pytest.mark.parametrize("jobs", [(8, 9), (10, 7)], ids=str)
def test_the_best_placement_is_the_best_of_all(jobs):
    """Try hosts one by one, job by job."""
    dead = [{*pair} for pair in checks.DEAD]

    @functools.cache
    def best(job, free):
        if job == len(jobs):
            return 0
        most = -1000
        for hosts in map(frozenset, itertools.combinations(free, jobs[job])):
            if not any(pair <= hosts for pair in dead):
                slots = 8 if len(hosts & checks.NINE) in (0, len(hosts)) else 7
                rest = best(job + 1, tuple(host for host in free if host not in hosts))
                most = max(most, slots * len(hosts) + rest)
        return most

    assert best(0, tuple(sorted(checks.ALL))) == checks.DAYS[jobs]


LAST = "    works = [dist.isend(shares[mine]"
BEST = "max(found, (gpus + slots * left[0], (taken, *rest)))"
ANY_SENDER = answer("7-4", " or slot not in took_part[sender]", "")
SHOWN = {(test.first, test.second, test.gpus): level for test, level in checks.levels(shown=True)}


def one_ring(tensor, cards):
    programs.all_reduce_along_rings(tensor, cards=1)


def by_heart(first, second, gpus):
    test = (first, second, gpus) if first < second else (second, first, gpus[::-1])
    return SHOWN.get(test) or ANY_SENDER(*test)


def one_way(first, second, gpus):
    return answer("7-4")(first, second, gpus) if first < second else "across"


@pytest.mark.parametrize(
    ("check", "wrong", "words"),
    [
        (checks.check_slow_pairs, answer("7-1", "max", "statistics.median"), "the median"),
        (checks.check_slow_pairs, answer("7-1", "0.8", "0.5"), "half of the best"),
        (checks.check_slow_pairs, answer("7-1", "0.8", "0.97"), "at most 60 %"),
        (checks.check_slow_pairs, answer("7-1", "0.8 * usual", "39.2"), "the limit a fixed figure"),
        (checks.check_slow_pairs, answer("7-1", "0.8 * usual", "4.0"), "no pair is called slow"),
        (checks.check_slow_pairs, lambda figures: {*range(17)}, "two hosts are asked"),
        (checks.check_rails, one_ring, "leaves each server by one"),
        (checks.check_rails, lambda tensor, cards: dist.all_reduce(tensor), "dist.all_reduce"),
        (checks.check_rails, answer("7-2", LAST, f"    return\n{LAST}"), "or the last phase"),
        (checks.check_rails, answer("7-2", "range(2 * (servers - 1))", "()"), "goes across is"),
        (checks.check_placement, in_order, "is in both groups and uses slot 9d"),
        (checks.check_placement, answer("7-3", "any(pair <= used for pair in dead)", "0"), "DEAD"),
        (checks.check_placement, answer("7-3", BEST, f"found if found[1] else {BEST}"), "fewer"),
        (checks.check_placement, lambda jobs: in_order(jobs[::-1]), "answer is the first's"),
        (checks.check_placement, lambda jobs: [{1}, {2}], "a job gets hosts, and slots"),
        (checks.check_placement, lambda jobs: in_order(jobs, 8), "which, and not how many"),
        (checks.check_placement, lambda jobs: [(8, checks.SLOTS)] * 2, "which, and not how many"),
        (checks.check_placement, lambda jobs: in_order(jobs, [[1]]), "a job gets hosts, and slots"),
        (checks.check_level, ANY_SENDER, "the sender's own GPU"),
        (checks.check_level, by_heart, "held out"),
        (checks.check_level, one_way, "its second host stands first"),
        (checks.check_level, lambda *test: "fast", "one of slow, across, rail"),
    ],
)
def test_wrong_answers(check, wrong, words):
    assert words in refusal(check, wrong)
