"""Check of exercise 3.2: the best cap for a machine."""

from collections.abc import Callable, Sequence

from labkit.comm import shapes
from labkit.comm.buckets import plan
from labkit.course import checking
from labkit.course.checking import CheckFailed
from labkit.lessons.coalesced_broadcast.model import Coalescing

BestCap = Callable[[Sequence[int], Sequence[int], float, float, float], int]
CAPS = (0, 100_000, 1_000_000, 10_000_000, 25_000_000, 250_000_000)
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
            times = {cap: seconds(nbytes, cap, alpha, beta, copy) for cap in CAPS}
            got = best_cap(list(nbytes), list(CAPS), alpha, beta, copy)
            if got not in times:
                raise CheckFailed(
                    f"{what}: one of the caps {list(CAPS)}", repr(got), "return a cap, not a time"
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
    no_copies = {cap: len(_buckets(nbytes, cap)) * alpha for cap in CAPS}
    total = sum(nbytes)
    in_turn = {
        cap: len(_buckets(nbytes, cap)) * alpha
        + total * beta
        + 2 * copy * sum(sum(b) for b in _buckets(nbytes, cap) if len(b) > 1)
        for cap in CAPS
    }
    if got == min(in_turn, key=in_turn.get):
        return (
            "the three phases do not simply add up: while one bucket travels the next is packed, "
            "and the one before it unpacked"
        )
    if no_copies[got] == min(no_copies.values()):
        return "fewest calls is not all: with few buckets, packing and unpacking are not hidden"
    if got == 0:
        return "one by one avoids the copies, but pays alpha for every tensor"
    return "try every cap: plan, then let each bucket pass pack, wire and unpack in turn"
