"""Checks of lesson 3: the coalesced broadcast, the best cap, the same state everywhere."""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from labkit.comm import shapes
from labkit.comm.buckets import plan
from labkit.course import checking
from labkit.course.checking import CheckFailed
from labkit.lessons.coalesced_broadcast.model import Coalescing
from labkit.measure import wire

Coalesce = Callable[[Sequence[torch.Tensor], int, int], None]
CAPS = (0, 64, 4000, 1_000_000)


def check_coalesce(coalesce: Coalesce) -> None:
    """Judge exercise 3.1 on real ranks: every tensor's values, and the number of calls.

    Raises:
        CheckFailed: a tensor differs from the source's, or there are too many broadcasts.
    """
    par = "one broadcast per bucket, no more"
    with checking.exercise("3.1", par=par) as verdict:
        for world_size, src in ((2, 0), (3, 2)):
            ranks = checking.on_ranks(_run_all, coalesce, src, world_size=world_size, timeout=40.0)
            for rank, results in enumerate(ranks):
                for cap, result in zip(CAPS, results, strict=True):
                    _judge(result, f"rank {rank} of {world_size}, src {src}, cap {cap}", cap, src)
        verdict.reached = "that, for four caps"


def tensors_of(rank: int) -> list[torch.Tensor]:
    """Make the tensors to send: odd shapes, two dtypes, large integers, one not contiguous."""

    def some(seed: int, *shape: int) -> torch.Tensor:
        length = 1
        for side in shape:
            length *= side
        return checking.rank_data(length, rank=rank, seed=seed).view(shape)

    return [
        some(1, 3, 5),
        torch.tensor(2**40 + 7 * rank + 1),  # float32 cannot hold it
        some(2, 7),
        some(3, 4, 6).t(),
        torch.tensor([rank, -rank, 2**53 + rank]),
        some(4, 1, 2, 3),
        some(5, 900),
        some(6, 1),
    ]


def _run_all(coalesce: Coalesce, src: int) -> list:
    return [_run(coalesce, cap, src) for cap in CAPS]


def _run(coalesce: Coalesce, cap: int, src: int):
    tensors, calls = tensors_of(dist.get_rank()), 0
    handles = [tensor.data_ptr() for tensor in tensors]
    plain = dist.broadcast

    def counted(*args, **kwargs):
        nonlocal calls
        calls += 1
        return plain(*args, **kwargs)

    dist.broadcast = counted
    try:
        coalesce(tensors, cap, src)
    finally:
        dist.broadcast = plain
    moved = any(t.data_ptr() != h for t, h in zip(tensors, handles, strict=True))
    return [tensor.clone() for tensor in tensors], calls, moved


def _judge(result, what: str, cap: int, src: int) -> None:
    tensors, calls, moved = result
    expected = tensors_of(src)
    for place, (got, wanted) in enumerate(zip(tensors, expected, strict=True)):
        if got.shape == wanted.shape and torch.equal(got, wanted):
            continue
        if not wanted.is_floating_point() and torch.equal(got, wanted.float().to(wanted.dtype)):
            meaning = (
                "these are integers that went through float32 and lost their last bits: a "
                "bucket has one dtype"
            )
        elif not wanted.is_contiguous():
            meaning = (
                "this tensor is transposed: its memory is in another order than its elements. "
                "reshape(-1) copies it in the right order, and copy_ brings it back"
            )
        elif src != 0 and torch.equal(got, tensors_of(0)[place]):
            meaning = f"it has rank 0's values: the source is rank {src}"
        elif any(torch.equal(got, t) for t in (tensors_of(r)[place] for r in range(4))):
            meaning = "the tensor still has its old values: copy the buffer back into it"
        else:
            meaning = "the pieces of the buffer are not where the tensors expect them"
        raise CheckFailed(
            f"{what}, tensor {place} of shape {tuple(wanted.shape)}: {_few(wanted)}",
            _few(got),
            meaning,
        )
    if moved:
        raise CheckFailed(
            f"{what}: the tensors stay where they are",
            "a tensor has new memory",
            "others may hold views of a tensor: copy_ into it, do not replace its data",
        )
    most = len(plan(expected, cap=cap))
    checking.at_most(
        calls, most, what=f"{what}: calls of broadcast", unit="calls",
        meaning="a bucket is sent with one call: put in tensors until the next would not fit",
    )  # fmt: skip
    if calls == 0:
        raise CheckFailed(
            f"{what}: {most} calls of dist.broadcast",
            "none",
            "call it as dist.broadcast(...), so that it can be counted",
        )


def _few(tensor: torch.Tensor) -> str:
    return f"{tensor.flatten()[:4].tolist()}"


BestCap = Callable[[Sequence[int], Sequence[int], float, float, float], int]
CHOICES = (0, 100_000, 1_000_000, 10_000_000, 25_000_000, 250_000_000)
MACHINES = {
    "a slow wire with little latency": (20e-6, 8e-9, 0.1e-9),
    "a fast wire with much latency": (2e-3, 0.1e-9, 0.2e-9),
    "copies as slow as the wire": (50e-6, 0.5e-9, 0.5e-9),
    "no latency at all": (0.0, 1e-9, 0.3e-9),
    "copies for nothing": (100e-6, 1e-9, 0.0),
}


def check_best_cap(best_cap: BestCap) -> None:
    """Judge exercise 3.2 on five machines whose best caps differ.

    Raises:
        CheckFailed: the chosen cap is more than 2 % slower than the best one.
    """
    nbytes = [spec.nbytes for spec in shapes.parameters_only(shapes.resnet50())]
    with checking.exercise("3.2", par="within 2 % of the best cap, on five machines") as verdict:
        for what, (alpha, beta, copy) in MACHINES.items():
            times = {cap: seconds(nbytes, cap, alpha, beta, copy) for cap in CHOICES}
            got = best_cap(list(nbytes), list(CHOICES), alpha, beta, copy)
            if got not in times:
                raise CheckFailed(
                    f"{what}: one of the caps {list(CHOICES)}",
                    repr(got),
                    "return a cap, not a time",
                )
            best = min(times, key=times.get)
            if times[got] > 1.02 * times[best]:
                raise CheckFailed(
                    f"{what}: cap {best} ({1e3 * times[best]:.1f} ms)",
                    f"cap {got} ({1e3 * times[got]:.1f} ms)",
                    _why(got, nbytes, alpha, beta, copy),
                )
        verdict.reached = "that"


def seconds(nbytes: Sequence[int], cap: int, alpha: float, beta: float, copy: float) -> float:
    """Return the modelled time of sending tensors of these sizes with one cap."""
    return Coalescing(alpha, beta, copy).seconds(_buckets(nbytes, cap))


def _buckets(nbytes: Sequence[int], cap: int) -> list[list[int]]:
    specs = [shapes.TensorSpec("", (size,), "int8") for size in nbytes]
    return [[nbytes[i] for i in bucket.members] for bucket in plan(specs, cap=cap)]


def _why(got: int, nbytes, alpha: float, beta: float, copy: float) -> str:
    no_copies = {cap: len(_buckets(nbytes, cap)) * alpha for cap in CHOICES}
    total = sum(nbytes)
    in_turn = {
        cap: len(_buckets(nbytes, cap)) * alpha
        + total * beta
        + 2 * copy * sum(sum(b) for b in _buckets(nbytes, cap) if len(b) > 1)
        for cap in CHOICES
    }
    return checking.diagnose(got, {
        "the three phases do not simply add up: while one bucket travels the next is packed, and "
        "the one before it unpacked": min(in_turn, key=in_turn.get),
        "one by one avoids the copies, but pays alpha for every tensor": 0,
    }, otherwise="fewest calls is not all: with few buckets, packing and unpacking are not hidden"
        if no_copies[got] == min(no_copies.values()) else
        "try every cap: plan, then let each bucket pass pack, wire and unpack in turn")  # fmt: skip


Same = Callable[[Sequence[torch.Tensor]], bool]
BYTES = 20_000
"""More than a fingerprint from everybody to everybody costs, less than the state."""


def check_same_everywhere(same: Same) -> None:
    """Judge exercise 3.3 on real ranks: equal states, and seven ways in which they are not.

    Raises:
        CheckFailed: a wrong answer, answers that differ between ranks, or too many bytes.
    """
    par = "right in 9 cases, below 20 kB per rank for a state of 400 kB"
    with checking.exercise("3.3", par=par) as verdict:
        ranks = checking.on_ranks(_compare_all, same, world_size=3, timeout=40.0)
        for case, (_, expected, meaning) in STATES.items():
            for rank, (answers, _) in enumerate(ranks):
                _judge_verdict(answers[case], expected, f"{case}, rank {rank} of 3", meaning)
        sent = _sent([report for _, report in ranks])
        checking.at_most(
            sent / 1e3, BYTES / 1e3, what="sent per rank for a state of 400 kB", unit="kB",
            meaning="whole tensors are sent: send something short that depends on every bit",
        )  # fmt: skip
        verdict.reached = f"{sent / 1e3:.1f} kB per rank"


def _state() -> list[torch.Tensor]:
    return [
        checking.rank_data(50_000, rank=0, seed=1),
        checking.rank_data(50_000, rank=0, seed=2),
        torch.tensor([1.0, float("nan"), 0.0, -1.5]),
        torch.tensor(2**53 + 1),
    ]


def _swap(state: list[torch.Tensor]) -> None:
    state[0], state[1] = state[1], state[0]


def _last_bit(state: list[torch.Tensor]) -> None:
    state[1][49_999] = torch.nextafter(state[1][49_999], torch.tensor(1000.0))


def _sign_of_zero(state: list[torch.Tensor]) -> None:
    state[2][2] = -0.0


def _large_integer(state: list[torch.Tensor]) -> None:
    state[3] -= 1


def _compensated(state: list[torch.Tensor]) -> None:
    state[0][3] += 5
    state[0][4] -= 5


def _reshaped(state: list[torch.Tensor]) -> None:
    state[0] = state[0].view(250, 200).t().contiguous().view(-1)


STATES = {
    "the same everywhere": (None, True, "NaN is not equal to itself: compare bits, not values"),
    "the same, seen transposed on the last rank": (
        "transposed",
        True,
        "a state is equal when its elements are: take the bytes of a contiguous copy",
    ),
    "two tensors swapped on the last rank": (
        _swap, False, "the order must count: sums and XORs do not see it",
    ),
    "elements of one tensor permuted": (
        _reshaped, False, "the place of each element must count, too",
    ),
    "one last bit differs": (_last_bit, False, "every bit must count: no tolerance, no rounding"),
    "-0.0 instead of 0.0": (_sign_of_zero, False, "-0.0 == 0.0, but their bits differ"),
    "an integer beyond float32": (_large_integer, False, "large integers must stay integers"),
    "two changes that cancel": (_compensated, False, "a sum does not see changes that cancel"),
    "only rank 0 differs": (
        "rank 0", False, "compare with every rank, and tell every rank the result",
    ),
}  # fmt: skip


def _compare_all(same: Same):
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    answers = {}
    for case, (change, _, _) in STATES.items():
        state = _state()
        matrix = state[0].view(250, 200)
        if change == "transposed":
            state[0] = matrix.t().contiguous().t() if rank == last else matrix
        elif change == "rank 0":
            state[0][0] += 1 if rank == 0 else 0
        elif change is not None and rank == last:
            change(state)
        answers[case] = same(state)
    with wire.meter() as meter:
        same(_state())
    return answers, meter.report


def _sent(reports) -> float:
    """Return the bytes that the busiest rank sent."""
    try:
        return float(wire.matrix(reports).sum(axis=1).max())
    except wire.WireUnavailable:
        return float(wire.counted(reports).sum(axis=1).max())


def _judge_verdict(answer, expected: bool, what: str, meaning: str) -> None:
    if checking.answer(answer, bool, what=f"{what}: {expected}") is not expected:
        raise CheckFailed(f"{what}: {expected}", str(answer), meaning)
