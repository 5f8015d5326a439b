"""Which torch.distributed calls a block made: sends and receives with peer and bytes, collectives.

Every call of torch.distributed passes torch's dispatcher as an operator of the `c10d` library,
whether it came from `send`, `isend` or `batch_isend_irecv`. A dispatch mode sees them go by. It
sees what was *asked*; what really went over the network is `labkit.measure.wire`'s business.
"""

from dataclasses import dataclass

import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

ANY_SOURCE = -1


@dataclass(frozen=True, slots=True)
class Call:
    """One call, in the order in which the rank made them."""

    kind: str
    """"send", "recv", or the name of a collective as the dispatcher spells it, such as
    "allreduce_"."""
    peer: int = ANY_SOURCE
    """The other rank (its number in the whole world) of a send or receive; -1 for any source and
    for collectives."""
    nbytes: int = 0
    """Payload of a send or receive; 0 for collectives."""


class CallLog(TorchDispatchMode):
    """Context manager that lists this thread's calls in `calls`, at some microseconds each."""

    def __init__(self):
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d":
            self.calls.append(_describe(func.overloadpacket.__name__, args))
        return func(*args, **(kwargs or {}))


def _describe(operator: str, args: tuple) -> Call:
    if operator == "recv_any_source_":
        return Call("recv", ANY_SOURCE, _nbytes(args[0]))
    if operator in ("send", "recv_"):
        tensors, boxed_group, peer = args[:3]
        group = dist.ProcessGroup.unbox(boxed_group)
        return Call(operator.rstrip("_"), dist.get_global_rank(group, peer), _nbytes(tensors))
    return Call(operator)


def _nbytes(tensors: list) -> int:
    return sum(tensor.nbytes for tensor in tensors)
