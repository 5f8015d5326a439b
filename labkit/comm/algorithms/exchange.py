"""The one step that most algorithms repeat: send to one rank while receiving from another."""

import torch
import torch.distributed as dist


def exchange(
    outgoing: torch.Tensor,
    incoming: torch.Tensor,
    *,
    dst: int,
    src: int,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Send `outgoing` to rank `dst` of the group and fill `incoming` from rank `src`, at once.

    The send must not block: if every rank of a circle waited for its send first, nobody would
    receive. The two tensors must not share memory.
    """
    sending = dist.isend(outgoing, group_dst=dst, group=group)
    dist.recv(incoming, group_src=src, group=group)
    sending.wait()
