"""Lists of tensors that exercises 3.1 and 3.3 have broadcast."""

import math
from collections.abc import Callable
from functools import partial

import torch


def _full(*shapes: tuple[int, ...]) -> Callable[[int], list[torch.Tensor]]:
    """Make tensors that differ from rank to rank and from place to place."""
    return lambda rank: [torch.full(shape, 10 * rank + i + 1 / 3) for i, shape in enumerate(shapes)]


def _mixed(rank: int) -> list[torch.Tensor]:
    """Odd shapes, dtypes in turn, integers that float32 cannot hold, one transposed on some."""
    some = partial(torch.rand, generator=torch.Generator().manual_seed(rank))
    turned = some(4, 6).t()
    return [
        some(3, 5),
        torch.tensor(2**40 + 7 * rank + 1),
        turned.contiguous() if rank == 1 else turned,
        torch.tensor([rank, -rank, 2**53 + 1 + rank]),
        some(1, 2, 3),
        torch.tensor([bool(rank), True, False]),
        some(900),
        some(20)[:8],  # of a larger storage
        torch.tensor([rank + 1e-40, math.inf, 2.0**-149]),
    ]


LISTS: dict[str, Callable[[int], list[torch.Tensor]]] = {
    "buckets that are just full": _full(*[(8,)] * 9),
    "mixed tensors": _mixed,
    "small after large": _full((15,), (18,), (3,), (24,), (4,)),
    "a source of zeros": lambda rank: [torch.full((n,), float(rank)) for n in (4, 12, 5)],
    "six buckets": _full(*[(2000,)] * 12),
    "five buckets": _full(*[(2000,)] * 10),
    "one bucket": _full((2000,)),
    "odd shapes": _full((4000,), (3999,), (40, 50), (7, 11), (60, 30), (30, 60), (20, 20), (1,)),
    "no tensors": _full(),
}
"""What is broadcast: the name of a list -> its tensors on a rank; the source is number 0. That of
no tensors is played last, in launches of its own: what stops at it hides no other fault."""
SMALL, LARGE, EMPTY = [*LISTS][:4], [*LISTS][4:8], "no tensors"
