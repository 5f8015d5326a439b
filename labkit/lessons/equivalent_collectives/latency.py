"""Make every message cost more, as over a longer way: the alpha of a link that is not here.

    with latency.added(0.01):
        ring_all_reduce(tensor)      # 2 (n-1) messages, 10 ms each, on top of what they cost anyway

The sender sleeps before each message that has content. The kernel's own way to delay packets
(netem) is not in every kernel; this needs nothing.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from labkit.measure.calls import Observer


@contextmanager
def added(seconds: float) -> Iterator[None]:
    """Let each send of this thread wait first; the library's collectives are not slowed."""
    with _Waiting(seconds):
        yield


class _Waiting(Observer):
    def __init__(self, seconds: float):
        super().__init__()
        self.seconds = seconds

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        sends = func.namespace == "c10d" and func.overloadpacket.__name__ == "send"
        if sends and any(tensor.nbytes for tensor in args[0]):
            time.sleep(self.seconds)
        return func(*args, **(kwargs or {}))
