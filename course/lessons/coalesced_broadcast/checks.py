"""Checks of lesson 3: the coalesced broadcast, two boards, a race, a bucket to choose."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from course.checks import boards, checking
from course.checks.checking import hold
from course.checks.memory import BufferCall
from course.checks.trial import Case, Ran, Trial
from course.comm.buckets import MB, plan
from course.lessons.coalesced_broadcast import evidence

# Exercise 3.1

CAPS = (0, 24, 96, 120, 1_000_000)
"""Bytes; 96 and 120 are reached exactly."""
ORDERS = (
    "ranks make different calls: the buckets may depend on shapes, dtypes and cap, never on values "
    "or on the rank"
)


def _mixed(rank: int) -> list[torch.Tensor]:
    """Odd shapes, dtypes in turn, integers that float32 cannot hold, one transposed on some."""

    def some(seed: int, *shape: int) -> torch.Tensor:
        data = checking.rank_data(math.prod(shape), rank=rank, seed=seed)
        return (data + 1 / (3 + rank)).view(shape)  # half precision cannot hold it

    turned = some(3, 4, 6).t()
    return [
        some(1, 3, 5),
        torch.tensor(2**40 + 7 * rank + 1),
        some(2, 7),
        turned.contiguous() if rank == 1 else turned,
        torch.tensor([rank, -rank, 2**53 + 1 + rank]),
        some(4, 1, 2, 3),
        torch.tensor([bool(rank), True, False]),
        some(5, 900),
        some(6, 20)[:8],  # of a larger storage
        torch.tensor([rank + 1e-40, math.inf, 2.0**-149]),
        some(8, 1),
    ]


LISTS: dict[str, Callable[[int], list[torch.Tensor]]] = {
    "buckets that are just full": lambda rank: [torch.full((8,), rank + 1 / 3) for _ in range(9)],
    "mixed tensors": _mixed,
    "small after large": lambda rank: [torch.full((n,), rank + 0.5) for n in (15, 18, 3, 24, 4)],
    "a source of zeros": lambda rank: [torch.full((n,), float(rank)) for n in (4, 12, 5)],
    "no tensors": lambda rank: [],
}
"""What exercise 3.1 sends: the name of a list -> its tensors on a rank; the source is number 0."""


def check_coalesce(coalesce: Callable[[list[torch.Tensor], int, int], None]) -> None:
    """Judge exercise 3.1: five lists, five caps, from rank 0 of 2 and from rank 2 of 3.

    Every bit of every tensor, in place; one broadcast for each bucket of the plan, and nothing
    else; each is waited for before its buffer is used.
    """
    with checking.exercise("3.1", coalesce, par="the broadcasts of the plan, and no other call"):
        tried = [*itertools.product(((2, 0), (3, 2)), LISTS, CAPS)]
        cases = [
            Case(n, make=partial(_of_list, name=name, cap=cap, src=src))
            for (n, src), name, cap in tried
        ]
        runs = Trial(coalesce, checks=False, hang=ORDERS).runs(cases)
        for ((n, src), name, cap), (case, ranks) in zip(tried, runs, strict=True):
            for rank, ran in enumerate(ranks):
                what = f"rank {rank} of {n}, src {src}, {name}, cap {cap}"
                tensors = [case.make(case, r)[0] for r in (src, rank)]
                _judge_coalesced(ran, what, *tensors, cap, src)


def _of_list(case: Case, rank: int, *, name: str, cap: int, src: int) -> tuple:
    return LISTS[name]((rank - src) % case.world_size), cap, src


def _sizes(buckets: Sequence) -> Counter:
    """Count what buckets or calls carry, by dtype and bytes."""
    return Counter((str(bucket.dtype), bucket.nbytes) for bucket in buckets)


def _judge_coalesced(
    ran: Ran, what: str, wanted: list[torch.Tensor], own: list[torch.Tensor], cap: int, src: int
) -> None:
    kinds = {(call.kind, call.peer) for call in ran.calls}
    hold(
        kinds <= {("broadcast", src)},
        f"{what}: broadcasts from rank {src} only",
        kinds,
        "shapes and dtypes are the same on every rank already: nothing else has to be sent",
    )
    _hold_waited(ran.calls, what)
    for place, (tensor, right) in enumerate(zip(ran.given[0], wanted, strict=True)):
        checking.same_values(
            tensor,
            right,
            what=f"{what}, tensor {place} of shape {tuple(right.shape)}",
            meaning="the pieces of the buffer are not where the tensors expect them, or passed "
            "through another dtype: copy, in the order of the elements",
            mistakes={
                "the tensor has its own values still: copy the buffer back into it": own[place]
            },
        )
    hold(
        ran.stays,
        f"{what}: the tensors stay where they are",
        "a tensor has new memory",
        "others may hold views of a tensor: copy_ into it, do not replace its data",
    )
    runs = itertools.groupby(wanted, key=lambda tensor: tensor.dtype)
    usual = {
        "the cap is in bytes, not in elements": plan(wanted, cap=4 * cap),
        "a bucket may be exactly full": plan(wanted, cap=cap - 1),
        "another dtype in between closes your bucket: keep one open for each dtype": [
            bucket for _, run in runs for bucket in plan(list(run), cap=cap)
        ],
        "each tensor has a call to itself: put in tensors until the next would not fit": wanted,
    }
    exact, sizes = _sizes(plan(wanted, cap=cap)), _sizes(ran.calls)
    hold(
        sizes == exact,
        f"{what}: broadcasts of {dict(exact)}",
        dict(sizes),
        next(
            (meaning for meaning, buckets in usual.items() if sizes == _sizes(buckets)),
            "a bucket holds consecutive tensors of its dtype, as many as fit; what does not fit "
            "closes it for good, and what is open when the loop is over is sent, too",
        ),
    )


def _hold_waited(calls: Sequence[BufferCall], what: str) -> None:
    flying = [call for call in calls if call.waited is None or call.touched]
    hold(
        not flying,
        f"{what}: each broadcast is waited for before its buffer is used",
        f"{len(flying)} of {len(calls)} are not",
        "with async_op=True a broadcast only begins: until the wait the buffer belongs to it; what "
        "flies when the loop is over has to be waited for, too",
    )


WHO = boards.WhoWasIt("3.2", evidence.INVESTIGATION, {"first": "b", "second": "d"})


# Exercise 3.3

CAP = 16_000
"""Bytes; two tensors of 2,000 floats."""


def _equal(count: int) -> Callable[[int], list[torch.Tensor]]:
    return lambda rank: [torch.full((2000,), 10.0 * rank + place) for place in range(count)]


def _odd(rank: int) -> list[torch.Tensor]:
    """Buckets of several sizes, the last of one small tensor, and one tensor is transposed."""
    shapes = [(40, 50), (7, 11), (1900,), (60, 30), (30, 60), (3999,), (4000,), (2, 3, 5), (1,)]
    tensors = [torch.full(shape, 10.0 * rank + place) for place, shape in enumerate(shapes)]
    return [tensor.t() if tensor.shape == (60, 30) else tensor for tensor in tensors]


KEPT = {
    "six buckets": _equal(12), "five buckets": _equal(10), "one bucket": _equal(1),
    "odd shapes": _odd, "nothing": _equal(0),
}  # fmt: skip
"""What the two buffers of exercise 3.3 have to carry."""


def check_repaired(broadcast: Callable[[list[torch.Tensor], int], None]) -> None:
    """Judge exercise 3.3: five lists on 2 ranks and two of them on 3, of which some are late.

    The colleague's buckets, each on its way while the one before is; no buffer is used before its
    wait; the values of rank 0 everywhere; and two buffers in all.
    """
    with checking.exercise("3.3", broadcast, par="rank 0's values, and no more than two buffers"):
        tried = [*((2, name) for name in KEPT), (3, "six buckets"), (3, "five buckets")]
        cases = [Case(n, make=partial(_given, name=name), late=0.1) for n, name in tried]
        runs = Trial(broadcast, checks=False).runs(cases)
        for (n, name), (_, ranks) in zip(tried, runs, strict=True):
            for rank, ran in enumerate(ranks):
                _judge_repaired(ran, KEPT[name], f"rank {rank} of {n}, {name}")


def _given(case: Case, rank: int, *, name: str) -> tuple:
    return KEPT[name](rank), CAP


def _judge_repaired(ran: Ran, make: Callable[[int], list[torch.Tensor]], what: str) -> None:
    wanted, own = make(0), make(1)
    planned = [bucket.nbytes for bucket in plan(wanted, cap=CAP)]
    calls = [(call.kind, call.peer, call.nbytes) for call in ran.calls]
    hold(
        calls == [("broadcast", 0, nbytes) for nbytes in planned],
        f"{what}: broadcasts from rank 0 of {planned} bytes",
        calls or "no call",
        "keep the colleague's buckets, the cap that is given, and one broadcast from rank 0 for "
        "each: it is the wait that comes too late",
    )
    for place, (tensor, right) in enumerate(zip(ran.given[0], wanted, strict=True)):
        checking.same_values(
            tensor,
            right,
            what=f"{what}, tensor {place}",
            meaning="another bucket's values: its buffer was packed again, or received into, while "
            "this one was still on its way",
            mistakes={
                "the tensor has its old values: what has arrived lies in the buffer and was never "
                "unpacked, or unpacked before the wait": own[place]
            },
        )
    _hold_waited(ran.calls, what)
    most = len(planned) - 1
    hold(
        ran.overlaps >= most,
        f"{what}: each bucket goes out while the one before is on its way",
        f"{ran.overlaps} of {most} did",
        "with a wait after each start, or for whole pairs, the race is gone, and overlap with it: "
        "wait for a broadcast only when its buffer is needed again",
    )
    if make is not _odd:  # what is transposed is copied before it is packed
        checking.at_most(
            ran.made / CAP,
            2.5,
            what=f"{what}: buffers, made in all",
            unit="buckets",
            meaning="two buffers, kept and used in turn, are enough: later buckets need no new one",
        )


# Exercise 3.4

PAGE, NEW = 4096, 32 * 2**20
"""Bytes of a page; of a buffer above which it is new memory every time."""
ALIVE = 3
"""Buckets that the lesson's loop has at one time."""


@dataclass(frozen=True, slots=True)
class Network:
    """What exercise 3.4 is asked: sizes of tensors, and what a machine charges."""

    nbytes: tuple[int, ...]
    budget: int
    alpha: float = 1e-4
    fault: float = 1e-6
    caps: tuple[int | None, ...] = (1 * MB, 4 * MB, 10 * MB, 25 * MB, 40 * MB, 100 * MB, None)

    def plan(self, cap: int | None) -> list[int]:
        """Return the buckets' bytes."""
        sized = [torch.empty(nbytes, dtype=torch.uint8, device="meta") for nbytes in self.nbytes]
        return [bucket.nbytes for bucket in plan(sized, cap=cap)]

    def seconds(self, cap: int | None, *, faults: bool = True) -> float:
        """Return what the calls and the new pages of a broadcast cost."""
        planned = self.plan(cap)
        pages = sum(math.ceil(nbytes / PAGE) for nbytes in planned if nbytes > NEW)
        return len(planned) * self.alpha + pages * self.fault * faults

    def memory(self, cap: int | None, *, alive: int = ALIVE) -> int:
        """Return the most bytes of buckets at a time."""
        planned = self.plan(cap)
        return max(sum(planned[start : start + alive]) for start in range(len(planned)))

    def best(self, *, alive: int = ALIVE, faults: bool = True) -> int | None:
        """Return the cap that costs least among those that fit; -1 where none does."""
        fit = [cap for cap in self.caps if self.memory(cap, alive=alive) <= self.budget]
        return min(fit, key=partial(self.seconds, faults=faults), default=-1)


EVEN = (2 * MB,) * 50
WIDE = (300_000, 38 * MB, 2 * MB, 2 * MB, 17 * MB, 64, *[MB] * 40)
NETWORKS = {
    "50 tensors of 2 MB, plenty of memory": Network(EVEN, 400 * MB),
    "the same, 60 MB to spend": Network(EVEN, 60 * MB),
    "the same, and just what three buckets take": Network(EVEN, 72 * MB),
    "one tensor is larger than most caps": Network(WIDE, 60 * MB),
    "8 tensors, any three buckets": Network(
        tuple(size * MB for size in (2, 30, 5, 2, 20, 5, 10, 20)), 60 * MB
    ),
    "a bucket of just 32 MiB, which is not more": Network(
        (2 * 2**20,) * 32, 400 * MB, alpha=1e-5, caps=(2**24, NEW, 2**26)
    ),
    "pages of which the last is not full": Network(
        (35_002_368, 35_000_320, 1229), 400 * MB, alpha=5e-7, caps=(35_001_000, 36 * MB)
    ),
}


def check_cap(best_cap: Callable[..., int | None]) -> None:
    """Judge exercise 3.4: seven networks; of two caps that cost the same either is right."""
    with checking.exercise("3.4", best_cap, par="the cheapest cap that fits") as verdict:
        for name, net in NETWORKS.items():
            asked = list(net.nbytes), list(net.caps), net.budget, net.alpha, net.fault
            cap = checking.ask(best_cap, *asked, case=name)
            is_cap = cap in net.caps
            hold(is_cap, f"{name}: one of {net.caps}", repr(cap)[:100], "None means: all in one")
            usual = {
                net.best(alive=1): "one bucket fits, and the loop has three at a time",
                net.best(alive=2): "two buckets fit, and the loop has a third: act 2",
                net.best(faults=False): "buffers above 32 MiB pay for their pages every time",
            }
            costs, least = net.seconds(cap), net.seconds(net.best())
            fits = net.memory(cap) <= net.budget
            hold(
                fits,
                f"{name}: at most {net.budget} bytes at a time",
                f"{net.memory(cap)} bytes with cap {cap}",
                usual.get(cap) or "count any three buckets that follow each other in the plan",
            )
            hold(
                math.isclose(costs, least, rel_tol=1e-9),
                f"{name}: another cap",
                f"{cap}, which costs {costs:.6g} s instead of {least:.6g} s",
                usual.get(cap)
                or "calls x alpha + new pages x fault, of the plan's buckets, which are seldom as "
                "large as the cap; a page that is begun counts as a whole one",
            )
        verdict.reached = f"it for {len(NETWORKS)} networks"
