"""Every way to sum with a partner, against torch.distributed's own all_reduce."""

import itertools
import os
import random
import tempfile
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from pytest import mark

from course.lessons.gloo_scaling import programs
from course.lessons.gloo_scaling.programs import SharedMemory, pair_group
from labkit import launch

SAME_SUMS = ["blocking", "one group", "async_op", "fused", "shared memory"]
SHAPES = [(10, 10), (1,), (3, 5, 7), (), (129,)]


def rank_data(dtype, turn=0):
    generator = torch.Generator().manual_seed(1000 * turn + dist.get_rank())
    return [torch.randint(-99, 99, s, generator=generator).to(dtype) for s in SHAPES]


def summed_by_gloo(tensors, group):
    for tensor in tensors:
        dist.all_reduce(tensor, group=group)
    return tensors


def compare(cases):
    group = pair_group()
    for name, dtype in cases:
        largest = torch.zeros(129, dtype=dtype)
        way = (
            SharedMemory(group, largest.nbytes) if name == "shared memory" else programs.WAYS[name]
        )
        compare_one(way, group, dtype)


def compare_one(way, group, dtype):
    for turn in range(3):
        tensors = rank_data(dtype, turn)
        tensors[0] = tensors[0].t()  # not contiguous in memory
        expected = summed_by_gloo([tensor.clone() for tensor in tensors], group)
        identities = [id(tensor) for tensor in tensors]
        assert way(tensors, group) is None
        assert [id(tensor) for tensor in tensors] == identities
        for got, wanted in zip(tensors, expected, strict=True):
            torch.testing.assert_close(got, wanted, rtol=0, atol=0)


@mark.parametrize("pairs", [1, 3])
def test_every_tensor_becomes_the_pairs_sum(pairs):
    cases = [(name, torch.float32) for name in SAME_SUMS]
    if pairs == 1:  # shared memory takes any dtype
        cases += [("shared memory", d) for d in (torch.int8, torch.float16, torch.float64)]
    launch(compare, cases, world_size=2 * pairs)


def test_accumulated_leaves_the_grand_total_in_the_first():
    def program():
        group = pair_group()
        tensors = [torch.full((4,), float(10 * dist.get_rank() + i)) for i in range(3)]
        programs.accumulated(tensors, group)
        return tensors[0].tolist()

    low, high = [0 + 1 + 2 + 10 + 11 + 12] * 4, [20 + 21 + 22 + 30 + 31 + 32] * 4
    assert launch(program, world_size=4) == [low, low, high, high]


def test_pairs_are_consecutive_ranks():
    def program():
        return dist.get_process_group_ranks(pair_group())

    assert launch(program, world_size=4) == [[0, 1], [0, 1], [2, 3], [2, 3]]


def test_an_odd_rank_has_no_partner():
    with pytest.raises(ValueError, match="even world_size, got 3"):
        launch(pair_group, world_size=3)


def test_shared_memory_for_many_turns_whoever_is_late():
    def program():
        me = dist.get_rank()
        group = pair_group()
        way = SharedMemory(group, nbytes=400)
        dice = random.Random(me)
        for slow, turn in itertools.product([(0,), (1,), (0, 1)], range(400)):
            tensors = [torch.full((10, 10), float(me + 2 * turn)), torch.full((7,), float(-turn))]
            if me in slow and dice.random() < 0.1:
                time.sleep(0.002)  # here it is late; also between its own two sums:
            way(tensors[:1], group)
            if me in slow and dice.random() < 0.1:
                time.sleep(0.002)
            way(tensors[1:], group)
            assert tensors[0].unique().tolist() == [1 + 4 * turn]
            assert tensors[1].unique().tolist() == [-2 * turn]

    launch(program, world_size=2)


def test_a_partner_that_reads_late_still_finds_what_was_written():
    """The slow one is stopped between being woken and reading: the fast one must not overwrite."""

    def program():
        me = dist.get_rank()
        group = pair_group()
        way = SharedMemory(group, nbytes=400)
        if me == 1:
            read, os.read = os.read, lambda *a: (read(*a), time.sleep(0.02))[0]
        for turn in range(20):
            tensor = torch.full((100,), float(turn))
            way([tensor], group)
            assert tensor.unique().tolist() == [2 * turn]

    launch(program, world_size=2)


def test_what_does_not_fit_into_a_slot_is_refused():
    def program():
        group = pair_group()
        SharedMemory(group, nbytes=400)([torch.ones(1000)], group)

    with pytest.raises(ValueError, match="4000 bytes does not fit into a slot of 448"):
        launch(program, world_size=2)


def test_shared_memory_leaves_no_names_behind():
    def program():
        group = pair_group()
        way = SharedMemory(group, nbytes=400)
        dist.barrier()
        time.sleep(0.05)  # the first partner removes the folder after the meeting
        way([torch.ones(3)], group)
        return sorted(path.name for path in Path(tempfile.gettempdir()).glob("tmp*"))

    before = sorted(path.name for path in Path(tempfile.gettempdir()).glob("tmp*"))
    left = set(launch(program, world_size=2)[0]) - set(before)
    assert left == set()
