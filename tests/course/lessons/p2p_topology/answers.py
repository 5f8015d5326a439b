"""Answers to exercise 4.2 that are written otherwise than the lesson's own."""

import torch.distributed as dist
from torch.distributed import irecv, isend


def right_posted_ahead(tensor, way, chunk, length):
    if dist.get_rank() not in way:
        return
    here = way.index(dist.get_rank())
    before = way[here - 1] if here > 0 else None
    after = way[here + 1] if here + 1 < len(way) else None
    relay = None not in (before, after)
    pieces = []
    for k, start in enumerate(range(0, length, chunk)):
        begin = k % 2 * chunk if relay else start
        pieces.append(tensor[begin : begin + min(chunk, length - start)])
    ahead = 2 if relay else len(pieces)
    arriving = [irecv(piece, before) for piece in pieces[:ahead] if before is not None]
    leaving = []
    for k, piece in enumerate(pieces):
        if before is not None:
            arriving[k].wait()
        if after is not None:
            leaving.append(isend(piece, after))
        if relay and k >= 1 and k + 1 < len(pieces):
            leaving[k - 1].wait()
            arriving.append(irecv(pieces[k + 1], before))
    for work in leaving[-2:] if relay else leaving:
        work.wait()


def labkits_own(tensor, way, chunk, length):
    from course.lessons.p2p_topology.programs import carry

    carry(tensor, [way], chunk=chunk)
