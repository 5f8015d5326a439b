"""Right answers in several styles, and the usual wrong ones, each caught with its own message."""

import hashlib
import itertools
import math
import tempfile
import zlib
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed import all_gather_object as gather_objects
from torch.distributed import broadcast

from course.comm import buckets
from course.lessons.coalesced_broadcast import checks
from course.lessons.coalesced_broadcast.model import Coalescing
from tests.course.lessons.refusals import said


def caught(check, answer, words):
    assert words in said(check, answer)


# Exercise 3.1


def group(tensors, cap, *, size=lambda t: t.nbytes, fits=lambda held, cap: held <= cap):
    """Consecutive tensors of one dtype, as long as they fit: the statement's rule, or almost."""
    done, filling = [], {}
    for tensor in tensors:
        bucket = filling.setdefault(tensor.dtype, [])
        if bucket and not fits(sum(map(size, bucket)) + size(tensor), cap):
            done.append(list(bucket))
            bucket.clear()
        bucket.append(tensor)
    return done + list(filling.values())


def unpacked(flat, members):
    for tensor, piece in zip(members, flat.split([t.numel() for t in members]), strict=True):
        tensor.copy_(piece.view(tensor.shape))


def in_groups(grouping=group, *, pack=lambda t: t.reshape(-1), unpack=unpacked, **options):
    def coalesce(tensors, cap, src):
        for members in grouping(tensors, cap, **options):
            flat = torch.cat([pack(t) for t in members])
            dist.broadcast(flat, src=src)
            unpack(flat, members)

    return coalesce


def two_on_their_way(tensors, cap, src):
    """Imported by name, asynchronous, and lone tensors in place."""
    flying = []
    for members in group(tensors, cap):
        if len(members) == 1 and members[0].is_contiguous():
            broadcast(members[0], src=src, async_op=True).wait()
            continue
        flat = torch.cat([t.reshape(-1) for t in members])
        flying.append((broadcast(flat, src, async_op=True), flat, members))
        if len(flying) == 2:
            work, *rest = flying.pop(0)
            work.wait()
            unpacked(*rest)
    for work, *rest in flying:
        work.wait()
        unpacked(*rest)


def dtype_by_dtype(tensors, cap, src):
    """One dtype after the other; a buffer that is filled by slices; futures."""
    for dtype in dict.fromkeys(t.dtype for t in tensors):
        for members in group([t for t in tensors if t.dtype == dtype], cap):
            flat = torch.empty(sum(t.numel() for t in members), dtype=dtype)
            ends = [0, *itertools.accumulate(t.numel() for t in members)]
            if dist.get_rank() == src:
                for t, begin, end in zip(members, ends, ends[1:], strict=False):
                    flat[begin:end] = t.flatten()
            broadcast(flat, src=src, async_op=True).get_future().wait()
            for t, begin, end in zip(members, ends, ends[1:], strict=False):
                t[...] = flat[begin:end].view_as(t)


@pytest.mark.parametrize("answer", [in_groups(), two_on_their_way, dtype_by_dtype])
def test_right_coalesces(answer, capsys):
    checks.check_coalesce(answer)
    assert "3.1 passed" in capsys.readouterr().out


def cast(tensors, cap, src):
    flat = torch.cat([t.reshape(-1).float() for t in tensors] or [torch.zeros(0)])
    dist.broadcast(flat, src=src)
    unpacked(flat, tensors)


def in_half_precision(tensors, cap, src):
    for members in group(tensors, cap):
        flat = torch.cat([t.reshape(-1) for t in members])
        half = flat.half() if flat.is_floating_point() else flat
        dist.broadcast(half, src=src)
        unpacked(half, members)


def first_fit(tensors, cap):
    done = []
    for tensor in tensors:
        for members in done:
            same = members[0].dtype == tensor.dtype
            if same and sum(t.nbytes for t in members) + tensor.nbytes <= cap:
                members.append(tensor)
                break
        else:
            done.append([tensor])
    return done


def replaced(flat, members):
    for tensor, piece in zip(members, flat.split([t.numel() for t in members]), strict=True):
        tensor.data = piece.view(tensor.shape)


def by_objects(tensors, cap, src):
    box = [[t.clone() for t in tensors]]
    dist.broadcast_object_list(box, src=src)
    for tensor, value in zip(tensors, box[0], strict=True):
        tensor.copy_(value)


def gathered_then_dummies(tensors, cap, src):
    boxes = [None] * dist.get_world_size()
    dist.all_gather_object(boxes, [t.clone() for t in tensors])
    for tensor, value in zip(tensors, boxes[src], strict=True):
        tensor.copy_(value)
    for members in group(tensors, cap):
        dist.broadcast(torch.cat([t.reshape(-1) for t in members]), src=src)


def with_a_barrier(tensors, cap, src):
    in_groups()(tensors, cap, src)
    dist.barrier()


def by_values(tensors, cap, src):
    for members in group(tensors, cap):
        flat = torch.cat([t.reshape(-1) for t in members])
        if flat.any():
            dist.broadcast(flat, src=src)
            unpacked(flat, members)


def never_waiting(tensors, cap, src):
    for members in group(tensors, cap):
        flat = torch.cat([t.reshape(-1) for t in members])
        work = dist.broadcast(flat, src=src, async_op=True)
        work.get_future()
        dist.broadcast(flat, src=src)
        unpacked(flat, members)


def in_memory_order(tensor):
    return tensor.as_strided((tensor.numel(),), (1,))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (in_groups(lambda tensors, cap: [tensors] if tensors else []), "may not exceed the cap"),
        (in_groups(size=lambda t: t.numel()), "the cap is in bytes, not in elements"),
        (lambda tensors, cap, src: in_groups()(tensors, 2 * cap, src), "not half of it"),
        (in_groups(fits=lambda held, cap: held < cap), "a bucket may be exactly full"),
        (in_groups(first_fit), "nothing joins it later"),
        (in_groups(lambda tensors, cap: [[t] for t in tensors]), "put in tensors until the next"),
        (cast, "may not exceed the cap"),
        (in_half_precision, "half precision on the wire"),
        (in_groups(unpack=lambda flat, members: None), "copy the buffer back into it"),
        (in_groups(unpack=replaced), "do not replace its data"),
        (in_groups(pack=in_memory_order), "this tensor is transposed"),
        (lambda tensors, cap, src: in_groups()(tensors, cap, 0), "it came from rank 0"),
        (with_a_barrier, "nothing else has to be sent"),
        (by_objects, "of a pickled object"),
        (gathered_then_dummies, "nothing else has to be sent"),
        (never_waiting, "wait for each work before you unpack"),
        (lambda tensors, cap, src: None, "no broadcast was made"),
        (
            lambda tensors, cap, src: buckets.broadcast(tensors, cap=cap, src=src),
            "an answer of your own",
        ),
    ],
)
def test_wrong_coalesces(answer, words):
    caught(checks.check_coalesce, answer, words)


def test_a_broadcast_that_depends_on_values_hangs_and_is_named(monkeypatch):
    zeros = "a source of zeros"
    monkeypatch.setattr(checks, "_SETS", {zeros: checks._SETS[zeros]})
    monkeypatch.setattr(checks, "SECONDS", 3.0)
    caught(checks.check_coalesce, by_values, "never on values or on the rank")


# Exercise 3.2


def grouped(nbytes, cap, *, fits=lambda held, cap: held <= cap):
    done = []
    for size in nbytes:
        if done and fits(sum(done[-1]) + size, cap):
            done[-1].append(size)
        else:
            done.append([size])
    return done


def by_three_clocks(nbytes, cap, alpha, beta, copy):
    packed = sent = unpacked = 0.0
    peak = before = 0
    for bucket in grouped(nbytes, cap):
        b = sum(bucket)
        buffer = b if len(bucket) > 1 else 0
        packed += copy * buffer
        sent = max(packed, sent) + alpha + beta * b
        unpacked = max(sent, unpacked) + copy * buffer
        peak, before = max(peak, before + buffer), buffer
    return unpacked, peak


def by_columns(nbytes, cap, alpha, beta, copy):
    """The longest way through the table of stages and buckets."""
    groups = grouped(nbytes, cap)
    copies = [copy * sum(g) * (len(g) > 1) for g in groups]
    ends = [0.0] * len(groups)
    for stage in (copies, [alpha + beta * sum(g) for g in groups], copies):
        free = 0.0
        for k, seconds in enumerate(stage):
            free = ends[k] = max(free, ends[k]) + seconds
    buffers = [0, *(sum(g) * (len(g) > 1) for g in groups)]
    return (ends or [0.0])[-1], max(map(sum, itertools.pairwise(buffers)), default=0)


def recursively(nbytes, cap, alpha, beta, copy):
    groups = grouped(nbytes, cap)
    table = {}
    for k, stage in itertools.product(range(len(groups)), range(3)):
        b, alone = sum(groups[k]), len(groups[k]) == 1
        cost = alpha + beta * b if stage == 1 else 0.0 if alone else copy * b
        start = max(table.get((k - 1, stage), 0.0), table.get((k, stage - 1), 0.0))
        table[k, stage] = start + cost
    buffers = [sum(g) if len(g) > 1 else 0 for g in groups]
    peak = max((sum(buffers[k : k + 2]) for k in range(len(buffers))), default=0)
    return table.get((len(groups) - 1, 2), 0.0), peak


@pytest.mark.parametrize("answer", [by_three_clocks, by_columns, recursively])
def test_right_prices(answer, capsys):
    checks.check_price(answer)
    assert "3.2 passed" in capsys.readouterr().out


def priced(seconds=None, peak=None):
    def price(nbytes, cap, alpha, beta, copy):
        right = by_three_clocks(nbytes, cap, alpha, beta, copy)
        case = (nbytes, cap, alpha, beta, copy)
        return (seconds(*case) if seconds else right[0], peak(*case) if peak else right[1])

    return price


def added_up(nbytes, cap, alpha, beta, copy):
    groups = grouped(nbytes, cap)
    wire = sum(alpha + beta * sum(g) for g in groups)
    return wire + 2 * copy * sum(sum(g) for g in groups if len(g) > 1)


def lone_copied(nbytes, cap, alpha, beta, copy):
    packed = sent = unpacked = 0.0
    for b in map(sum, grouped(nbytes, cap)):
        packed += copy * b
        sent = max(packed, sent) + alpha + beta * b
        unpacked = max(sent, unpacked) + copy * b
    return unpacked


def without_unpacking(nbytes, cap, alpha, beta, copy):
    packed = sent = 0.0
    for g in grouped(nbytes, cap):
        packed += copy * sum(g) * (len(g) > 1)
        sent = max(packed, sent) + alpha + beta * sum(g)
    return sent


def unpacking_afterwards(nbytes, cap, alpha, beta, copy):
    rest = sum(copy * sum(g) for g in grouped(nbytes, cap) if len(g) > 1)
    return without_unpacking(nbytes, cap, alpha, beta, copy) + rest


def formula(nbytes, cap, alpha, beta, copy):
    return sum(nbytes) / max(cap, 1) * alpha + sum(nbytes) * beta + 2 * copy * cap


def not_full(nbytes, cap, alpha, beta, copy):
    return by_three_clocks(nbytes, max(cap - 1, 0), alpha, beta, copy)[0]


def of_packed(choose):
    return lambda nbytes, cap, *_: choose([sum(g) for g in grouped(nbytes, cap) if len(g) > 1])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (priced(added_up), "the three phases do not simply add up"),
        (priced(lone_copied), "sent from where it lies, without a copy"),
        (priced(without_unpacking), "the receivers unpack, too"),
        (priced(unpacking_afterwards), "unpacking runs beside the next bucket's way"),
        (priced(lambda n, c, a, b, k: by_three_clocks(n, c, 0, b, k)[0]), "every broadcast pays"),
        (priced(lambda n, *rest: by_three_clocks(sorted(n), *rest)[0]), "do not sort them"),
        (priced(not_full), "a bucket may be exactly full"),
        (priced(formula), "the formula for very many, very small tensors"),
        (priced(lambda *_: 1.0), "draw three lines"),
        (priced(peak=lambda nbytes, cap, *_: cap), "look at what two neighbours really hold"),
        (priced(peak=lambda nbytes, cap, *_: 2 * cap), "buckets may hold less"),
        (priced(peak=of_packed(lambda sizes: max(sizes, default=0))), "two buckets are on their"),
        (priced(peak=of_packed(sum)), "given back when its bucket is unpacked"),
        (priced(peak=of_packed(lambda sizes: sum(sorted(sizes)[-2:]))), "need not be neighbours"),
        (lambda *_: None, "ends without `return`"),
        (lambda *case: by_three_clocks(*case)[0], "another type was returned"),
        (
            lambda nbytes, cap, *rest: (Coalescing(*rest).seconds(grouped(nbytes, cap)), 0),
            "an answer of your own",
        ),
    ],
)
def test_wrong_prices(answer, words):
    caught(checks.check_price, answer, words)


# Exercise 3.3


def gathered(value):
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, value)
    return everybody


def bits(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def alike(fingerprint):
    return lambda tensors: len(set(gathered(fingerprint(tensors)))) == 1


def sha(tensors):
    return hashlib.sha256(b"".join(map(bits, tensors))).digest()


def by_tensors(tensors):
    """all_gather of eight-byte fingerprints in tensors."""
    digest = hashlib.blake2b(digest_size=8)
    for t in tensors:
        digest.update(bits(t))
    mine = torch.frombuffer(bytearray(digest.digest()), dtype=torch.int64)
    everybody = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, mine)
    return all(torch.equal(one, mine) for one in everybody)


def by_a_vote(tensors):
    """Compare with rank 0's fingerprint; then one no is a no for all."""
    mine = torch.tensor([int.from_bytes(sha(tensors)[:7], "big")])
    first = mine.clone()
    dist.broadcast(first, 0)
    vote = torch.tensor([int(mine.item() == first.item())])
    dist.all_reduce(vote, op=dist.ReduceOp.MIN)
    return bool(vote.item())


def by_name(tensors):
    everybody = [None] * dist.get_world_size()
    gather_objects(everybody, [hashlib.md5(bits(t)).hexdigest() for t in tensors])
    return all(one == everybody[0] for one in everybody)


@pytest.mark.parametrize("answer", [alike(sha), by_tensors, by_a_vote, by_name])
def test_right_comparisons(answer, capsys):
    checks.check_same_everywhere(answer)
    assert "3.3 passed" in capsys.readouterr().out


def by_state(equal):
    def same(tensors):
        everybody = gathered([t.clone() for t in tensors])
        return all(
            len(state) == len(everybody[0])
            and all(equal(a, b) for a, b in zip(state, everybody[0], strict=True))
            for state in everybody
        )

    return same


def first_and_last(tensors):
    prints = gathered(sha(tensors))
    return prints[0] == prints[-1]


def only_rank_0_knows(tensors):
    same = alike(sha)(tensors)
    return same if dist.get_rank() == 0 else True


def clearing(tensors):
    same = alike(sha)(tensors)
    for t in tensors:
        t.zero_()
    return same


def through_files(tensors):
    folder = Path(tempfile.gettempdir())
    path = folder / f"labkit-test-{dist.get_rank()}"
    path.write_bytes(b"".join(map(bits, tensors)))
    dist.barrier()
    same = all(
        (folder / f"labkit-test-{rank}").read_bytes() == path.read_bytes()
        for rank in range(dist.get_world_size())
    )
    dist.barrier()
    path.unlink()
    return same


def sums(tensors):
    real = [t for t in tensors if t.is_floating_point()]
    whole = [int(t.sum()) for t in tensors if not t.is_floating_point()]
    return sum(float(t.nan_to_num().double().sum()) for t in real), sum(whole)


def sorted_digests(tensors):
    return b"".join(sorted(hashlib.sha256(bits(t)).digest() for t in tensors))


def sixteen_bits(tensors):
    return zlib.crc32(b"".join(map(bits, tensors))) & 0xFFFF


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (alike(sums), "sums and XORs do not see it"),
        (alike(sorted_digests), "the order must count"),
        (by_state(torch.equal), "NaN is not equal to itself"),
        (by_state(lambda a, b: torch.allclose(a, b, equal_nan=True)), "no tolerance, no rounding"),
        (alike(lambda ts: sha([t.nan_to_num() for t in ts])), "a NaN has bits, too"),
        (alike(lambda ts: b"".join(map(bits, ts))), "whole tensors are sent"),
        (alike(lambda ts: sha([t.float() for t in ts])), "large integers must stay integers"),
        (alike(lambda ts: sha([t.as_strided((t.numel(),), (1,)) for t in ts])),
         "take the bytes of a contiguous copy"),
        (alike(lambda ts: hash(b"".join(map(bits, ts)))), "differs between processes"),
        (alike(sixteen_bits), "the fingerprint is too short"),
        (first_and_last, "compare every rank, not the first and the last"),
        (only_rank_0_knows, "the ranks do not agree"),
        (clearing, "do not change it"),
        (through_files, "the state is not to travel"),
        (lambda tensors: False, "it says False whatever the state is"),
        (lambda tensors: True, "it says True whatever the state is"),
        (lambda tensors: None, "ends without `return`"),
    ],
)  # fmt: skip
def test_wrong_comparisons(answer, words):
    caught(checks.check_same_everywhere, answer, words)


def test_an_unattempted_exercise_says_so():
    def stub(*_):
        raise NotImplementedError("exercise 3.1")

    with pytest.raises(NotImplementedError, match=r"exercise 3\.1"):
        checks.check_coalesce(stub)


def test_the_lessons_model_is_the_exercises():
    case = ([30, 30, 500, 30, 30], 100, 1e-3, 1e-5, 2e-6)
    seconds, _ = by_three_clocks(*case)
    assert math.isclose(Coalescing(*case[2:]).seconds(grouped(*case[:2])), seconds)
