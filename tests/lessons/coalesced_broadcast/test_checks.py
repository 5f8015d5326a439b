"""The usual mistakes in lesson 3's exercises, each caught with its own message."""

import hashlib

import pytest
import torch
import torch.distributed as dist

from labkit.comm import buckets
from labkit.course.checking import CheckFailed
from labkit.lessons.coalesced_broadcast import checks


def caught(check, answer, words):
    with pytest.raises(CheckFailed) as failure:
        check(answer)
    assert words in str(failure.value).replace("\n                ", " ")


def coalesced(*, cast=False, back=True, flatten=None, replace=False):
    def coalesce(tensors, cap, src):
        groups = [list(tensors)] if cast else None
        if groups is None:
            plan = buckets.plan(tensors, cap=cap)
            groups = [[tensors[place] for place in bucket.members] for bucket in plan]
        for members in groups:
            pieces = [(flatten or (lambda t: t.reshape(-1)))(t) for t in members]
            flat = torch.cat([p.float() for p in pieces] if cast else pieces)
            dist.broadcast(flat, src=src)
            for t, piece in zip(members, flat.split([t.numel() for t in members]), strict=True):
                if replace:
                    t.data = piece.view(t.shape)
                elif back:
                    t.copy_(piece.view(t.shape))

    return coalesce


def one_by_one(tensors, cap, src):
    for tensor in tensors:
        whole = tensor.contiguous()
        dist.broadcast(whole, src=src)
        tensor.copy_(whole)


def in_memory_order(tensor):
    return tensor.as_strided((tensor.numel(),), (1,))


def no_call_at_all(tensors, cap, src):
    boxes = [None] * dist.get_world_size()
    dist.all_gather_object(boxes, [tensor.clone() for tensor in tensors])
    for tensor, value in zip(tensors, boxes[src], strict=True):
        tensor.copy_(value)


def always_from_rank_0(tensors, cap, src):
    coalesced()(tensors, cap, 0)


def test_a_right_coalesce_passes(capsys):
    checks.check_coalesce(coalesced())
    assert "3.1 passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (coalesced(cast=True), "went through float32"),
        (coalesced(back=False), "copy the buffer back into it"),
        (coalesced(replace=True), "do not replace its data"),
        (coalesced(flatten=in_memory_order), "this tensor is transposed"),
        (one_by_one, "a bucket is sent with one call"),
        (no_call_at_all, "so that it can be counted"),
        (always_from_rank_0, "it has rank 0's values"),
    ],
)
def test_wrong_coalesces(answer, words):
    caught(checks.check_coalesce, answer, words)


def right_cap(nbytes, caps, alpha, beta, copy):
    return min(caps, key=lambda cap: checks.seconds(nbytes, cap, alpha, beta, copy))


def phases_added_up(nbytes, caps, alpha, beta, copy):
    def seconds(cap):
        total, held, count, calls = 0.0, 0, 0, 0
        for size in [*nbytes, float("inf")]:
            if count and held + size > cap:
                calls += 1
                total += 2 * copy * held if count > 1 else 0.0
                held = count = 0
            held, count = held + size, count + 1
        return total + calls * alpha + beta * sum(nbytes)

    return min(caps, key=seconds)


def test_a_right_cap_passes(capsys):
    checks.check_best_cap(right_cap)
    assert "3.2 passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (phases_added_up, "the three phases do not simply add up"),
        (lambda nbytes, caps, *_: max(caps), "fewest calls is not all"),
        (lambda nbytes, caps, *_: min(caps), "pays alpha for every tensor"),
        (lambda nbytes, caps, *_: 0.123, "return a cap, not a time"),
    ],
)
def test_wrong_caps(answer, words):
    caught(checks.check_best_cap, answer, words)


def gathered(value):
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, value)
    return everybody


def bits(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def by_hash(tensors):
    sha = hashlib.sha256(b"".join(map(bits, tensors)))
    return len(set(gathered(sha.digest()))) == 1


def by_sum(tensors):
    return len(set(gathered(sum(float(t.nan_to_num().double().sum()) for t in tensors)))) == 1


def by_sorted_hashes(tensors):
    hashes = sorted(hashlib.sha256(bits(t)).digest() for t in tensors)
    return len(set(gathered(b"".join(hashes)))) == 1


def by_values(tensors):
    everybody = gathered([t.clone() for t in tensors])
    return all(
        torch.equal(a, b) for state in everybody for a, b in zip(state, everybody[0], strict=True)
    )


def with_tolerance(tensors):
    everybody = gathered([t.clone() for t in tensors])
    return all(
        torch.allclose(a, b, equal_nan=True)
        for state in everybody
        for a, b in zip(state, everybody[0], strict=True)
    )


def whole_state(tensors):
    return len(set(gathered(b"".join(map(bits, tensors))))) == 1


def through_float32(tensors):
    sha = hashlib.sha256(b"".join(bits(t.float()) for t in tensors))
    return len(set(gathered(sha.digest()))) == 1


def memory_as_it_lies(tensors):
    lying = [t.as_strided((t.numel(),), (1,)) for t in tensors]
    return by_hash(lying)


def only_rank_0_knows(tensors):
    same = by_hash(tensors)
    return same if dist.get_rank() == 0 else True


def test_a_right_comparison_passes(capsys):
    checks.check_same_everywhere(by_hash)
    assert "3.3 passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (by_sum, "sums and XORs do not see it"),
        (by_sorted_hashes, "the order must count"),
        (by_values, "NaN is not equal to itself"),
        (with_tolerance, "no tolerance, no rounding"),
        (whole_state, "whole tensors are sent"),
        (through_float32, "large integers must stay integers"),
        (memory_as_it_lies, "take the bytes of a contiguous copy"),
        (only_rank_0_knows, "two tensors swapped"),
        (lambda tensors: None, "ends without `return`"),
    ],
)
def test_wrong_comparisons(answer, words):
    caught(checks.check_same_everywhere, answer, words)


def test_an_unattempted_exercise_says_so():
    def stub(*_):
        raise NotImplementedError("exercise 3.1")

    with pytest.raises(NotImplementedError, match=r"exercise 3\.1"):
        checks.check_coalesce(stub)
