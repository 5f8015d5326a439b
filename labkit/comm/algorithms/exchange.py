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

    Neither may block: if every rank of a circle waited for its send first, nobody would receive.
    And the receive comes first: gloo tells the sender that a receive is posted by a notice on the
    same connection. Posted after the send, that notice queues behind the outgoing bytes, the
    partner cannot start until they are through, and two ranks that swap tensors take turns: on a
    shaped link 1.9 times as long. The two tensors must not share memory.
    """
    receiving = dist.irecv(incoming, group_src=src, group=group)
    sending = dist.isend(outgoing, group_dst=dst, group=group)
    receiving.wait()
    sending.wait()
