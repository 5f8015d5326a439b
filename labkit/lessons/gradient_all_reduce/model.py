"""Predict a data-parallel step: when each bucket is ready, sent, and done.

The wire carries one bucket at a time, in order. A bucket can start when its gradients are ready
and the wire is free. What ends after backward has ended is exposed: the step is longer by it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Cost = Callable[[int], float]
"""Seconds that one collective takes for a buffer of that many bytes, as
``lambda nbytes: algorithm_costs.ring_all_reduce(n).seconds(nbytes, alpha=alpha, beta=beta)``."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One bucket's way over the wire, in seconds from the start of backward."""

    nbytes: int
    ready: float
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Step:
    """A predicted training step."""

    forward: float
    backward: float
    sent: tuple[Sent, ...]

    @property
    def communication(self) -> float:
        """Seconds the wire is busy."""
        return sum(bucket.end - bucket.begin for bucket in self.sent)

    @property
    def exposed(self) -> float:
        """Seconds of communication after backward has ended."""
        return max(0.0, max((b.end for b in self.sent), default=0.0) - self.backward)

    @property
    def hidden(self) -> float:
        """Seconds of communication behind backward."""
        return sum(max(0.0, min(b.end, self.backward) - b.begin) for b in self.sent)

    @property
    def seconds(self) -> float:
        """The step's length."""
        return self.forward + self.backward + self.exposed


def overlapped(
    ready: Sequence[float], nbytes: Sequence[int], cost: Cost, *, backward: float, forward=0.0
) -> Step:
    """Predict a step that sends each bucket as soon as it is ready.

    Args:
        ready: seconds after the start of backward at which each bucket is complete, in the order
            of sending.
        nbytes: each bucket's bytes.
        cost: the collective's cost.
        backward: seconds of backward.
        forward: seconds of everything before it.

    Raises:
        ValueError: the two sequences differ in length.
    """
    if len(ready) != len(nbytes):
        raise ValueError(f"{len(ready)} ready times for {len(nbytes)} buckets; one each is needed.")
    sent, free = [], 0.0
    for moment, size in zip(ready, nbytes, strict=True):
        begin = max(moment, free)
        free = begin + cost(size)
        sent.append(Sent(size, moment, begin, free))
    return Step(forward, backward, tuple(sent))


def after_backward(nbytes: Sequence[int], cost: Cost, *, backward: float, forward=0.0) -> Step:
    """Predict a step that begins to send when backward has ended."""
    return overlapped([backward] * len(nbytes), nbytes, cost, backward=backward, forward=forward)


def ready_times(
    parameter_bytes: Sequence[int],
    parameter_seconds: Sequence[float],
    buckets: Sequence[Sequence[int]],
) -> tuple[list[float], list[int]]:
    """Return when each bucket is complete and its bytes, when backward goes from last to first.

    Args:
        parameter_bytes: by parameter, in the order of use.
        parameter_seconds: by parameter, the seconds of backward until its gradient is there, from
            the moment the gradient of the parameter after it was there.
        buckets: the parameters of each bucket.
    """
    done, clock = [0.0] * len(parameter_seconds), 0.0
    for place in reversed(range(len(parameter_seconds))):
        clock += parameter_seconds[place]
        done[place] = clock
    return (
        [max(done[place] for place in bucket) for bucket in buckets],
        [sum(parameter_bytes[place] for place in bucket) for bucket in buckets],
    )
