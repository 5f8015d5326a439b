"""Three programs for three ranks: exercise 1.6 measures who pays for which of them."""

import torch
import torch.distributed as dist


def whole() -> None:
    """Sum one tensor of 256 KiB on all ranks."""
    dist.all_reduce(torch.zeros(2**16))


def pieces() -> None:
    """Sum 16 tensors of 400 bytes on all ranks, one after the other."""
    for _ in range(16):
        dist.all_reduce(torch.zeros(100))


def errand() -> None:
    """Pass one number from rank 0 to rank 1 and back, 50 times; the other ranks do nothing."""
    rank, number = dist.get_rank(), torch.zeros(1)
    for _ in range(50 if rank < 2 else 0):
        for src in (0, 1):
            if rank == src:
                dist.send(number, 1 - src)
            else:
                dist.recv(number, 1 - rank)


PROGRAMS = {"whole": whole, "pieces": pieces, "errand": errand}
NBYTES = {"whole": 350_000, "pieces": 8_500, "errand": 200}
"""What a rank sends: an all_reduce of S bytes among three sends 4/3 S."""
