"""Answers to exercise 4.2, right and wrong; a light module, since every rank imports it."""

import torch
import torch.distributed as dist
from torch.distributed import irecv, isend


def stand(way):
    """Who stands before this rank, who after it, and whether it is a relay."""
    here = way.index(dist.get_rank())
    before = way[here - 1] if here > 0 else None
    after = way[here + 1] if here + 1 < len(way) else None
    return before, after, is_relay(way)


def is_relay(way):
    return dist.get_rank() in way[1:-1]


def cut(tensor, chunk, length, *, relay):
    """The place of each chunk: in the tensor, or in one of a relay's two slots."""
    for k, start in enumerate(range(0, length, chunk)):
        begin = k % 2 * chunk if relay else start
        yield tensor[begin : begin + min(chunk, length - start)]


def relayed(
    tensor, way, chunk, length, *, before_reuse=lambda *_: None, to_the_end=True, slots=True
):
    """Hand chunks on; `before_reuse(leaving, k)` comes before a relay receives chunk k >= 2."""
    if dist.get_rank() not in way:
        return
    before, after, relay = stand(way)
    leaving = []
    for k, piece in enumerate(cut(tensor, chunk, length, relay=relay and slots)):
        if relay and k >= 2:
            before_reuse(leaving, k)
        if before is not None:
            dist.recv(piece, before)
        if after is not None:
            leaving.append(dist.isend(piece, after))
    for work in leaving if to_the_end else ():
        work.wait()


def chunk_by_chunk(tensor, way, chunk, length, *, step):
    """Take one step (piece, rank before, rank after) for each chunk, none beside another."""
    if dist.get_rank() in way:
        before, after, relay = stand(way)
        for piece in cut(tensor, chunk, length, relay=relay):
            step(piece, before, after)


def wait_and_keep(leaving, k):
    leaving[k - 2].wait()


def right_plain(*case):
    relayed(*case, before_reuse=lambda leaving, k: leaving.pop(0).wait())


def waits_twice(*case):
    relayed(*case, before_reuse=wait_and_keep)


def drops_a_handle(*case):
    relayed(*case, before_reuse=wait_and_keep, to_the_end=False)


def reuses_a_slot(*case):
    relayed(*case)


def right_posted_ahead(tensor, way, chunk, length):
    if dist.get_rank() not in way:
        return
    before, after, relay = stand(way)
    pieces = list(cut(tensor, chunk, length, relay=relay))
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


def skips_a_hop(tensor, way, chunk, length):
    right_plain(tensor, list(dict.fromkeys([way[0], way[1], way[-1]])), chunk, length)


def forgets_the_rest(tensor, way, chunk, length):
    right_plain(tensor, way, chunk, length // chunk * chunk)


def sends_the_last_chunk_whole(tensor, way, chunk, length):
    """Forgets on the sender's side that the last chunk is shorter; the receiver remembers it."""
    if dist.get_rank() == way[0] and length % chunk:
        rest = chunk - length % chunk
        padded = torch.cat([tensor, tensor.new_zeros(rest)])
        right_plain(padded, way, chunk, length + rest)
    else:
        right_plain(tensor, way, chunk, length)


def leaves_a_chunk_out(tensor, way, chunk, length):
    """Skips the second chunk on the first rank."""
    if dist.get_rank() == way[0]:
        kept = torch.cat([tensor[:chunk], tensor[2 * chunk :]])
        right_plain(kept, way, chunk, len(kept))
    else:
        right_plain(tensor, way, chunk, length)


def ways_of_three_only(tensor, way, chunk, length):
    """Takes way[1] for the relay and way[2] for the end."""
    if dist.get_rank() in way[:3]:
        right_plain(tensor, way[:3], chunk, length)


def whole_tensor(tensor, way, chunk, length):
    room = torch.empty(length, dtype=tensor.dtype) if is_relay(way) else tensor
    right_plain(room, way, length, length)


def receive_and_send(piece, before, after):
    if before is not None:
        dist.recv(piece, before)
    if after is not None:
        dist.send(piece, after)


def confirm(piece, before, after):
    receive_and_send(piece, before, after)
    receipt = piece.new_zeros(1)
    if after is not None:
        dist.recv(receipt, after)
    if before is not None:
        dist.send(receipt, before)


def receive_beside_send(piece, before, after):
    works = [dist.irecv(piece, before)] if before is not None else []
    works += [dist.isend(piece, after)] if after is not None else []
    for work in works:
        work.wait()


def in_turns(*case):
    chunk_by_chunk(*case, step=receive_and_send)


def waits_for_the_end(*case):
    chunk_by_chunk(*case, step=confirm)


def hands_on_too_early(*case):
    chunk_by_chunk(*case, step=receive_beside_send)


def slots_swapped(tensor, way, chunk, length):
    right_plain(tensor, way, chunk, length)
    if dist.get_rank() == way[-1] and length > chunk:
        tensor[:] = torch.cat([tensor[chunk:], tensor[:chunk]])


def everybody_takes_part(tensor, way, chunk, length):
    right_plain(tensor, way, chunk, length)
    if dist.get_rank() not in way:
        tensor.zero_()


def a_copy_to_a_bystander(tensor, way, chunk, length):
    right_plain(tensor, way, chunk, length)
    bystander = min(set(range(dist.get_world_size())) - set(way), default=None)
    if bystander is not None and dist.get_rank() == way[0]:
        dist.send(tensor, bystander)
    if dist.get_rank() == bystander:
        dist.recv(tensor.clone(), way[0])


def by_broadcast(tensor, way, chunk, length):
    ends = dist.get_rank() in (way[0], way[-1])
    dist.broadcast(tensor if ends else tensor.new_empty(length), way[0])


def half_precision(tensor, way, chunk, length):
    narrow = tensor.half()
    right_plain(narrow, way, chunk, length)
    if not is_relay(way):
        tensor.copy_(narrow)


def resizes(tensor, way, chunk, length):
    room = tensor.resize_(length) if is_relay(way) else tensor
    relayed(room, way, chunk, length, slots=False)


def empties_the_first(tensor, way, chunk, length):
    right_plain(tensor, way, chunk, length)
    if dist.get_rank() == way[0]:
        tensor.zero_()


def in_numpy(tensor, way, chunk, length):
    import numpy as np

    room = torch.from_numpy(np.zeros(length, tensor.numpy().dtype)) if is_relay(way) else tensor
    relayed(room, way, chunk, length, slots=False)


def never_sends(tensor, way, chunk, length):
    rank = dist.get_rank()
    if rank in way[1:]:
        dist.recv(tensor, way[way.index(rank) - 1])


def labkits_own(tensor, way, chunk, length):
    from course.lessons.p2p_topology.programs import carry

    carry(tensor, [way], chunk=chunk)
