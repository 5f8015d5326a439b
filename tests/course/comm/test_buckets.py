import pytest
import torch
import torch.distributed as dist

from course.comm import buckets, shapes
from labkit import launch


def test_every_tensor_is_in_one_bucket_and_no_bucket_is_over_the_cap():
    specs = shapes.resnet50()
    for cap in (0, 10_000, buckets.MB, 25 * buckets.MB):
        plan = buckets.plan(specs, cap=cap)
        assert sorted(p for b in plan for p in b.members) == list(range(len(specs)))
        for bucket in plan:
            assert {specs[p].dtype for p in bucket.members} == {bucket.dtype}
            assert bucket.nbytes == sum(specs[p].nbytes for p in bucket.members)
            assert bucket.nbytes <= cap or len(bucket.members) == 1
    assert len(buckets.plan(specs, cap=0)) == 320
    assert len(buckets.plan(specs, cap=None)) == 2  # one per dtype


def test_reverse_order():
    specs = shapes.vgg11()
    plan = buckets.plan(specs, cap=buckets.MB, reverse=True)
    assert plan[0].members == (21,)  # the last bias: the weight before it has 16 MB
    order = [place for bucket in plan for place in bucket.members]
    assert order == list(reversed(range(22)))
    assert max(plan, key=lambda b: b.nbytes).members == (16,)  # 411 MB, alone


def test_a_negative_cap_is_refused():
    with pytest.raises(ValueError, match="cap=-1"):
        buckets.plan([], cap=-1)


def tensors_of_odd_shapes():
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(shape, generator=generator) for shape in [(3, 5), (), (7,), (0,), (2, 1, 2)]]


def test_flatten_and_unflatten_are_inverse():
    tensors = tensors_of_odd_shapes()
    flat = buckets.flatten(tensors)
    assert flat.numel() == 15 + 1 + 7 + 0 + 4
    for tensor, piece in zip(tensors, buckets.unflatten(flat, tensors), strict=True):
        assert torch.equal(tensor, piece)
        assert piece.numel() == 0 or piece.untyped_storage().data_ptr() == flat.data_ptr()


def test_tensors_in_one_buffer_are_flattened_without_a_copy():
    tensors = tensors_of_odd_shapes()
    before = [t.clone() for t in tensors]
    buffer = buckets.as_one_buffer(tensors)
    assert all(torch.equal(t, b) for t, b in zip(tensors, before, strict=True))
    flat = buckets.flatten(tensors)
    assert flat.data_ptr() == buffer.data_ptr()
    flat.zero_()
    assert all(not t.any() for t in tensors)
    tensors[0].fill_(2.0)
    assert flat[:15].eq(2.0).all()


def test_neighbours_that_are_not_contiguous_are_copied():
    matrix = torch.arange(6.0).view(2, 3)
    assert buckets.flatten([matrix.t()]).tolist() == [0, 3, 1, 4, 2, 5]


def test_tied_weights_are_not_torn_apart():
    weight = torch.ones(4)
    with pytest.raises(ValueError, match="share storage"):
        buckets.as_one_buffer([weight, weight.view(2, 2)])
    with pytest.raises(ValueError, match="one dtype"):
        buckets.as_one_buffer([weight, weight.double()])


def mixed_tensors(rank: int):
    specs = shapes.resnet50(width=1 / 32)[:40]
    return [
        torch.full(spec.shape, 1000 * rank + place, dtype=getattr(torch, spec.dtype))
        for place, spec in enumerate(specs)
    ]


@pytest.mark.parametrize("world_size", [2, 3])
def test_broadcast_gives_everybody_the_source_values_for_any_cap(world_size):
    def program():
        wrong = 0
        for cap in (0, 500, None):
            for in_flight in (1, 2, 100):
                tensors = mixed_tensors(dist.get_rank())
                buckets.broadcast(tensors, cap=cap, src=1, in_flight=in_flight)
                expected = mixed_tensors(1)
                wrong += sum(not torch.equal(t, e) for t, e in zip(tensors, expected, strict=True))
        return wrong

    assert launch(program, world_size=world_size, checks=True) == [0] * world_size
