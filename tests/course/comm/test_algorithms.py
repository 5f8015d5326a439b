"""Every algorithm against the expected sums, and against its formula in bytes, on real ranks."""

import numpy as np
import pytest
import torch
import torch.distributed as dist

from course.comm import algorithms
from course.comm.algorithms import two_levels
from course.comm.collectives import pattern, total
from labkit import launch
from labkit.measure import wire
from tests.marks import seldom

pytestmark = pytest.mark.slow

SIZES = (1, 5, 1001, 840)  # fewer elements than ranks, odd ones, a multiple of 2 to 8


def metered(call, *args, **kwargs):
    with wire.meter() as m:
        call(*args, **kwargs)
    return m.report


def connected(*groups):
    """Open every connection: gloo may wait for the first use."""
    x = torch.empty(dist.get_world_size())
    dist.all_to_all_single(x, x.clone())
    for group in groups:
        dist.all_reduce(torch.ones(1), group=group)


def ring(n):
    """Who sends (row) to whom (column) in a ring: each to its right-hand neighbour."""
    return np.roll(np.eye(n), 1, axis=1) if n > 1 else np.zeros((1, 1))


def judge(reports, elements):
    if not wire.unavailable():
        np.testing.assert_allclose(wire.payload(reports), 4 * elements)


def rings():
    """All three in turn; what each sent of the last size."""
    rank, n = dist.get_rank(), dist.get_world_size()
    connected()
    for numel in SIZES:
        tensor = pattern(rank, numel)
        all_reduced = metered(algorithms.ring_all_reduce, tensor)
        torch.testing.assert_close(tensor, total(n, numel))
    for part in SIZES:
        whole, mine = pattern(rank, part * n), torch.empty(part)
        scattered = metered(algorithms.ring_reduce_scatter, mine, whole)
        assert torch.equal(mine, total(n, part * n).view(n, -1)[rank])
        assert torch.equal(whole, pattern(rank, part * n))
        gathered = metered(algorithms.ring_all_gather, whole, mine)
        assert torch.equal(whole, total(n, part * n))
    return all_reduced, scattered, gathered


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, *map(seldom, [5, 7, 8])])
def test_rings_give_the_sum_and_send_what_they_say(n):
    all_reduced, scattered, gathered = zip(*launch(rings, world_size=n), strict=True)
    judge(all_reduced, 2 * (n - 1) / n * SIZES[-1] * ring(n))
    for half in (scattered, gathered):
        judge(half, (n - 1) * SIZES[-1] * ring(n))


@pytest.mark.parametrize("hosts, ranks_per_host", [(2, 3), (4, 2), (3, 1), (1, 4)])
def test_hierarchical(hosts, ranks_per_host):
    def program():
        rank, n = dist.get_rank(), dist.get_world_size()
        within, across = groups = two_levels(ranks_per_host)
        connected(*groups)
        for numel in (part * ranks_per_host for part in SIZES):
            tensor = pattern(rank, numel)
            summing = algorithms.hierarchical_all_reduce
            report = metered(summing, tensor, within=within, across=across)
            torch.testing.assert_close(tensor, total(n, numel))
        return report

    m, part = ranks_per_host, SIZES[-1]
    inside = 2 * (m - 1) * part * np.kron(np.eye(hosts), ring(m))
    between = 2 * (hosts - 1) / hosts * part * np.kron(ring(hosts), np.eye(m))
    judge(launch(program, world_size=hosts * m), inside + between)


def test_bad_sizes_are_refused_with_the_failed_equation():
    with pytest.raises(ValueError, match=r"world_size 2 \* 3 .* != 7"):
        launch(algorithms.ring_reduce_scatter, torch.empty(3), torch.empty(7), world_size=2)
    with pytest.raises(ValueError, match=r"world_size 2 \* 3 .* != 7"):
        launch(algorithms.ring_all_gather, torch.empty(7), torch.empty(3), world_size=2)
    with pytest.raises(ValueError, match="Rank 3 is out of range"):
        launch(two_levels, 2, world_size=3)
