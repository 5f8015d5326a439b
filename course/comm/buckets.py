"""Many small tensors, few large messages: plan buckets, pack them, unpack them.

Every call of a collective costs a latency, whatever it carries. A bucket is a flat buffer that
takes several tensors, so that they share one call. Packing costs a copy; `flatten` and
`as_one_buffer` show when it can be had without.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Bucket:
    """Tensors that travel together."""

    members: tuple[int, ...]  # their places in the list that was planned
    nbytes: int
    dtype: torch.dtype  # their common dtype; a flat buffer has only one


def plan(tensors: Sequence, *, cap: int | None, reverse: bool = False) -> list[Bucket]:
    """Put tensors into buckets of at most ``cap`` bytes, keeping their order.

    Args:
        tensors: those to send; their values do not matter.
        cap: bytes per bucket. A tensor that is larger has a bucket to itself. None: no limit.
            0: every tensor by itself.
        reverse: go through the tensors backwards. Gradients become ready roughly in reverse order
            of use, so buckets for them should be filled in that order.

    Returns:
        Buckets in the order in which they fill. Tensors of different dtypes never share one.

    >>> tensors = [torch.empty(4, 2), torch.empty(4), torch.empty(9)]
    >>> [bucket.members for bucket in plan(tensors, cap=64)]
    [(0, 1), (2,)]
    """
    buckets: list[Bucket] = []
    filling: dict[torch.dtype, list[int]] = {}  # by dtype, in order of first appearance
    held: dict[torch.dtype, int] = {}

    def close(dtype: torch.dtype) -> None:
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

    Else they are copied, into ``out`` if it is given: a read and a write of every byte.
    `as_one_buffer` arranges tensors so that this function finds nothing to do.
    """
    if _side_by_side(tensors):
        elements = sum(t.numel() for t in tensors)
        return _first(tensors).detach().as_strided((elements,), (1,))
    return torch.cat([t.detach().reshape(-1) for t in tensors], out=out)


def unflatten(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return views into ``flat`` with the shapes of ``tensors``, which stay as they are."""
    pieces = flat.split([t.numel() for t in tensors])
    return [piece.view_as(t) for piece, t in zip(pieces, tensors, strict=True)]


def unpack(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Copy ``flat`` back into ``tensors``; does nothing where it is a view of them."""
    if flat.data_ptr() != _first(tensors).data_ptr():
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
    if shared := len(storages) - len(set(storages)):
        raise ValueError(
            f"{shared} of {len(storages)} tensors share storage with another (tied weights or "
            "views); moving both would untie them."
        )
    flat = torch.cat([t.detach().reshape(-1) for t in tensors])
    for tensor, piece in zip(tensors, unflatten(flat, tensors), strict=True):
        tensor.data = piece
    return flat


class Kept:
    """Flat buffers that are kept from one use to the next, for tensors that stay the same.

    Large buffers are worth keeping: fresh memory costs a page fault for each page.
    """

    def __init__(self, count: int | None = None, *, device: torch.device | str = "cpu"):
        """Keep one buffer for each bucket, or take turns with `count`, where the tensors lie."""
        self._count, self._device, self._flats = count, device, {}

    def of(self, number: int, bucket: Bucket) -> torch.Tensor:
        """Return the buffer of the bucket of that number: ``flatten(..., out=kept.of(...))``."""
        elements = bucket.nbytes // bucket.dtype.itemsize
        place = bucket.dtype, number % self._count if self._count else number
        if place not in self._flats or self._flats[place].numel() < elements:
            self._flats[place] = torch.empty(elements, dtype=bucket.dtype, device=self._device)
        return self._flats[place][:elements]


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
