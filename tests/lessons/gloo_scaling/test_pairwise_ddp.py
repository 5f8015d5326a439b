"""Partners' sums through DDP, against torch.distributed's own all_reduce."""

import torch
import torch.distributed as dist
from labkit.lessons.gloo_scaling.pairwise import Pair
from labkit.lessons.gloo_scaling.pairwise_ddp import ThroughDDP
from pytest import mark
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

from labkit import launch

SHAPES = [(10, 10), (1,), (3, 5, 7), ()]


def sums_and_oracle(hook, scale):
    rank = dist.get_rank()
    pair = Pair.of(rank, dist.get_world_size())
    generator = torch.Generator().manual_seed(rank)
    results = []
    way = None
    for _ in range(3):  # DDP rebuilds its buckets after the first backward pass
        tensors = [torch.randint(-100, 100, shape, generator=generator) * scale for shape in SHAPES]
        expected = [tensor.clone() for tensor in tensors]
        for tensor in expected:
            dist.all_reduce(tensor, group=pair.group)
        way = way or ThroughDDP(tensors, pair, hook)
        way(tensors, pair)
        results.append((tensors, expected))
    return results


@mark.parametrize("hook", [None, fp16_compress_hook])
def test_every_tensor_is_summed_with_the_partners_every_time(hook):
    for rounds in launch(sums_and_oracle, hook, 1.0, world_size=4):
        for got, expected in rounds:
            torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_the_hook_rounds_to_sixteen_bits():
    tenth = torch.tensor(0.1).item()
    [rounds, _] = launch(sums_and_oracle, fp16_compress_hook, tenth, world_size=2)
    for got, expected in rounds:
        torch.testing.assert_close(got, expected, rtol=2e-3, atol=2e-2)
    got, expected = (torch.cat([x.reshape(-1) for x in side]) for side in rounds[0])
    assert not torch.equal(got, expected), "nothing was rounded: was the hook called?"
