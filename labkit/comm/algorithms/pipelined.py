"""A broadcast in pieces: each rank passes a piece on while the next one arrives.

The ranks form a chain. Once it is full, all links work at once, and the time comes near S beta,
whatever the number of ranks: the tree needs log2(n) times as long. Its price is rounds: chunks + n
- 2.

Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH",
International Journal of High Performance Computing Applications 19 (2005), and the chain of Chan
et al. (2007).
"""

import torch
import torch.distributed as dist


def pipelined_broadcast(
    tensor: torch.Tensor, *, chunks: int, src: int = 0, group: dist.ProcessGroup | None = None
) -> None:
    """Copy rank `src`'s tensor to every rank along the chain src, src+1, ..., in `chunks` pieces.

    More pieces fill the chain sooner, but each pays alpha once more;
    `labkit.comm.costs.best_chunks` weighs the two.
    """
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    place = (rank - src) % n
    passed_on = []
    for piece in tensor.tensor_split(chunks):
        if piece.numel() == 0:
            continue  # more chunks than elements
        if place > 0:
            dist.recv(piece, group_src=(rank - 1) % n, group=group)
        if place < n - 1:
            passed_on.append(dist.isend(piece, group_dst=(rank + 1) % n, group=group))
    for sending in passed_on:
        sending.wait()
