"""Predict a data-parallel step: when each bucket is ready, sent, and done.

The wire carries one bucket at a time, in order. A bucket can start when its gradients are ready and
the wire is free. What ends after backward has ended is exposed: the step is longer by it.
"""

from collections.abc import Callable, Sequence

from course.comm.shapes import vgg11

Cost = Callable[[int], float]
"""Seconds that one collective takes for a buffer of that many bytes, as
``lambda nbytes: costs.ring_all_reduce(n).seconds(nbytes, alpha=alpha, beta=beta)``."""


def sending(ready: Sequence[float], nbytes: Sequence[int], cost: Cost) -> list[tuple[float, float]]:
    """Return when each bucket begins and ends on the wire, in seconds from the start of backward.

    `ready`: when each bucket is complete, in the order of sending.

    Raises:
        ValueError: The two sequences differ in length.
    """
    if len(ready) != len(nbytes):
        raise ValueError(f"{len(ready)} ready times for {len(nbytes)} buckets; one each is needed.")
    times, free = [], 0.0
    for moment, size in zip(ready, nbytes, strict=True):
        begin = max(moment, free)
        free = begin + cost(size)
        times.append((begin, free))
    return times


def exposed(ready: Sequence[float], nbytes: Sequence[int], cost: Cost, *, backward: float) -> float:
    """Return the seconds of communication after a backward of so many seconds has ended."""
    ends = [end for _, end in sending(ready, nbytes, cost)]
    return max(0.0, max(ends, default=0.0) - backward)


def ready_times(
    parameter_bytes: Sequence[int],
    parameter_seconds: Sequence[float],
    buckets: Sequence[Sequence[int]],
) -> tuple[list[float], list[int]]:
    """Return when each bucket is complete and its bytes, when backward goes from last to first.

    Parameters stand in the order of use; `parameter_seconds` is what backward takes for each, from
    the moment the gradient of the parameter after it was there.
    """
    done, clock = [0.0] * len(parameter_seconds), 0.0
    for place in reversed(range(len(parameter_seconds))):
        clock += parameter_seconds[place]
        done[place] = clock
    return (
        [max(done[place] for place in bucket) for bucket in buckets],
        [sum(parameter_bytes[place] for place in bucket) for bucket in buckets],
    )


def vgg11_backward_shares() -> list[float]:
    """Return the share of backward's work of each parameter of the real VGG11.

    Multiplications in proportion to weights times output pixels, at 224 x 224; a bias is ready with
    its weight.
    """
    pixels = [224, 112, 56, 56, 28, 28, 14, 14, 1, 1, 1]
    work = [
        spec.numel * pixels[place // 2] ** 2 if len(spec.shape) > 1 else 0
        for place, spec in enumerate(vgg11())
    ]
    return [amount / sum(work) for amount in work]


def expected_latest(delays: Sequence[float], n: int) -> float:
    """Return how late the latest of n ranks is on average, each by one of the delays at random.

    The k-th smallest of m delays is the latest if all n ranks draw it or a smaller one, and not all
    a smaller one: with probability (k/m)^n - ((k-1)/m)^n.
    """
    m = len(delays)
    chances = [(k / m) ** n - ((k - 1) / m) ** n for k in range(1, m + 1)]
    return sum(chance * delay for chance, delay in zip(chances, sorted(delays), strict=True))
