import itertools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from course.lessons.gradient_all_reduce.sync import AfterBackward, DuringBackward
from labkit import launch
from labkit.measure.trace import Tracer


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3), nn.Linear(3, 2))


def loss_of(model, step):
    generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
    return model(torch.rand(4, 5, generator=generator)).square().sum()


def gradients_of(model):
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_gradients_are_those_of_ddp():
    def off_by(way, cap):
        ours, theirs = way(network(), Tracer.aligned(), cap=cap), DistributedDataParallel(network())
        largest = 0.0
        for step in range(3):
            ours.model.zero_grad(set_to_none=False)
            assert ours.backward(loss_of(ours.model, step))
            theirs.zero_grad()
            loss_of(theirs, step).backward()
            for a, b in zip(gradients_of(ours.model), gradients_of(theirs), strict=True):
                largest = max(largest, float((a - b).abs().max() / b.abs().max()))
        return largest

    def program():
        cases = itertools.product((AfterBackward, DuringBackward), (0, 80, None))
        return max(off_by(*case) for case in cases)

    assert max(launch(program, world_size=3)) < 1e-6


def test_gradients_stay_views_of_the_buckets():
    def program():
        ours = DuringBackward(network(), Tracer.aligned(), cap=None)
        ours.backward(loss_of(ours.model, 0))
        (flat,) = ours.flats
        return all(
            p.grad.untyped_storage().data_ptr() == flat.data_ptr() for p in ours.model.parameters()
        )

    assert launch(program, world_size=2) == [True, True]


def test_micro_batches_accumulate_and_the_last_one_sends_the_sum():
    def program():
        ours = DuringBackward(network(), Tracer.aligned(), cap=80, micro_batches=2)
        reference = network()
        ready = [ours.backward(loss_of(ours.model, 0))]
        alone = gradients_of(ours.model)
        ready.append(ours.backward(loss_of(ours.model, 1)))
        (loss_of(reference, 0) + loss_of(reference, 1)).backward()
        expected = gradients_of(reference)
        for gradient in expected:
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()
        differ = float(sum(a.sum() for a in alone))
        close = all(
            torch.allclose(a, b, rtol=1e-5, atol=1e-6)
            for a, b in zip(gradients_of(ours.model), expected, strict=True)
        )
        return ready, differ, close

    results = launch(program, world_size=2)
    assert all(ready == [False, True] and close for ready, _, close in results)
    assert results[0][1] != results[1][1]  # before the last one the ranks kept their own


def test_a_parameter_without_gradient_is_named():
    def program():
        model = nn.ModuleDict({"used": nn.Linear(5, 2), "unused": nn.Linear(5, 2)})
        ours = DuringBackward(model, Tracer.aligned(), cap=0)
        ours.backward(loss_of(model["used"], 0))

    with pytest.raises(RuntimeError, match=r"2 parameters got no gradient.*unused"):
        launch(program, world_size=2)


def test_a_gradient_that_left_its_bucket_is_named():
    def program():
        ours = DuringBackward(network(), Tracer.aligned(), cap=None)
        ours.model.zero_grad(set_to_none=True)
        ours.backward(loss_of(ours.model, 0))

    with pytest.raises(RuntimeError, match="has left its bucket"):
        launch(program, world_size=2)
