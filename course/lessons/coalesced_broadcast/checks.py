"""Checks of lesson 3: the coalesced broadcast, a vote on order, a race, figures to read."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from course import checking
from course.checking import CheckFailed
from course.comm.buckets import plan
from course.memory import BufferLog
from course.trial import Case, Ran, Trial

CAPS = (0, 24, 96, 120, 4000, 1_000_000)
SECONDS = 30.0
"""What the ranks get for all lists and caps; a right answer needs two, on a crowded machine ten."""


def check_coalesce(coalesce: Callable[[Sequence[torch.Tensor], int, int], None]) -> None:
    """Judge exercise 3.1 on real ranks: every bit of every tensor, and every broadcast."""
    with checking.exercise("3.1", par="the broadcasts of the plan, and no other call") as verdict:
        for world_size, src in ((2, 0), (3, 2)):
            ranks = checking.on_ranks(
                _coalesce_all, coalesce, src, world_size=world_size, timeout=SECONDS, checks=False,
                hang="ranks wait in different calls: the buckets may depend on shapes, dtypes and "
                "cap, never on values or on the rank",
            )  # fmt: skip
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

    nan = torch.tensor([0x7FC00000 + 7 * rank + 1], dtype=torch.int32).view(torch.float32)
    return [
        some(1, 3, 5),
        torch.tensor(2**40 + 7 * rank + 1),  # float32 cannot hold it
        some(2, 7),
        some(3, 4, 6).t() if rank != 1 else some(3, 4, 6).t().contiguous(),
        torch.tensor([rank, -rank, 2**53 + rank]),
        some(4, 1, 2, 3),
        nan,
        some(5, 900),
        some(6, 20)[:8],  # of a larger storage
        some(7, 8),
        some(8, 1),
    ]


_DTYPES = (
    torch.float32, torch.int8, torch.bfloat16, torch.float64,
    torch.uint8, torch.int64, torch.float16, torch.int32,
)  # fmt: skip
_SETS: dict[str, Callable[[int], list[torch.Tensor]]] = {
    "buckets that are just full": lambda rank: [torch.full((8,), rank + 1 / 3) for _ in range(9)],
    "small after large": lambda rank: [torch.full((n,), rank + 1 / 3) for n in (15, 18, 3, 24, 4)],
    "mixed tensors": _mixed,
    "a source of zeros": lambda rank: [torch.full((n,), float(rank % 2)) for n in (4, 12, 5, 16)],
    "a tensor of each dtype": lambda rank: [
        torch.full((n,), rank + 1, dtype=dtype) for n, dtype in enumerate(_DTYPES, start=2)
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
            f"{what}: broadcasts only", f"also {sorted(other)}",
            "nothing else has to be sent: shapes and dtypes are the same on every rank already",
        )  # fmt: skip
    for place, (got, right) in enumerate(zip(tensors, wanted, strict=True)):
        if got.shape != right.shape or _bits(got) != _bits(right):
            raise CheckFailed(
                f"{what}, tensor {place} of shape {tuple(right.shape)}: {_few(right)}",
                _few(got), _why_wrong(got, right, make, place, calls, src),
            )  # fmt: skip
    if moved:
        raise CheckFailed(
            f"{what}: the tensors stay where they are", "a tensor has new memory",
            "others may hold views of a tensor: copy_ into it, do not replace its data",
        )  # fmt: skip
    if any(call.waited is None for call in calls):
        raise CheckFailed(
            f"{what}: every broadcast is waited for", "one is not",
            "that the values are right is luck: wait for each work before you unpack. (Functional "
            "collectives and _broadcast_coalesced wait where nobody sees it: use broadcast)",
        )  # fmt: skip
    if touched := next((call.touched for call in calls if call.touched), None):
        raise CheckFailed(f"{what}: no buffer is used while it is on its way", touched, _TOO_EARLY)
    made = Counter((str(call.dtype), call.nbytes) for call in calls)
    if made == exact:
        _judge_order([str(call.dtype) for call in calls], wanted, cap, what)
        return

    def with_cap(other: int) -> bool:
        return made == Counter((str(b.dtype), b.nbytes) for b in plan(wanted, cap=other))

    meaning = (
        "a bucket has one dtype, that of its tensors: no bytes of a pickled object or of a view"
        if {dtype for dtype, _ in made} - {dtype for dtype, _ in exact}
        else "a bucket is never sent: what is still open when the loop is over has to go, too"
        if any(_nbytes(made, dtype) < _nbytes(exact, dtype) for dtype, _ in exact)
        else "another dtype in between closes your bucket: keep one open for each dtype"
        if made == _closed_by_another_dtype(wanted, cap)
        else "the cap is in bytes, not in elements"
        if cap and with_cap(4 * cap)
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
    return "the pieces of the buffer are not where the tensors expect them"


def _listed(broadcasts: Counter) -> str:
    listed = [
        f"{count} x {nbytes} bytes of {dtype.removeprefix('torch.')}"
        for (dtype, nbytes), count in sorted(broadcasts.items())
    ]
    return f"{sum(broadcasts.values())} broadcasts: {', '.join(listed)}"


def _few(tensor: torch.Tensor) -> str:
    return f"{tensor.flatten()[:4].tolist()}"


def check_order(vote: Callable[[], str]) -> None:
    """Judge exercise 3.2: what becomes of two broadcasts in another order on one rank."""
    wrong = {
        "a": "a hang needs a rank that waits for a message that nobody sends; both are sent",
        "b": "gloo sees bytes, and both tensors have as many; torch's checks compare shapes",
        "d": "the first call of one rank meets the first call of the others, whatever it holds",
    }
    with checking.exercise("3.2", par="what happens") as done:
        checking.letter(vote, right="c", wrong=wrong)
        done.reached = "it; compare your reason with ours below"


def check_repaired(broadcast: Callable[[list[torch.Tensor], int], None]) -> None:
    """Judge exercise 3.3: buckets with few kept buffers, where a race shows."""

    def given(case: Case, rank: int) -> tuple[list[torch.Tensor], int]:
        return [torch.full((2000,), 10.0 * rank + place) for place in range(12)], 16_000

    with checking.exercise("3.3", par="rank 0's values, and no more than two buffers"):
        for case, ranks in Trial(broadcast, checks=False).runs(
            [Case(n, make=given, late=0.1) for n in (2, 3)]
        ):
            wanted = given(case, 0)[0]
            for rank, ran in enumerate(ranks):
                what = f"rank {rank} of {case.world_size}"
                for place, (got, right) in enumerate(zip(ran.given[0], wanted, strict=True)):
                    checking.same_values(
                        got, right, what=f"{what}, tensor {place}",
                        meaning="another bucket's values: its buffer was packed again, or received "
                        "into, while this one was still on its way",
                    )  # fmt: skip
                _judge_repaired(ran, what)


def _judge_repaired(ran: Ran, what: str) -> None:
    sizes = [(call.kind, call.nbytes) for call in ran.calls]
    if sizes != [("broadcast", 16_000)] * 6:
        raise CheckFailed(
            f"{what}: 6 broadcasts of 16000 bytes", f"{dict(Counter(sizes))}",
            "keep the colleague's buckets, with the cap that is given, and one broadcast for each: "
            "it is the wait that comes too late",
        )  # fmt: skip
    checking.at_most(
        len(ran.unwaited), 0, what=f"{what}: never waited for", unit="works",
        meaning="what flies when the loop is over has to be waited for, too",
    )  # fmt: skip
    if touched := next((call.touched for call in ran.calls if call.touched), None):
        raise CheckFailed(f"{what}: no buffer is used while it is on its way", touched, _TOO_EARLY)
    if ran.overlaps < 3:
        raise CheckFailed(
            f"{what}: buckets go out while others are on their way", f"{ran.overlaps} of 5 did",
            "with a wait after each start the race is gone, and the overlap with it: wait for a "
            "broadcast only when its buffer is needed again",
        )  # fmt: skip
    checking.at_most(
        ran.made / 16_000, 2.5, what=f"{what}: buffers, made in all", unit="buckets",
        meaning="two buffers, kept and used in turn, are enough: the later buckets need no new one",
    )  # fmt: skip


REPORT = {"tensors": 161, "nbytes": 200e6, "one_by_one": 0.112, "in_one": 0.080}
"""A made-up report in the pull request's form; seconds, bytes."""


def check_figures(figures: Callable[[], tuple[float, float, float]]) -> None:
    """Judge exercise 3.4: bandwidth, the price of a call, and what 20 calls would take."""
    calls, nbytes, apart, together = REPORT.values()
    alpha = (apart - together) / (calls - 1)
    otherwise = "one call pays alpha + S beta; each further call one alpha more"
    bandwidth = {"that is the bandwidth with all the calls in it": nbytes / apart / 1e9}
    price = {
        "that is the time of a call with its bytes": 1e6 * apart / calls,
        "161 calls instead of one: 160 more": 1e6 * (apart - together) / calls,
    }
    twenty = {
        "the bytes do not shrink with the calls": 1e3 * 20 * alpha,
        "the one call's price is in its time already: 19 more": 1e3 * (together + 20 * alpha),
    }
    asked = (
        ("the bandwidth of one call, in GB/s", nbytes / together / 1e9, bandwidth, otherwise),
        ("the price of a call, in µs", 1e6 * alpha, price, otherwise),
        ("20 calls, in ms", 1e3 * (together + 19 * alpha), twenty, otherwise),
    )
    with checking.exercise("3.4", par="three figures within 0.1 %"):
        checking.figures(checking.ask(figures), asked, within=1e-3)
