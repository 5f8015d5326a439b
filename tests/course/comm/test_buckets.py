import pytest
import torch

from course.comm import buckets, shapes


@pytest.mark.parametrize("cap", [0, 10_000, 25 * buckets.MB, None])
def test_every_tensor_is_in_one_bucket_and_no_bucket_is_over_the_cap(cap):
    tensors = shapes.resnet50()
    plan = buckets.plan(tensors, cap=cap)
    assert sorted(p for b in plan for p in b.members) == list(range(len(tensors)))
    for bucket in plan:
        assert {tensors[p].dtype for p in bucket.members} == {bucket.dtype}
        assert bucket.nbytes == sum(tensors[p].nbytes for p in bucket.members)
        assert cap is None or bucket.nbytes <= cap or len(bucket.members) == 1
    assert len(plan) == {0: 320, None: 2}.get(cap, len(plan)), "one per tensor; one per dtype"


def test_reverse_order_and_what_just_fits_a_bucket_is_in_it():
    tensors = [torch.empty(nbytes, dtype=torch.uint8) for nbytes in (10, 40, 100, 5, 15, 50)]
    plan = buckets.plan(tensors, cap=50, reverse=True)
    assert [bucket.members for bucket in plan] == [(5,), (4, 3), (2,), (1, 0)]


def test_a_turned_tensor_is_flattened_in_its_own_order():
    assert buckets.flatten([torch.arange(6.0).view(2, 3).t()]).tolist() == [0, 3, 1, 4, 2, 5]


def test_tensors_in_one_buffer_are_flattened_without_a_copy():
    tensors = [torch.rand(shape) for shape in [(3, 5), (), (7,), (0,), (2, 1, 2)]]
    before = [t.clone() for t in tensors]
    buffer = buckets.as_one_buffer(tensors)
    assert all(map(torch.equal, tensors, before))
    flat = buckets.flatten(tensors)
    assert flat.data_ptr() == buffer.data_ptr()
    flat.zero_()
    assert all(not t.any() for t in tensors)


def test_tied_weights_are_not_torn_apart():
    weight = torch.ones(4)
    with pytest.raises(ValueError, match="share storage"):
        buckets.as_one_buffer([weight, weight.view(2, 2)])
    with pytest.raises(ValueError, match="one dtype"):
        buckets.as_one_buffer([weight, weight.double()])


@pytest.mark.parametrize(("count", "shared"), [(None, 3), (2, 2), (1, 1)])
def test_kept_buffers_are_the_same_again_and_take_turns(count, shared):
    plan = buckets.plan([torch.zeros(n) for n in (4, 2, 6)], cap=0)
    kept = buckets.Kept(count)
    _, *turns = [[kept.of(number, bucket) for number, bucket in enumerate(plan)] for _ in range(3)]
    assert [flat.numel() for flat in turns[0]] == [4, 2, 6]
    addresses = [[flat.data_ptr() for flat in flats] for flats in turns]
    assert addresses[0] == addresses[1] and len(set(addresses[0])) == shared
