"""Which torch.distributed calls a block made: sends and receives with peer and bytes, collectives.

Every call of torch.distributed passes torch's dispatcher as an operator of the `c10d` library,
whether it came from `send`, `isend` or `batch_isend_irecv`. A dispatch mode sees them go by. It
sees what was *asked*; what really went over the network is `labkit.measure.wire`'s business.
"""

import sys
from dataclasses import dataclass

import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

ANY_SOURCE = -1
_TORCH_DISTRIBUTED = dist.send.__wrapped__.__code__.co_filename


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
    blocking: bool = True
    """Whether Python waited in the call (`send`, `recv`) or got a handle (`isend`, `irecv`)."""


class Observer(TorchDispatchMode):
    """A dispatch mode that costs nothing to start: a base for those that only look on.

    torch 2.13 guards every mode against torch.compile, which at the first operator imports 800
    modules: a second of CPU on every rank. Ranks compile nothing.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class CallLog(Observer):
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
        return Call("recv", ANY_SOURCE, _nbytes(args[0]), _blocking())
    if operator in ("send", "recv_"):
        tensors, boxed_group, peer = args[:3]
        group = dist.ProcessGroup.unbox(boxed_group)
        peer = dist.get_global_rank(group, peer)
        return Call(operator.rstrip("_"), peer, _nbytes(tensors), _blocking())
    return Call(operator)


def _blocking() -> bool:
    """Tell from the stack which of torch's functions was called: both use the same operators."""
    frame, functions = sys._getframe(1), set()
    while frame is not None:
        if frame.f_code.co_filename == _TORCH_DISTRIBUTED:
            functions.add(frame.f_code.co_name)
        frame = frame.f_back
    return not functions.isdisjoint({"send", "recv"})


def _nbytes(tensors: list) -> int:
    return sum(tensor.nbytes for tensor in tensors)
