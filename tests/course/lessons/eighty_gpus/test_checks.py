"""Right answers in two styles, and the usual wrong ones, each refused with its own words."""

import functools
import itertools
import statistics

import pytest
import torch
import torch.distributed as dist

from course.lessons.eighty_gpus import checks, logs, programs
from course.lessons.eighty_gpus.evidence import group
from tests.course.lessons.refusals import refusal

pytestmark = pytest.mark.slow


def in_order(jobs, slots=checks.SLOTS):
    hosts = iter([*sorted(checks.NINE), *sorted(checks.ALL - checks.NINE)])
    return [([*itertools.islice(hosts, count)], slots) for count in jobs]


def by_the_largest_gap(figures):
    values = sorted(figures.values())
    gap, at = max((b / a, i + 1) for i, (a, b) in enumerate(itertools.pairwise(values)))
    return {pair for pair, gbs in figures.items() if gap > 1.3 and gbs < values[at]}


EIGHT = checks.ALL - checks.NINE
PLACES = {
    (8, 9): [EIGHT, checks.NINE],
    (10, 7): [EIGHT | {1, 4}, checks.NINE - {1, 4}],
    (3, 3, 3, 8): [{1, 2, 3}, {4, 6, 9}, {12, 16, 17}, EIGHT],
    (5, 4, 4, 4): [{1, 2, 3, 4, 6}, {9, 12, 16, 17}, {5, 7, 8, 10}, {11, 13, 14, 15}],
    (14, 1, 1, 1): [checks.ALL - {8, 16, 17}, {16}, {17}, {8}],
}
"""By the hosts that jobs ask for: hosts for each."""


def slots_of(hosts):
    """All slots, or all but 9d where hosts of both groups are together."""
    is_across = len({host in checks.NINE for host in hosts}) == 2
    return checks.SLOTS - {"9d"} if is_across else checks.SLOTS


def in_other_sequences(jobs):
    """Right: one after the other, hosts in sets, slots in lists."""
    for hosts in PLACES[tuple(jobs)]:
        yield hosts, [*slots_of(hosts)]


def leaves_its_group(first, second, gpus, *, own_slot=True):
    """Whether a message does; or, with `own_slot`, comes from no GPU of its receiver's slot."""
    own = {first: gpus[0], second: gpus[1]}
    return any(
        group(sender) != group(receiver) or (own_slot and slot not in own[sender])
        for sender, receiver, slot in logs.messages(first, second, gpus, "sendrecv")
    )


def is_slow(first, second, gpus):
    """Whether a message comes into a 9d of the nine, and not from a 9d of the nine."""
    own = {first: gpus[0], second: gpus[1]}
    return any(
        slot == "9d"
        and receiver in checks.NINE
        and not (sender in checks.NINE and slot in own[sender])
        for sender, receiver, slot in logs.messages(first, second, gpus, "sendrecv")
    )


def level(first, second, gpus):
    """Right."""
    if is_slow(first, second, gpus):
        return "slow"
    return "across" if leaves_its_group(first, second, gpus) else "rail"


def where_they_start(first, second, gpus):
    """Right: where slots ascend, the data cannot tell these apart."""
    if is_slow(first, second, gpus):
        return "slow"
    return "rail" if group(first) == group(second) and gpus[0][0] == gpus[1][0] else "across"


def by_level(tensor, cards, *, across=True, back=True, wire=None):
    """Sum inside each server, then the shares among ranks of one number, then share them inside.

    `wire`: the dtype in which everything travels; None: the tensor's own.
    """
    rank, n = dist.get_rank(), dist.get_world_size()
    card = rank % cards
    inside = range(rank - card, rank - card + cards)
    shares = tensor.tensor_split(cards)
    arrived = swap({peer: shares[peer % cards] for peer in inside}, wire)
    for piece in arrived.values():
        shares[card].add_(piece)
    rail = range(card, n, cards)
    pieces = dict(zip(rail, shares[card].tensor_split(len(rail)), strict=True))
    if across:
        for piece in swap(pieces, wire).values():
            pieces[rank].add_(piece)
        for peer, piece in swap(dict.fromkeys(rail, pieces[rank]), wire).items():
            pieces[peer].copy_(piece)
    if back:
        for peer, piece in swap(dict.fromkeys(inside, shares[card]), wire).items():
            shares[peer % cards].copy_(piece)


def swap(outgoing, wire=None):
    """Send each rank its tensor, and return what each sent, as long as one's own piece."""
    me = dist.get_rank()
    peers = [peer for peer in outgoing if peer != me]
    sent = {peer: outgoing[peer].to(wire or outgoing[peer].dtype) for peer in peers}
    arriving = {peer: torch.empty_like(outgoing[me], dtype=wire) for peer in peers}
    works = [dist.irecv(arriving[peer], peer) for peer in peers]
    works += [dist.isend(sent[peer], peer) for peer in peers]
    for work in works:
        work.wait()
    return arriving


RIGHT = [
    (checks.check_slow_pairs, by_the_largest_gap),
    (checks.check_slow_pairs, lambda figures: [list(pair) for pair in by_the_largest_gap(figures)]),
    (checks.check_rails, programs.all_reduce_along_rings),
    (checks.check_rails, by_level),
    (checks.check_placement, in_other_sequences),
    (checks.check_level, level),
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


SHOWN = {(test.first, test.second, test.gpus): level for test, level in logs.levels(shown=True)}


def one_ring(tensor, cards):
    programs.all_reduce_along_rings(tensor, cards=1)


def no_share_comes_back(tensor, cards):
    by_level(tensor, cards, back=False)


def nothing_goes_across(tensor, cards):
    by_level(tensor, cards, across=False)


def in_bfloat16(tensor, cards):
    by_level(tensor, cards, wire=torch.bfloat16)


def below(share, usual):
    """Call slow what is below a share of what somebody takes for usual."""
    return lambda figures: {
        pair for pair, gbs in figures.items() if gbs < share * usual([*figures.values()])
    }


def below_figure(gbs):
    return lambda figures: {pair for pair in figures if figures[pair] < gbs}


def upper_quartile(values):
    return sorted(values)[3 * len(values) // 4]


def place_in_order(jobs, *, dead=()):
    """Hosts in the order of their numbers, whatever that costs; none of `dead` together."""
    placed, free = [], checks.ALL
    for count in jobs:
        for hosts in itertools.combinations(sorted(free), count):
            if not any({*pair} <= {*hosts} for pair in dead):
                break
        free -= {*hosts}
        placed.append((hosts, slots_of(hosts)))
    return placed


def place_the_living(jobs):
    return place_in_order(jobs, dead=checks.DEAD)


def any_sender(first, second, gpus):
    """Without a look whether the sender's own GPU of the slot takes part."""
    if is_slow(first, second, gpus):
        return "slow"
    return "across" if leaves_its_group(first, second, gpus, own_slot=False) else "rail"


def by_heart(first, second, gpus):
    test = (first, second, gpus) if first < second else (second, first, gpus[::-1])
    return SHOWN.get(test) or any_sender(*test)


def one_way(first, second, gpus):
    return level(first, second, gpus) if first < second else "across"


WRONG = [
    (checks.check_slow_pairs, below(0.8, statistics.median), "80 % of the median"),
    (checks.check_slow_pairs, below(0.8, statistics.fmean), "80 % of the mean"),
    (checks.check_slow_pairs, below(0.8, upper_quartile), "80 % of a quartile"),
    (checks.check_slow_pairs, below(0.8, statistics.mode), "80 % of the commonest figure"),
    (checks.check_slow_pairs, below(0.5, max), "half of the best"),
    (checks.check_slow_pairs, below(0.97, max), "at most 60 %"),
    (checks.check_slow_pairs, below_figure(14.0), "is the limit a fixed figure"),
    (checks.check_slow_pairs, below_figure(39.2), "is the limit a fixed figure"),
    (checks.check_slow_pairs, below_figure(4.0), "is the limit a fixed figure"),
    (checks.check_slow_pairs, lambda figures: {(1, (2,)), ("a", None)}, "two hosts are asked"),
    (checks.check_slow_pairs, lambda figures: [([1], [2])], "two hosts are asked"),
    (checks.check_slow_pairs, lambda figures: {*range(17)}, "two hosts are asked"),
    (checks.check_rails, one_ring, "leaves each server by one"),
    (checks.check_rails, lambda tensor, cards: dist.all_reduce(tensor), "dist.all_reduce"),
    (checks.check_rails, no_share_comes_back, "or the last phase"),
    (checks.check_rails, nothing_goes_across, "goes across is"),
    (checks.check_rails, in_bfloat16, "a type with fewer digits"),
    (checks.check_placement, in_order, "is in both groups and uses slot 9d"),
    (checks.check_placement, place_in_order, "DEAD"),
    (checks.check_placement, place_the_living, "fewer"),
    (checks.check_placement, lambda jobs: in_order(jobs[::-1]), "answer is the first's"),
    (checks.check_placement, lambda jobs: [{1}, {2}], "a job gets hosts, and slots"),
    (checks.check_placement, lambda jobs: in_order(jobs, 8), "which, and not how many"),
    (checks.check_placement, lambda jobs: [(8, checks.SLOTS)] * 2, "which, and not how many"),
    (checks.check_placement, lambda jobs: in_order(jobs, [[1]]), "a job gets hosts, and slots"),
    (checks.check_level, any_sender, "the sender's own GPU"),
    (checks.check_level, by_heart, "held out"),
    (checks.check_level, one_way, "its second host stands first"),
    (checks.check_level, lambda *test: "fast", "one of slow, across, rail"),
]


@pytest.mark.parametrize(("check", "wrong", "words"), WRONG)
def test_wrong_answers(check, wrong, words):
    assert words in refusal(check, wrong)
