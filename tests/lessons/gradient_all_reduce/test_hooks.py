import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from labkit import launch
from labkit.lessons.gradient_all_reduce.hooks import GradientBuckets


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3), nn.Linear(3, 2))


def loss_of(model, step):
    generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
    return model(torch.rand(4, 5, generator=generator)).square().sum()


def gradients_of(model):
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("caps", [(0, None), (80, 0), (None, None)])
def test_gradients_are_those_of_ddp(caps):
    def program():
        ours, theirs = network(), DistributedDataParallel(network())
        cap, first_cap = caps
        buckets = GradientBuckets(ours, cap=cap, first_cap=first_cap)
        largest = 0.0
        for step in range(3):
            buckets.zero()
            loss_of(ours, step).backward()
            buckets.finish()
            theirs.zero_grad()
            loss_of(theirs, step).backward()
            for a, b in zip(gradients_of(ours), gradients_of(theirs), strict=True):
                largest = max(largest, float((a - b).abs().max() / b.abs().max()))
        return largest

    assert max(launch(program, world_size=3)) < 1e-6


def test_gradients_stay_views_of_the_buckets():
    def program():
        model = network()
        buckets = GradientBuckets(model, cap=None, first_cap=None)
        loss_of(model, 0).backward()
        buckets.finish()
        (flat,) = buckets.flats
        return all(
            p.grad.untyped_storage().data_ptr() == flat.data_ptr() for p in model.parameters()
        )

    assert launch(program, world_size=2) == [True, True]


def test_no_sync_accumulates_and_the_next_step_sends_the_sum():
    def program():
        model, reference = network(), network()
        buckets = GradientBuckets(model, cap=80, first_cap=None)
        with buckets.no_sync():
            loss_of(model, 0).backward()
            buckets.finish()
        alone = gradients_of(model)
        loss_of(model, 1).backward()
        buckets.finish()
        (loss_of(reference, 0) + loss_of(reference, 1)).backward()
        expected = gradients_of(reference)
        for gradient in expected:
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()
        differ = float(sum(a.sum() for a in alone))
        close = all(
            torch.allclose(a, b, rtol=1e-5, atol=1e-6)
            for a, b in zip(gradients_of(model), expected, strict=True)
        )
        return differ, close

    results = launch(program, world_size=2)
    assert all(close for _, close in results)
    assert results[0][0] != results[1][0]  # in the block the ranks kept their own


def test_bfloat16_on_the_wire_is_close_and_half_the_bytes():
    def program():
        model, reference = network(), network()
        sent = []

        def start(name, begin, *, nbytes):
            sent.append(nbytes)
            return begin()

        buckets = GradientBuckets(
            model, cap=None, first_cap=None, compress=torch.bfloat16, start=start
        )
        exact = GradientBuckets(reference, cap=None, first_cap=None)
        for net, averaging in ((model, buckets), (reference, exact)):
            loss_of(net, 0).backward()
            averaging.finish()
        return sent[0] / buckets.flats[0].nbytes, float(
            (buckets.flats[0] - exact.flats[0]).norm() / exact.flats[0].norm()
        )

    for ratio, error in launch(program, world_size=2):
        assert ratio == 0.5
        assert 0 < error < 0.02


def test_a_parameter_without_gradient_is_named():
    def program():
        model = nn.ModuleDict({"used": nn.Linear(5, 2), "unused": nn.Linear(5, 2)})
        buckets = GradientBuckets(model, cap=0, first_cap=None)
        loss_of(model["used"], 0).backward()
        buckets.finish()

    with pytest.raises(RuntimeError, match=r"2 parameters got no gradient.*unused"):
        launch(program, world_size=2)


def test_a_gradient_that_left_its_bucket_is_named():
    def program():
        model = network()
        buckets = GradientBuckets(model)
        model.zero_grad(set_to_none=True)
        loss_of(model, 0).backward()
        buckets.finish()

    with pytest.raises(RuntimeError, match="has left its bucket"):
        launch(program, world_size=2)


def test_a_frozen_model_is_refused():
    def program():
        GradientBuckets(network().requires_grad_(False))

    with pytest.raises(ValueError, match="no parameter that requires"):
        launch(program, world_size=1)
