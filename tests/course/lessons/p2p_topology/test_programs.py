import torch
import torch.distributed as dist
from pytest import mark

from course.lessons.p2p_topology.programs import carry, pass_on, split
from labkit import launch

pytestmark = mark.slow

CASES = [
    (1, [[0, 1]], None, 1),
    (7, [[0, 2, 1]], None, 2),
    (1000, [[0, 1, 3], [0, 2, 3]], None, 64),
    (1000, [[0, 1, 3], [0, 2, 3], [0, 3]], [5, 3, 1], 100),
    (100, [[0, 1, 2, 3], [0, 2, 3], [0, 1, 3]], [1, 1, 1], 7),
    (5, [[0, 1, 3], [0, 2, 3], [0, 3]], [100, 1, 1], 9),
]
"""Length, ways, shares, chunk."""


def moved():
    """Carry rank 0's numbers along the ways of each case, at last through two slots."""
    held = [torch.arange(length) + 1000.0 * dist.get_rank() for length, *_ in [*CASES, [12]]]
    for tensor, (_, ways, shares, chunk) in zip(held, CASES, strict=False):
        carry(tensor, ways, chunk=4 * chunk, shares=shares)
    pass_on(held[-1], [0, 2, 1, 3], chunk=20, slots=2)  # 5, 5 and 2 elements
    return held


def test_the_last_rank_gets_what_the_first_has():
    *cases, slotted = zip(*launch(moved, world_size=4), strict=True)
    for (length, ways, *_), held in zip(CASES, cases, strict=True):
        numbers, on_the_way = torch.arange(length), {rank for way in ways for rank in way}
        for end in (ways[0][0], ways[0][-1]):
            assert torch.equal(held[end], numbers + 0.0)
        for rank in set(range(4)) - on_the_way:
            assert torch.equal(held[rank], numbers + 1000.0 * rank)
    starts = [0.0, 1000.0, 2000.0, 0.0]  # two slots leave the relays' tensors alone
    assert all(torch.equal(x, torch.arange(12) + s) for x, s in zip(slotted, starts, strict=True))


def test_parts_are_in_proportion_and_complete():
    parts = split(torch.arange(10), [3, 1, 1])
    assert [len(part) for part in parts] == [6, 2, 2]
    assert torch.equal(torch.cat(parts), torch.arange(10))
