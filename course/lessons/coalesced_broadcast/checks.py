"""Checks of lesson 3: the coalesced broadcast, two boards, a race, a bucket to choose."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.distributed as dist

from course.checks import boards, checking
from course.checks.checking import CheckFailed
from course.checks.memory import BufferLog
from course.checks.trial import Case, Ran, Trial
from course.comm.buckets import MB, plan
from course.lessons.coalesced_broadcast import evidence

CAPS = (0, 24, 96, 120, 4000, 1_000_000)
SECONDS = 30.0
"""What the ranks get for all lists and caps; a right answer needs two, on a crowded machine ten."""


def check_coalesce(coalesce: Callable[[Sequence[torch.Tensor], int, int], None]) -> None:
    """Judge exercise 3.1 on real ranks: every bit of every tensor, and every broadcast."""
    with checking.exercise(
        "3.1", coalesce, par="the broadcasts of the plan, and no other call"
    ) as verdict:
        for world_size, src in ((2, 0), (3, 2)):
            ranks = checking.on_ranks(
                _coalesce_all,
                coalesce,
                src,
                world_size=world_size,
                timeout=SECONDS,
                checks=False,
                hang="ranks wait in different calls: the buckets may depend on shapes, dtypes and "
                "cap, never on values or on the rank",
            )
            for rank, results in enumerate(ranks):
                for (which, cap), result in results.items():
                    what = f"rank {rank} of {world_size}, src {src}, {which}, cap {cap}"
                    _judge_coalesced(result, what, _SETS[which], cap, src)
        verdict.reached = f"that, for {len(_SETS)} lists of tensors and {len(CAPS)} caps"


def _mixed(rank: int) -> list[torch.Tensor]:
    """Odd shapes, two dtypes, large integers, equal sizes twice, a NaN, one transposed on some."""

    def some(seed: int, *shape: int) -> torch.Tensor:
        data = checking.rank_data(math.prod(shape), rank=rank, seed=seed)
        return (data + 1 / (3 + rank)).view(shape)  # half precision cannot hold it

    delicate = torch.tensor([-0.0, 1e-40, -1e-40, math.inf])  # some arithmetic changes them
    nan = torch.tensor([0x7FC00000 + 7 * rank + 1], dtype=torch.int32).view(torch.float32)
    return [
        some(1, 3, 5),
        torch.tensor(2**40 + 7 * rank + 1),  # float32 cannot hold it
        some(2, 7),
        some(3, 4, 6).t() if rank != 1 else some(3, 4, 6).t().contiguous(),
        torch.tensor([rank, -rank, 2**53 + 1 + rank]),  # float64 cannot, either
        some(4, 1, 2, 3),
        nan,
        some(5, 900),
        some(6, 20)[:8],  # of a larger storage
        some(7, 8),
        some(8, 1),
        some(9, 2, 3, 4).permute(2, 0, 1),
        delicate if rank == 0 else -delicate,
    ]


_DTYPES = (
    torch.float32,
    torch.int8,
    torch.bfloat16,
    torch.float64,
    torch.uint8,
    torch.int64,
    torch.float16,
    torch.int32,
    torch.bool,
)
_SETS: dict[str, Callable[[int], list[torch.Tensor]]] = {
    "buckets that are just full": lambda rank: [torch.full((8,), rank + 1 / 3) for _ in range(9)],
    "small after large": lambda rank: [torch.full((n,), rank + 1 / 3) for n in (15, 18, 3, 24, 4)],
    "mixed tensors": _mixed,
    "a source of zeros": lambda rank: [torch.full((n,), float(rank % 2)) for n in (4, 12, 5, 16)],
    "a tensor of each dtype": lambda rank: [
        torch.full((n,), rank + 1, dtype=dtype) for n, dtype in enumerate(_DTYPES, start=2)
    ],
    "several of each dtype": lambda rank: [
        torch.full((n,), (rank + 1 + place) % 2 if dtype == torch.bool else rank + 1, dtype=dtype)
        for place, n in enumerate((10, 15, 3, 20, 5))  # 25 bytes of int8 exceed 24 by one
        for dtype in _DTYPES
    ],
    "no tensors": lambda rank: [],
}


def _coalesce_all(coalesce: Callable, src: int) -> dict:
    rank, results = dist.get_rank(), {}
    for (which, make), cap in itertools.product(_SETS.items(), CAPS):
        tensors = make((rank - src) % dist.get_world_size())  # the source is number 0
        before = [tensor.data_ptr() for tensor in tensors]
        with checking.own_work(), BufferLog() as log:
            try:
                coalesce(list(tensors), cap, src)  # a list of its own, which it may empty
            except Exception as error:
                if tensors:
                    raise  # with the learner's own traceback
                raise CheckFailed(
                    "no tensors: nothing is sent, and nothing raised",
                    f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}",
                    "no first tensor, no bucket, and a loop's variable has no value after it",
                ) from error
        if tensors and not log.calls:  # the others would wait for it until the time is over
            raise CheckFailed(f"rank {rank}, {which}, cap {cap}: broadcasts", "none", _NO_CALL)
        moved = [t.data_ptr() for t in tensors] != before
        results[which, cap] = [t.clone() for t in tensors], log.calls, moved
        dist.barrier()
    return results


def _bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def _judge_coalesced(result, what: str, make: Callable, cap: int, src: int) -> None:
    tensors, calls, moved = result
    wanted = make(0)
    exact = Counter((str(b.dtype), b.nbytes) for b in plan(wanted, cap=cap))
    if other := {call.kind for call in calls} - {"broadcast"}:
        raise CheckFailed(
            f"{what}: broadcasts only",
            f"also {sorted(other)}",
            "nothing else has to be sent: shapes and dtypes are the same on every rank already",
        )
    for place, (got, right) in enumerate(zip(tensors, wanted, strict=True)):
        if got.shape != right.shape or _bits(got) != _bits(right):
            raise CheckFailed(
                f"{what}, tensor {place} of shape {tuple(right.shape)}: {_few(right)}",
                _few(got),
                _why_wrong(got, right, make, place, calls, src),
            )
    if moved:
        raise CheckFailed(
            f"{what}: the tensors stay where they are",
            "a tensor has new memory",
            "others may hold views of a tensor: copy_ into it, do not replace its data",
        )
    if any(call.waited is None for call in calls):
        raise CheckFailed(
            f"{what}: every broadcast is waited for",
            "one is not",
            "that the values are right is luck: wait for each work before you unpack. (Functional "
            "collectives and _broadcast_coalesced wait where nobody sees it: use broadcast)",
        )
    if touched := next((call.touched for call in calls if call.touched), None):
        raise CheckFailed(f"{what}: no buffer is used while it is on its way", touched, _TOO_EARLY)
    made = Counter((str(call.dtype), call.nbytes) for call in calls)
    if made == exact:
        _judge_order([str(call.dtype) for call in calls], wanted, cap, what)
        return

    def with_cap(other: int) -> bool:
        return made == Counter((str(b.dtype), b.nbytes) for b in plan(wanted, cap=other))

    meaning = (
        "a bucket has one dtype, that of its tensors: no bytes of a pickled object or of a view, "
        "and no message of sizes"
        if any(_nbytes(made, dtype) > _nbytes(exact, dtype) for dtype, _ in made)
        else "a bucket is never sent: what is still open when the loop is over has to go, too"
        if any(_nbytes(made, dtype) < _nbytes(exact, dtype) for dtype, _ in exact)
        else "another dtype in between closes your bucket: keep one open for each dtype"
        if made == _closed_by_another_dtype(wanted, cap)
        else "the cap is in bytes, not in elements"
        if cap and with_cap(4 * cap)
        else "the buckets are filled from the last tensor on: begin with the first"
        if made == Counter((str(b.dtype), b.nbytes) for b in plan(wanted, cap=cap, reverse=True))
        else "a bucket may be exactly full"
        if cap and with_cap(cap - 1)
        else "a bucket is sent with one call: put in tensors until the next would not fit"
        if sum(made.values()) > sum(exact.values())
        else "a bucket may not exceed the cap, unless one tensor alone does"
        if any(n > cap for _, n in made.keys() - {(str(t.dtype), t.nbytes) for t in wanted})
        else "a bucket holds *consecutive* tensors of its dtype: once the next one does not fit, "
        "it is closed, and nothing joins it later"
    )
    raise CheckFailed(f"{what}: {_listed(exact)}", _listed(made), meaning)


_NO_CALL = (
    "no broadcast was made on this rank. Either a bucket is never sent: what is still open when "
    "the loop is over has to go, too. Or who sends depends on values or on the rank"
)
_TOO_EARLY = "a race: wait for the broadcast first. Until then the buffer belongs to it"


def _nbytes(broadcasts: Counter, dtype: str) -> int:
    return sum(count * nbytes for (kind, nbytes), count in broadcasts.items() if kind == dtype)


def _closed_by_another_dtype(tensors: Sequence[torch.Tensor], cap: int) -> Counter:
    runs = itertools.groupby(tensors, key=lambda tensor: tensor.dtype)
    planned = itertools.chain.from_iterable(plan(list(run), cap=cap) for _, run in runs)
    return Counter((str(bucket.dtype), bucket.nbytes) for bucket in planned)


def _judge_order(sent: list[str], tensors: Sequence[torch.Tensor], cap: int, what: str) -> None:
    """Refuse an order that nothing gives which all ranks share, where each tensor is a bucket."""
    names = [str(tensor.dtype) for tensor in tensors]
    if len(names) < 3 or len(set(names)) < len(names):
        return
    by_name = dict(zip(names, tensors, strict=True))
    keys = (
        lambda d: 0,
        str,
        lambda d: by_name[d].nbytes,
        lambda d: by_name[d].dtype.itemsize,
        lambda d: by_name[d].nbytes <= cap,  # what goes alone goes first
        lambda d: by_name[d].is_floating_point(),
    )
    orders = [sorted(base, key=key) for key in keys for base in (names, names[::-1])]
    if sent not in orders and sent[::-1] not in orders:
        raise CheckFailed(
            f"{what}: an order that every process comes to, like {', '.join(names)}",
            ", ".join(sent),
            "neither the list nor names nor sizes give this order. From a set? Strings in a set "
            "have another order in every process: dict.fromkeys keeps the list's",
        )


def _why_wrong(got, right, make: Callable, place: int, calls: Sequence, src: int) -> str:
    olds = [make(number)[place] for number in (1, 2)]
    if not right.is_floating_point() and torch.equal(got, right.float().to(right.dtype)):
        return "integers that went through float32 lose their last bits: a bucket has one dtype"
    if any(call.touched for call in calls):
        return _TOO_EARLY
    if any("16" in str(call.dtype) for call in calls) and "16" not in str(right.dtype):
        return "half precision on the wire loses bits: send the tensors as they are"
    if not right.is_contiguous():
        return (
            "this tensor is transposed: its memory is in another order than its elements. Pack "
            "and unpack in the order of the elements"
        )
    if calls and {call.peer for call in calls} != {src}:
        return f"it came from rank {calls[0].peer}: the source is rank {src}"
    if any(_bits(got) == _bits(old) for old in olds):
        return (
            "the tensor still has its old values: copy the buffer back into it, whatever the "
            "values are"
        )
    if right.is_floating_point() and torch.equal(got.nan_to_num(), right.nan_to_num()):
        return "arithmetic changed bits, of -0.0 or a nan: copy, and compute nothing"
    return "the pieces of the buffer are not where the tensors expect them"


def _listed(broadcasts: Counter) -> str:
    listed = [
        f"{count} x {nbytes} bytes of {dtype.removeprefix('torch.')}"
        for (dtype, nbytes), count in sorted(broadcasts.items())
    ]
    return f"{sum(broadcasts.values())} broadcasts: {', '.join(listed)}"


def _few(tensor: torch.Tensor) -> str:
    return f"{tensor.flatten()[:4].tolist()}"


WHO = boards.WhoWasIt("3.2", evidence.INVESTIGATION, {"first": "b", "second": "d"})


def _alike(count: int) -> Callable[[int], list[torch.Tensor]]:
    return lambda rank: [torch.full((2000,), 10.0 * rank + place) for place in range(count)]


def _odd(rank: int) -> list[torch.Tensor]:
    """Buckets of several sizes, the last of one small tensor; two are no plain piece of memory."""
    shapes = [(40, 50), (7, 11), (1900,), (60, 30), (30, 60), (3999,), (4000,), (2, 3, 5), (1,)]
    tensors = [torch.full(shape, 10.0 * rank + place) for place, shape in enumerate(shapes)]
    return [t.t() if t.shape == (60, 30) else t[:, ::2] if t.ndim == 3 else t for t in tensors]


_LISTS = {
    "six buckets": _alike(12), "five buckets": _alike(10), "one bucket": _alike(1),
    "odd shapes": _odd, "nothing": _alike(0),
}  # fmt: skip
"""What the two buffers of exercise 3.3 have to carry; the cap is 16,000 bytes."""


def check_repaired(broadcast: Callable[[list[torch.Tensor], int], None]) -> None:
    """Judge exercise 3.3: buckets with few kept buffers, where a race shows."""
    with checking.exercise("3.3", broadcast, par="rank 0's values, and no more than two buffers"):
        tried = [*((2, name) for name in _LISTS), (3, "six buckets"), (3, "five buckets")]
        cases = [Case(n, make=partial(_given, name=name), late=0.1) for n, name in tried]
        results = Trial(broadcast, checks=False, hint=_hint).runs(cases)
        for (n, name), (_, ranks) in zip(tried, results, strict=True):
            for rank, ran in enumerate(ranks):
                _judge_repaired(ran, _LISTS[name], f"rank {rank} of {n}, {name}")


def _given(case: Case, rank: int, *, name: str) -> tuple:
    return _LISTS[name](rank), 16_000


def _hint(case: Case) -> str:
    return f"the function does not cope with {case.make.keywords['name']}"


def _judge_repaired(ran: Ran, make: Callable[[int], list[torch.Tensor]], what: str) -> None:
    wanted, olds = make(0), make(1)
    planned = plan(wanted, cap=16_000)
    sizes = [(call.kind, call.nbytes) for call in ran.calls]
    if sizes != [("broadcast", bucket.nbytes) for bucket in planned]:
        raise CheckFailed(
            f"{what}: broadcasts of {[bucket.nbytes for bucket in planned]} bytes",
            f"{sizes}",
            "keep the colleague's buckets, with the cap that is given, and one broadcast for each: "
            "it is the wait that comes too late",
        )
    if other := {call.peer for call in ran.calls} - {0}:
        raise CheckFailed(
            f"{what}: broadcasts from rank 0",
            f"from rank {min(other)}",
            "the second argument of broadcast is the source, and everybody is to have rank 0's",
        )
    for place, (got, right) in enumerate(zip(ran.given[0], wanted, strict=True)):
        kept_its_own = torch.equal(got, olds[place])
        checking.same_values(
            got,
            right,
            what=f"{what}, tensor {place}",
            meaning="the tensor has its old values: what has arrived lies in the buffer and was "
            "never unpacked, or unpacked before the wait"
            if kept_its_own
            else "another bucket's "
            "values: its buffer was packed again, or received into, while this one was still on "
            "its way",
        )
    checking.at_most(
        len(ran.unwaited),
        0,
        what=f"{what}: never waited for",
        unit="works",
        meaning="what flies when the loop is over has to be waited for, too",
    )
    if touched := next((call.touched for call in ran.calls if call.touched), None):
        raise CheckFailed(f"{what}: no buffer is used while it is on its way", touched, _TOO_EARLY)
    most = len(planned) - 1
    if ran.overlaps < most:
        raise CheckFailed(
            f"{what}: each bucket goes out while the one before is on its way",
            f"{ran.overlaps} of {most} did",
            "with a wait after each start, or for whole pairs, the race is gone, and overlap with "
            "it: wait for a broadcast only when its buffer is needed again",
        )
    if make is not _odd:  # what is no plain piece of memory is copied before it is packed
        checking.at_most(
            ran.made / 16_000,
            2.5,
            what=f"{what}: buffers, made in all",
            unit="buckets",
            meaning="two buffers, kept and used in turn, are enough: the later buckets need no new "
            "one",
        )


PAGE, NEW = 4096, 32 * 2**20
"""Bytes of a page; of a buffer from which on it is new memory every time."""
LOTS = 60
"""Networks that are drawn by lot."""
ALIVE = 3
"""Buckets that the lesson's loop has at one time."""


@dataclass(frozen=True, slots=True)
class Network:
    """What exercise 3.4 is asked: sizes of tensors, and what a machine charges."""

    nbytes: tuple[int, ...]
    budget: int
    alpha: float
    fault: float
    caps: tuple[int | None, ...] = (1 * MB, 4 * MB, 10 * MB, 25 * MB, 40 * MB, 100 * MB, None)

    @property
    def asked(self) -> tuple:
        """The arguments of a learner's function."""
        return list(self.nbytes), list(self.caps), self.budget, self.alpha, self.fault

    def plan(self, cap: int | None) -> list[int]:
        """Return the buckets' bytes."""
        sized = [torch.empty(nbytes, dtype=torch.uint8, device="meta") for nbytes in self.nbytes]
        return [bucket.nbytes for bucket in plan(sized, cap=cap)]

    def seconds(self, cap: int | None, *, faults: bool = True, whole: bool = True) -> float:
        """Return what the calls and the new pages of a broadcast cost."""
        planned, pages_of = self.plan(cap), math.ceil if whole else math.floor
        pages = sum(pages_of(nbytes / PAGE) for nbytes in planned if nbytes > NEW)
        return len(planned) * self.alpha + (pages * self.fault if faults else 0.0)

    def memory(self, cap: int | None, *, alive: int = ALIVE) -> int:
        """Return the most bytes of buckets at a time."""
        planned = self.plan(cap)
        return max(sum(planned[start : start + alive]) for start in range(len(planned)))

    def best(self, *, alive: int = ALIVE, budget: bool = True, **how: bool) -> int | None:
        """Return the cap that costs least, as `seconds` has it, among those that fit; -1: none."""
        fit = [c for c in self.caps if not budget or self.memory(c, alive=alive) <= self.budget]
        return min(fit, key=lambda cap: self.seconds(cap, **how), default=-1)


def _networks() -> dict[str, Network]:
    even = tuple([2 * MB] * 50)
    wide = (300_000, 38 * MB, 2 * MB, 2 * MB, 17 * MB, 64, *[MB] * 40)
    return {
        "50 tensors of 2 MB, plenty of memory, faults cost": Network(even, 400 * MB, 1e-4, 1e-6),
        "the same, 40 MB to spend": Network(even, 40 * MB, 1e-4, 1e-6),
        "the same, 60 MB to spend": Network(even, 60 * MB, 1e-4, 1e-6),
        "faults cost nothing": Network(even, 400 * MB, 1e-4, 0.0),
        "calls cost nothing much": Network(even, 75 * MB, 1e-7, 1e-6),
        "one tensor is larger than most caps": Network(wide, 60 * MB, 1e-4, 1e-6),
        "a dear call": Network(wide, 130 * MB, 5e-2, 1e-6),
        "three tensors": Network((5 * MB, 5 * MB, 90 * MB), 100 * MB, 1e-4, 1e-6),
        "50 tensors of 2 MB, and just what three buckets take": Network(even, 72 * MB, 1e-4, 1e-6),
        "6 tensors, from first to last": Network(
            (10 * MB, 5 * MB, 2 * MB, 30 * MB, 1 * MB, 1 * MB), 60 * MB, 1e-4, 1e-6
        ),
        "8 tensors, any three buckets": Network(
            tuple(n * MB for n in (2, 30, 5, 2, 20, 5, 10, 20)), 60 * MB, 1e-4, 1e-6
        ),
        "faults cost nothing, 75 MB to spend": Network(even, 75 * MB, 1e-4, 0.0),
        "a call of 3 ms": Network(even, 400 * MB, 3e-3, 1e-6),
        "12 MB in all": Network((300_000,) * 40, 400 * MB, 1e-4, 1e-6, (1 * MB, 4 * MB, None)),
        "a bucket of just 32 MiB, which is not more": Network(
            (2 * 2**20,) * 32, 400 * MB, 1e-5, 1e-6, (2**24, NEW, 2**26)
        ),
        "4 to 8 MB, and only a larger cap fits": Network(
            tuple(n * MB for n in (4, 2, 1, 7, 8)), 17 * MB, 1e-4, 1e-6, (3 * MB, 6 * MB)
        ),
        "6 tensors of 2 MB, and a cap above them all": Network(
            (2 * MB,) * 6, 400 * MB, 1e-4, 1e-6, (4 * MB, 100 * MB)
        ),
        "a tensor above its cap is new memory, too": Network(
            (40 * MB, MB, MB), 400 * MB, 1e-3, 1e-6, (10 * MB, 50 * MB)
        ),
        "large ones first and last": Network(
            tuple(n * MB for n in (20, 1, 1, 1, 20)), 30 * MB, 1e-4, 1e-6, (MB, None)
        ),
        "a cap of 0 is a cap": Network((20 * MB,) * 3, 400 * MB, 1e-4, 1e-6, (0, 40 * MB)),
        "pages of which the last is not full": Network(
            (35_002_368, 35_000_320, 1229), 400 * MB, 5e-7, 1e-6, (35_001_000, 36 * MB)
        ),
    }


def _drawn(number: int) -> Network:
    """Draw a network by lot, always the same for a number, in which some cap fits."""
    lot = random.Random(number)
    sizes = [64, 300_000, MB, 2 * MB, 5 * MB, 10 * MB, 20 * MB, 40 * MB]
    nbytes = tuple(lot.choice(sizes) + lot.randrange(PAGE) for _ in range(lot.randint(2, 14)))
    caps = (*lot.sample([0, MB, 3 * MB, 8 * MB, 12 * MB, 25 * MB, 45 * MB, 90 * MB], 4), None)
    prices = 10 ** lot.uniform(-6, -2), 10 ** lot.uniform(-7, -5)
    network = Network(nbytes, 0, *prices, caps)
    needed = [network.memory(cap) for cap in caps]
    return replace(network, budget=lot.randint(min(needed), max(needed)))


def check_cap(best_cap: Callable[..., int | None]) -> None:
    """Judge exercise 3.4: the bucket by time and memory."""
    with checking.exercise("3.4", best_cap, par="the cheapest cap that fits") as done:
        for name, one, answer in _answers(best_cap):
            right, got = one.best(), checking.plain(answer)
            fits = got in one.caps and one.memory(got) <= one.budget
            if fits and math.isclose(one.seconds(got), one.seconds(right), rel_tol=1e-9):
                continue
            wrong = {
                one.best(budget=False): "it does not fit: three buckets in a row are there at once",
                one.best(alive=1): "one bucket fits, and the loop has three at a time",
                one.best(alive=2): "two buckets fit, and the loop has a third: act 2",
                one.best(faults=False): "buffers above 32 MiB pay for their pages every time",
                one.best(whole=False): "a page that a bucket begins counts as a whole one",
            }
            rule = "calls x alpha + new pages x fault"
            meaning = wrong.get(got) or (
                f"it fits, and another one costs less: {rule}, of the plan's buckets, which are "
                "seldom as large as the cap"
                if fits
                else "it does not fit: count any three buckets that follow each other in the plan"
                if got in one.caps
                else "return one of the caps, of which None means: all in one"
            )
            raise CheckFailed(f"{name}: another cap", repr(got)[:100], meaning)
        done.reached = f"it for {len(_networks()) + LOTS} networks"


def _answers(best_cap: Callable[..., int | None]) -> Iterator[tuple[str, Network, int | None]]:
    """Yield each network with its name and what was answered; those drawn by lot at once."""
    for name, one in _networks().items():
        yield name, one, checking.ask(best_cap, *one.asked, alone=False, case=name)
    lots = [_drawn(number) for number in range(LOTS)]
    drawn = checking.ask_each(best_cap, [one.asked for one in lots], alone=False)
    for number, (one, answer) in enumerate(zip(lots, drawn, strict=True)):
        yield f"network {number}, drawn by lot", one, answer
