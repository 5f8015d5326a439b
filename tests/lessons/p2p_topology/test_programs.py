import pytest
import torch
import torch.distributed as dist

from labkit import launch
from labkit.lessons.p2p_topology.programs import carry, split


def moved(length, ways, shares, chunk):
    """Carry rank 0's numbers; return what each rank holds afterwards."""
    rank = dist.get_rank()
    tensor = torch.arange(length, dtype=torch.float32) + 1000 * rank
    carry(tensor, ways, chunk=chunk, shares=shares)
    return tensor


@pytest.mark.parametrize(
    ("length", "ways", "shares", "chunk"),
    [
        (1, [[0, 1]], None, 1),
        (7, [[0, 2, 1]], None, 2),
        (1000, [[0, 1, 3], [0, 2, 3]], None, 64),
        (1000, [[0, 1, 3], [0, 2, 3], [0, 3]], [5, 3, 1], 100),
        (100, [[0, 1, 2, 3], [0, 2, 3], [0, 1, 3]], [1, 1, 1], 7),
        (5, [[0, 1, 3], [0, 2, 3], [0, 3]], [100, 1, 1], 9),
    ],
)
def test_the_last_rank_gets_what_the_first_has(length, ways, shares, chunk):
    results = launch(moved, length, ways, shares, chunk, world_size=4, timeout=20)
    source, destination = ways[0][0], ways[0][-1]
    assert torch.equal(results[destination], torch.arange(length, dtype=torch.float32))
    assert torch.equal(results[source], torch.arange(length, dtype=torch.float32))
    on_the_way = {rank for way in ways for rank in way}
    for rank in set(range(4)) - on_the_way:
        assert torch.equal(results[rank], torch.arange(length, dtype=torch.float32) + 1000 * rank)


def test_parts_are_in_proportion_and_complete():
    parts = split(torch.arange(10), [3, 1, 1], [[0, 1]] * 3)
    assert [len(part) for part in parts] == [6, 2, 2]
    assert torch.equal(torch.cat(parts), torch.arange(10))
