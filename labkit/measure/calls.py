"""Which torch.distributed calls a block made, and when each was waited for.

    def program():
        x, other = torch.ones(4), 1 - dist.get_rank()
        with calls.CallLog() as log:
            sending = dist.isend(x, other)
            incoming = torch.empty(4)
            dist.recv(incoming, other)
            sending.wait()
        return log.calls

    sent, received = launch(program, world_size=2)[0]
    received.waited < sent.waited               # True: positions of events in the block, in order

**How it sees them.** Every call becomes an operator of torch's `c10d` library, whoever makes it:
`dist.all_reduce`, the same function imported by name, `batch_isend_irecv`, the functional
collectives, DDP's C++ code, any thread of the process. During the block each of these operators
passes a kernel of ours on its way. Works stay torch's own objects; it is the methods of their class
(`wait`, `is_completed`, `get_future`, ...) that report.

**What it cannot see.** Calls on a backend object (`group._get_backend(...)`), below the operators.
Waits in C++ (DDP's), and for a batch that NCCL groups. What follows from `future.then`. It sees
what was *asked*; what went over the network is `labkit.measure.wire`'s business.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

ANY_SOURCE = -1
_NAMES = {
    "send": "send",
    "recv_": "recv",
    "recv_any_source_": "recv",
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce_coalesced",
    "broadcast_": "broadcast",
    "reduce_": "reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather_into_tensor",
    "allgather_coalesced_": "all_gather_coalesced",
    "allgather_into_tensor_coalesced_": "all_gather_into_tensor_coalesced",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter_tensor_coalesced",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all_single",
    "gather_": "gather",
    "scatter_": "scatter",
    "barrier": "barrier",
    "monitored_barrier_": "monitored_barrier",
}
"""How torch.distributed calls what the operators of `c10d` do."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `at` and `waited` are positions in the block's sequence of calls and waits."""

    kind: str
    """As in torch.distributed: "send", "recv" (also for `isend`, `irecv`), "all_reduce", ..."""
    peer: int = ANY_SOURCE
    """The other rank of a send or receive, the root of a collective (numbers in the whole world);
    -1 for collectives without a root, and for a receive from anyone until it was waited for."""
    nbytes: int = 0
    """The largest buffer: a send's payload, S of a collective; 0 for a barrier."""
    blocking: bool = True
    """Whether the call waited itself (`send`, `recv`, `async_op=False`)."""
    tag: int = 0
    dtype: torch.dtype | None = None
    """Of the first tensor; None for a barrier."""
    ranks: tuple[int, ...] = ()
    """The group, in numbers of the whole world."""
    at: int = 0
    """When the call was made."""
    waited: int | None = None
    """When it was known to be complete; None if nobody waited."""
    waited_by: str | None = None
    """What told: "wait", "is_completed" (which said True), "future", "wait_tensor"."""


class CallLog:
    """Context manager that lists this process's calls, at some tens of microseconds each.

    A subclass may look at each call, and at each wait, before it is made.
    """

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._start = 0

    @property
    def calls(self) -> list[Call]:
        """The calls, in the order in which they were made."""
        return [entry.call for entry in self._entries]

    def __enter__(self) -> CallLog:
        with _state.lock:
            if not _state.logs:
                _state.install()
            _state.logs.append(self)
            self._start = next(_state.positions) + 1
        return self

    def __exit__(self, *exception: object) -> None:
        with _state.lock:
            _state.logs.remove(self)
            if not _state.logs:
                _state.uninstall()

    def before_call(self, kind: str, reads: list[torch.Tensor], writes: list[torch.Tensor]) -> None:
        """See a call of this kind that will read and write these tensors; may raise instead."""

    def before_wait(self, work: dist.Work) -> None:
        """See a `wait` for this work; may raise instead."""


@dataclass(slots=True)
class _Entry:
    """A call as far as it is known, and the addresses of what it writes."""

    log: CallLog
    call: Call
    outputs: set[int]


class _State:
    """What is installed in torch while at least one log is open."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.logs: list[CallLog] = []
        self.positions = itertools.count()
        self.open: dict[int, tuple[dist.Work | None, list[_Entry]]] = {}
        """By id: works that nobody has waited for. The reference keeps the id from being reused."""
        self.futures: dict[int, tuple[Any, list[dist.Work]]] = {}
        """By id: futures, and the works whose end they tell (from `collect_all`: several)."""
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        library = torch.library.Library("c10d", "IMPL")
        for name in _NAMES:
            operator = getattr(torch.ops.c10d, name).default
            library.impl(name, _kernel(operator), "BackendSelect", with_keyset=True)
        functional = torch.library.Library("_c10d_functional", "IMPL")
        functional.impl("wait_tensor", _wait_tensor, "BackendSelect", with_keyset=True)
        self._undo += [library._destroy, functional._destroy]
        for (owner, name), instead in _REPLACEMENTS.items():
            original = getattr(owner, name)
            setattr(owner, name, _method(original, instead))
            self._undo.append(functools.partial(setattr, owner, name, original))

    def uninstall(self) -> None:
        while self._undo:
            self._undo.pop()()
        self.open.clear()
        self.futures.clear()

    def started(self, work: dist.Work | None, entries: list[_Entry]) -> None:
        with self.lock:
            self.open[id(work)] = (work, entries)
            if work is None:  # complete when the call returned
                self.ended(work, "wait", blocking=True)

    def ended(self, work: dist.Work | None, by: str, *, blocking: bool = False) -> None:
        with self.lock:
            _, entries = self.open.pop(id(work), (None, []))
            position = next(self.positions)
            for entry in entries:
                call = entry.call
                if call.waited is None:
                    entry.call = replace(
                        call,
                        waited=position - entry.log._start,
                        waited_by=by,
                        blocking=call.blocking or blocking,
                        peer=_source(work, call) if call.kind == "recv" else call.peer,
                    )


_state = _State()
_BELOW = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
_TORCH_DISTRIBUTED = inspect.unwrap(dist.send).__code__.co_filename


def _kernel(operator: Any) -> Callable[..., Any]:
    """Make the kernel that notes a call and passes it on to the backend."""
    names = [argument.name for argument in operator._schema.arguments]

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        entries = [_entry(log, operator, given) for log in tuple(_state.logs)]
        result = operator.redispatch(keyset & _BELOW, *args, **kwargs)
        boxed = result[-1] if isinstance(result, tuple) and result else result
        work = dist.Work.unbox(boxed) if isinstance(boxed, torch.ScriptObject) else None
        _state.started(work, entries)
        return result

    return kernel


def _entry(log: CallLog, operator: Any, given: dict[str, Any]) -> _Entry:
    name = operator._schema.name.partition("::")[2]
    ranks = tuple(dist.get_process_group_ranks(dist.ProcessGroup.unbox(given["process_group"])))
    peer = next((given[key] for key in ("dst", "src", "root_rank") if key in given), None)
    tensors = {key: tensors_in(value) for key, value in given.items() if "barrier" not in name}
    if peer is not None and not 0 <= peer < len(ranks):  # with gloo torch would wait for ever
        raise ValueError(
            f"{name.rstrip('_')}: rank {peer} is none of the {len(ranks)} of the group."
        )
    root = None if peer is None else ranks[peer]
    gives = name == "send" or (name == "broadcast_" and root == dist.get_rank())
    read = {key for key in tensors if gives or key.startswith("input")}
    reads = [tensor for key in read for tensor in tensors[key]]
    writes = [tensor for key in tensors.keys() - read for tensor in tensors[key]]
    log.before_call(_NAMES[name], reads, writes)
    call = Call(
        kind=_NAMES[name],
        peer=ANY_SOURCE if root is None else root,
        nbytes=max((sum(x.nbytes for x in group) for group in tensors.values()), default=0),
        blocking=given.get("async_op") is False,
        tag=given.get("tag", 0),
        dtype=next((x.dtype for group in tensors.values() for x in group), None),
        ranks=ranks,
        at=next(_state.positions) - log._start,
    )
    entry = _Entry(log, call, {tensor.data_ptr() for tensor in writes})
    log._entries.append(entry)
    return entry


def _source(work: dist.Work | None, call: Call) -> int:
    """Return who sent what was received, where that is known now."""
    try:
        return call.ranks[work._source_rank()] if call.peer == ANY_SOURCE and work else call.peer
    except RuntimeError:  # a backend that does not tell
        return ANY_SOURCE


def _wait_tensor(keyset: Any, tensor: torch.Tensor) -> torch.Tensor:
    operator = torch.ops._c10d_functional.wait_tensor.default
    result = operator.redispatch(keyset & _BELOW, tensor)
    for work, entries in list(_state.open.values()):
        if any(tensor.data_ptr() in entry.outputs for entry in entries):
            _state.ended(work, "wait_tensor")
    return result


# What replaces methods of torch's classes: each gets the original first.


def _method(original: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return instead(original, self, *args, **kwargs)

    return method


def _reporting(by: str) -> Callable[..., Any]:
    def report(original: Callable[..., Any], self: dist.Work, *args: Any, **kwargs: Any) -> Any:
        if by == "wait":
            for log in tuple(_state.logs):
                log.before_wait(self)
        result = original(self, *args, **kwargs)
        if by != "is_completed" or result:
            caller = sys._getframe(2).f_code.co_filename  # of the method
            _state.ended(self, by, blocking=caller == _TORCH_DISTRIBUTED)
        return result

    return report


def _get_future(original: Callable[..., Any], self: dist.Work) -> Any:
    future = original(self)
    _state.futures[id(future)] = (future, [self])
    return future


def _told_by(future: Any) -> list[dist.Work]:
    known, works = _state.futures.get(id(future), (None, []))
    return works if known is future else []


def _ask_future(original: Callable[..., Any], self: Any) -> Any:
    result = original(self)
    if result is not False:
        for work in _told_by(self):
            _state.ended(work, "future")
    return result


def _collect_all(original: Callable[..., Any], futures: list[Any]) -> Any:
    together = original(futures)
    _state.futures[id(together)] = (together, [w for future in futures for w in _told_by(future)])
    return together


def _wait_all(original: Callable[..., Any], futures: list[Any]) -> Any:
    result = original(futures)
    for work in (work for future in futures for work in _told_by(future)):
        _state.ended(work, "future")
    return result


_REPLACEMENTS: dict[tuple[Any, str], Callable[..., Any]] = {
    (dist.Work, "wait"): _reporting("wait"),
    (dist.Work, "synchronize"): _reporting("wait"),
    (dist.Work, "is_completed"): _reporting("is_completed"),
    (dist.Work, "get_future"): _get_future,
    **{(torch._C.Future, name): _ask_future for name in ("wait", "value", "done")},
    (torch.futures, "collect_all"): _collect_all,
    (torch.futures, "wait_all"): _wait_all,
}


def tensors_in(values: object) -> list[torch.Tensor]:
    """Return the tensors in nested lists, tuples and dicts."""
    tensors, to_see = [], [values]
    while to_see:  # no recursion: it is asked at every operator
        value = to_see.pop()
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            to_see += value[::-1]
        elif isinstance(value, dict):
            to_see += [*value.values()][::-1]
    return tensors
