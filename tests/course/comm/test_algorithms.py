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
from tests.course.comm import algorithm_bytes
from tests.marks import seldom

pytestmark = pytest.mark.slow

SIZES = (1, 5, 1001, 6720)  # fewer elements than ranks, odd ones, a multiple of 2 to 8


def metered(call, *args, **kwargs):
    with wire.meter() as m:
        call(*args, **kwargs)
    return m.report


def connected():
    """Open every connection: gloo may wait for the first use."""
    x = torch.empty(dist.get_world_size())
    dist.all_to_all_single(x, x.clone())


def rings():
    rank, reports = dist.get_rank(), {}
    connected()
    for numel in SIZES:
        tensor = pattern(rank, numel)
        reports["ring_all_reduce", numel] = metered(algorithms.ring_all_reduce, tensor)
        torch.testing.assert_close(tensor, total(dist.get_world_size(), numel))
    return reports


def halves():
    rank, n, reports = dist.get_rank(), dist.get_world_size(), {}
    connected()
    for part in SIZES:
        whole, mine = pattern(rank, part * n), torch.empty(part)
        reports["ring_reduce_scatter", part * n] = metered(
            algorithms.ring_reduce_scatter, mine, whole
        )
        assert torch.equal(mine, total(n, part * n).view(n, -1)[rank])
        assert torch.equal(whole, pattern(rank, part * n))
        reports["ring_all_gather", part * n] = metered(algorithms.ring_all_gather, whole, mine)
        assert torch.equal(whole, total(n, part * n))
    return reports


def judge(results, formula_args):
    if wire.unavailable():
        return
    for key in results[0]:
        name, args = formula_args(key)
        expected = 4 * getattr(algorithm_bytes, name)(*args)
        sent = wire.payload([reports[key] for reports in results])
        np.testing.assert_array_equal(sent, expected, err_msg=str(key))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, *map(seldom, [5, 7, 8])])
def test_the_ring_gives_the_sum_and_send_what_they_say(n):
    judge(launch(rings, world_size=n), lambda key: (key[0], (n, key[1])))


@pytest.mark.parametrize("n", [1, 3, seldom(8)])
def test_reduce_scatter_and_all_gather(n):
    judge(launch(halves, world_size=n), lambda key: (key[0], (n, key[1])))


@pytest.mark.parametrize("hosts, ranks_per_host", [(2, 3), (4, 2), (3, 1), (1, 4)])
def test_hierarchical(hosts, ranks_per_host):
    def program():
        rank, n = dist.get_rank(), dist.get_world_size()
        within, across = two_levels(ranks_per_host)
        for group in (within, across):
            dist.all_reduce(torch.ones(1), group=group)
        reports = {}
        for numel in (ranks_per_host, 1001 * ranks_per_host):
            tensor = pattern(rank, numel)
            reports[numel] = metered(
                algorithms.hierarchical_all_reduce, tensor, within=within, across=across
            )
            torch.testing.assert_close(tensor, total(n, numel))
        return reports

    results = launch(program, world_size=hosts * ranks_per_host)
    judge(results, lambda numel: ("hierarchical_all_reduce", (hosts, ranks_per_host, numel)))


def test_bad_sizes_are_refused_with_the_failed_equation():
    def program(algorithm):
        algorithm(torch.empty(3), torch.empty(7))

    with pytest.raises(ValueError, match=r"world_size 2 \* 3 .* != 7"):
        launch(program, algorithms.ring_reduce_scatter, world_size=2)
    with pytest.raises(ValueError, match="Rank 3 is out of range"):
        launch(two_levels, 2, world_size=3)


def test_they_work_inside_a_group_of_other_ranks():
    def program():
        group = dist.new_group([3, 1, 2])
        if dist.get_rank() == 0:
            return
        tensor = pattern(dist.get_rank(), 100)
        algorithms.ring_all_reduce(tensor, group=group)
        torch.testing.assert_close(tensor, sum(pattern(rank, 100) for rank in (1, 2, 3)))

    launch(program, world_size=4)
