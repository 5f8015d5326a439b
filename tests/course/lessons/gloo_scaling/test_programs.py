"""Every way to sum with a partner, against torch.distributed's own all_reduce."""

import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from course.lessons.gloo_scaling import programs
from course.lessons.gloo_scaling.programs import SharedMemory, pair_group
from labkit import launch

pytestmark = pytest.mark.slow

SHAPES = [(10, 10), (1,), (3, 5, 7), (), (129,)]


def numbers(shape, turn):
    generator = torch.Generator().manual_seed(1000 * turn + dist.get_rank())
    return torch.randint(-99, 99, shape, generator=generator).float()


def compare():
    group = pair_group()
    for way in programs.WAYS.values():
        compare_one(way, group, SHAPES)
    compare_one(SharedMemory(group, (10, 10)), group, [(10, 10)] * 3)
    return dist.get_process_group_ranks(group)


def compare_one(way, group, shapes):
    for turn in range(3):
        tensors = [numbers(shape, turn) for shape in shapes]
        tensors[0] = tensors[0].t()  # not contiguous in memory
        expected = [tensor.clone() for tensor in tensors]
        for tensor in expected:
            dist.all_reduce(tensor, group=group)
        identities = [id(tensor) for tensor in tensors]
        assert way(tensors, group) is None
        assert [id(tensor) for tensor in tensors] == identities
        for got, wanted in zip(tensors, expected, strict=True):
            torch.testing.assert_close(got, wanted, rtol=0, atol=0)


def test_every_tensor_becomes_the_sum_of_consecutive_ranks():
    assert launch(compare, world_size=6) == [[0, 1], [0, 1], [2, 3], [2, 3], [4, 5], [4, 5]]


def test_an_odd_rank_has_no_partner():
    with pytest.raises(ValueError, match="even world_size, got 3"):
        launch(pair_group, world_size=3)


def test_shared_memory_leaves_no_names_behind(tmp_path):
    def program(folder):
        tempfile.tempdir = folder
        way = SharedMemory(pair_group(), (10, 10))  # the first partner made and removed the names
        way([torch.ones(10, 10)], None)
        return [path.name for path in Path(folder).iterdir()]

    assert launch(program, str(tmp_path), world_size=2)[0] == []
