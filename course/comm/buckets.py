"""Many small tensors, few large messages: plan buckets, pack them, send them, unpack them.

Every call of a collective costs a latency, whatever it carries. A bucket is a flat buffer that
takes several tensors, so that they share one call. Packing costs a copy; `flatten` and
`as_one_buffer` show when it can be had without.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod

import torch
import torch.distributed as dist

MB = 1_000_000
PHASES = ("pack", "send", "unpack")


@dataclass(frozen=True, slots=True)
class Bucket:
    """Tensors that travel together."""

    members: tuple[int, ...]
    """Their places in the list that was planned."""
    nbytes: int
    dtype: object
    """Their common dtype; a flat buffer has only one."""


def plan(tensors: Sequence, *, cap: int | None, reverse: bool = False) -> list[Bucket]:
    """Put tensors into buckets of at most ``cap`` bytes, keeping their order.

    Args:
        tensors: anything with ``nbytes`` and ``dtype``: tensors, parameters, or `TensorSpec`.
        cap: bytes per bucket. A tensor that is larger has a bucket to itself. None: no limit.
            0: every tensor by itself.
        reverse: go through the tensors backwards. Gradients become ready roughly in reverse order
            of use, so buckets for them should be filled in that order.

    Returns:
        Buckets in the order in which they fill. Tensors of different dtypes never share one.

    Raises:
        ValueError: a negative limit.

    >>> from course.comm.shapes import TensorSpec
    >>> specs = [TensorSpec("w", (4, 2)), TensorSpec("b", (4,)), TensorSpec("head", (9,))]
    >>> [bucket.members for bucket in plan(specs, cap=64)]
    [(0, 1), (2,)]
    """
    if cap is not None and cap < 0:
        raise ValueError(f"cap={cap}: a bucket holds 0 bytes or more (None: no limit).")
    buckets: list[Bucket] = []
    filling: dict[object, list[int]] = {}  # by dtype, in order of first appearance
    held: dict[object, int] = {}

    def close(dtype) -> None:
        buckets.append(Bucket(tuple(filling.pop(dtype)), held.pop(dtype), dtype))

    places = range(len(tensors))
    for place in reversed(places) if reverse else places:
        dtype, nbytes = tensors[place].dtype, tensors[place].nbytes
        if dtype in filling and cap is not None and held[dtype] + nbytes > cap:
            close(dtype)
        filling.setdefault(dtype, []).append(place)
        held[dtype] = held.get(dtype, 0) + nbytes
    for dtype in list(filling):
        close(dtype)
    return buckets


def flatten(tensors: Sequence[torch.Tensor], *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return one flat tensor with all elements: a view where they already lie side by side.

    Else they are copied, into ``out`` if it is given.

    The copy costs a read and a write of every byte; `as_one_buffer` arranges tensors so that this
    function finds nothing to do.
    """
    if _side_by_side(tensors):
        elements = sum(t.numel() for t in tensors)
        return _first(tensors).detach().as_strided((elements,), (1,))
    return torch.cat([t.detach().reshape(-1) for t in tensors], out=out)


def unflatten(flat: torch.Tensor, tensors: Sequence) -> list[torch.Tensor]:
    """Return views into ``flat`` with the shapes of ``tensors``, which stay as they are."""
    pieces = flat.split([prod(t.shape) for t in tensors])
    return [piece.view(tuple(t.shape)) for piece, t in zip(pieces, tensors, strict=True)]


def unpack(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Copy ``flat`` back into ``tensors``; does nothing where it is a view of them."""
    if flat.data_ptr() == _first(tensors).data_ptr():
        return
    with torch.no_grad():
        for tensor, piece in zip(tensors, unflatten(flat, tensors), strict=True):
            tensor.copy_(piece)


def as_one_buffer(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Move tensors of one dtype into one flat buffer, for good, and return it.

    Afterwards each tensor is a view of the buffer: sending the buffer sends them all, with no copy.
    Whoever holds the *old* storage (an alias, a tied weight, a saved view) no longer shares
    memory with the model: that is what makes this unsafe in general.

    Raises:
        ValueError: no tensors, several dtypes, or tensors that share memory.
    """
    dtypes = {t.dtype for t in tensors}
    if len(dtypes) != 1:
        raise ValueError(f"one buffer holds one dtype; got {sorted(map(str, dtypes)) or 'none'}.")
    storages = [t.untyped_storage().data_ptr() for t in tensors if t.numel()]
    if len(set(storages)) != len(storages):
        raise ValueError(
            f"{len(storages) - len(set(storages))} of {len(storages)} tensors share storage with "
            "another (tied weights or views); moving both would untie them."
        )
    flat = torch.cat([t.detach().reshape(-1) for t in tensors])
    for tensor, piece in zip(tensors, unflatten(flat, tensors), strict=True):
        tensor.data = piece
    return flat


def broadcast(
    tensors: Sequence[torch.Tensor],
    *,
    cap: int | None,
    src: int = 0,
    in_flight: int = 2,
    kept: dict[int, torch.Tensor] | None = None,
    span: Callable[[str], object] = lambda phase: nullcontext(),
) -> None:
    """Give every rank rank ``src``'s values of ``tensors``, in buckets of at most ``cap`` bytes.

    While one bucket is on the wire the next is packed. Tensors of one bucket that already lie side
    by side are sent from where they are.

    Args:
        tensors: the same shapes and dtypes in the same order on every rank.
        cap: bytes per bucket; 0 sends every tensor by itself, None all of a dtype at once.
        src: the rank that has the values.
        in_flight: how many buckets may be on the wire at a time. 1: pack, send, unpack in turn.
        kept: buffers of an earlier call with the same tensors and cap, by bucket; filled in. Large
            buffers are worth keeping: fresh memory costs a page fault for every 4 KiB. None:
            allocate anew.
        span: ``span(phase)`` is a context manager entered around each of `PHASES`; an instrument's
            place to listen. "send" holds what the rank waits, not what the wire works.
    """
    flying: deque = deque()
    receiving = dist.get_rank() != src

    def land() -> None:
        work, flat, members = flying.popleft()
        with span("send"):
            work.wait()
        if receiving:
            with span("unpack"):
                unpack(flat, members)

    keeping, kept = kept is not None, {} if kept is None else kept
    for number, bucket in enumerate(plan(tensors, cap=cap)):
        members = [tensors[place] for place in bucket.members]
        with span("pack"):
            buffer = kept.get(number)
            flat = _landing_place(members, buffer) if receiving else flatten(members, out=buffer)
        if keeping:
            kept[number] = flat
        with span("send"):
            flying.append((dist.broadcast(flat, src, async_op=True), flat, members))
        if len(flying) >= in_flight:
            land()
    while flying:
        land()


def _landing_place(tensors: Sequence[torch.Tensor], buffer: torch.Tensor | None) -> torch.Tensor:
    """Return a flat tensor to receive into: what the tensors hold now need not be copied."""
    if _side_by_side(tensors):
        return flatten(tensors)
    return tensors[0].new_empty(sum(t.numel() for t in tensors)) if buffer is None else buffer


def _first(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the first tensor that has elements: empty ones have no address."""
    return next((t for t in tensors if t.numel()), tensors[0])


def _side_by_side(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the tensors are contiguous and follow each other in one storage, without gaps."""
    storage, expected = _first(tensors).untyped_storage().data_ptr(), _first(tensors).data_ptr()
    for tensor in tensors:
        if not tensor.numel():
            continue
        if tensor.data_ptr() != expected or not tensor.is_contiguous():
            return False
        if tensor.untyped_storage().data_ptr() != storage:
            return False  # neighbours by chance: two allocations may touch
        expected += tensor.nbytes
    return True
