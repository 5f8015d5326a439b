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
    """Carry rank 0's numbers along the ways of each case; return what this rank holds then."""
    held = []
    for length, ways, shares, chunk in CASES:
        held.append(torch.arange(length) + 1000.0 * dist.get_rank())
        carry(held[-1], ways, chunk=4 * chunk, shares=shares)
    return held


def test_the_last_rank_gets_what_the_first_has():
    ranks = launch(moved, world_size=4)
    for (length, ways, *_), held in zip(CASES, zip(*ranks, strict=True), strict=True):
        numbers, on_the_way = torch.arange(length), {rank for way in ways for rank in way}
        for end in (ways[0][0], ways[0][-1]):
            assert torch.equal(held[end], numbers + 0.0)
        for rank in set(range(4)) - on_the_way:
            assert torch.equal(held[rank], numbers + 1000.0 * rank)


def test_parts_are_in_proportion_and_complete():
    parts = split(torch.arange(10), [3, 1, 1])
    assert [len(part) for part in parts] == [6, 2, 2]
    assert torch.equal(torch.cat(parts), torch.arange(10))


def relayed():
    """Pass rank 0's numbers on through two slots; return what this rank holds then."""
    held = torch.arange(12.0) + 100 * dist.get_rank()
    pass_on(held, [0, 2, 1, 3], chunk=20, slots=2)  # 5, 5 and 2 elements
    return held


def test_two_slots_pass_everything_on_and_leave_the_relays_tensor_alone():
    first, second, third, last = launch(relayed, world_size=4)
    assert torch.equal(last, torch.arange(12.0))
    assert torch.equal(second, torch.arange(12.0) + 100)
    assert torch.equal(first, last) and third[0] == 200
