"""Checks of lesson 6: collectives by hand, judged on values and on every cost; two verdicts.

A function is tried on data that differ by rank and place, on lengths that do not divide by the
ranks, and on world sizes that are no powers of two. What a wrong sum lacks or has twice is found
out, so that the message can name the mistake.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from labkit.comm.costs import ALL_REDUCES
from labkit.course import checking
from labkit.course.checking import CheckFailed
from labkit.measure import memory, wire
from labkit.measure.records import bus_factor
from labkit.measure.rounds import rounds

ITEM = 4  # bytes of a float32
CHOICES = ("ring", "tree", "doubling", "halving-doubling")


def check_ring_all_reduce(ring_all_reduce: Callable[[torch.Tensor], None]) -> None:
    """Judge exercise 6.1: `ring_all_reduce(tensor)` sums in place over all ranks."""
    par = "1.5 S sent per rank, 6 messages and 0.5 S of scratch on 4 ranks"
    with checking.exercise("6.1", par=par) as verdict:
        for n in (2, 3, 5):
            _right_sums(ring_all_reduce, n, lengths=(60 * n, 60 * n + 1, 7, 1))
        n, numel = 4, 4000
        runs = _right_sums(ring_all_reduce, n, lengths=(numel, 4001, 3))
        shares, how = _shares_sent(runs, numel)
        checking.at_most(
            max(shares),
            2 * (n - 1) / n,
            what="sent by the busiest rank",
            unit="S",
            meaning="the values are right, but a ring sends 2(n-1)/n S; (n-1) S means that whole "
            "tensors go around instead of chunks, and 2(n-1) S on one rank that it serves all",
        )
        messages = max(sum(call.kind == "send" for call in run["report"].calls) for run in runs)
        checking.at_most(
            messages,
            2 * (n - 1),
            what="messages sent by the busiest rank",
            unit="messages",
            meaning="more messages than rounds: each of the 2(n-1) rounds sends one chunk",
        )
        peak = max(run["peak"] for run in runs) / (numel * ITEM)
        checking.at_most(
            peak,
            2 / n,
            what="scratch memory",
            unit="S",
            meaning="a copy of the whole tensor; one chunk to receive into is enough, and "
            "tensor_split gives views",
        )
        verdict.reached = f"{max(shares):.4g} S {how}, {messages} messages, {peak:.2f} S of scratch"


def check_pipelined_broadcast(pipelined_broadcast: Callable[..., None]) -> None:
    """Judge exercise 6.2: `pipelined_broadcast(tensor, src=0, chunks=8)`."""
    n, chunks, numel = 4, 8, 803
    with checking.exercise("6.2", par=f"{chunks + n - 2} rounds, S per link") as verdict:
        for world_size, src in ((n, 0), (n, 2), (3, 1)):
            results = checking.on_ranks(
                _broadcast, pipelined_broadcast, numel, src, chunks, world_size=world_size
            )
            for rank, run in enumerate(results):
                checking.same_values(
                    run["tensor"],
                    checking.rank_data(numel, rank=src),
                    what=f"rank {rank} of {world_size}, src={src}",
                    meaning="the chain starts at src and ends at the rank before it, counted "
                    "modulo n; and the last piece is shorter when chunks do not divide",
                )
            if (world_size, src) == (n, 0):
                runs = results
        shares, how = _shares_sent(runs, numel)
        checking.at_most(
            max(shares),
            1.0,
            what="sent by the busiest rank",
            unit="S",
            meaning="a chain passes each piece on once; more means that one rank, probably the "
            "root, sends to several",
        )
        largest = max(call.nbytes for run in runs for call in run["report"].calls)
        checking.at_most(
            largest / ITEM,
            math.ceil(numel / chunks),
            what="largest message",
            unit="elements",
            meaning="the tensor is not cut into `chunks` pieces",
        )
        took = len(rounds([run["report"] for run in runs]))
        checking.at_most(
            took,
            chunks + n - 2,
            what="rounds",
            unit="rounds",
            meaning="a rank waits for more than the piece that it passes on: it collects all "
            "pieces first, or waits for a send before it receives the next piece",
        )
        verdict.reached = f"{took} rounds, {max(shares):.4g} S {how}"


def check_recursive_doubling(recursive_doubling: Callable[[torch.Tensor], None]) -> None:
    """Judge exercise 6.3: `recursive_doubling(tensor)` sums in place, for any world size."""
    with checking.exercise("6.3", par="2 rounds on 4 ranks, 4 rounds on 6") as verdict:
        by_size = {n: _right_sums(recursive_doubling, n, lengths=(64, 7)) for n in (2, 4)}
        for n in (3, 6):
            try:
                by_size[n] = _right_sums(recursive_doubling, n, lengths=(64, 7))
            except NotImplementedError:
                raise
            except Exception as failure:
                raise CheckFailed(
                    f"the sum on {n} ranks, as on 2 and 4",
                    getattr(failure, "got", None) or f"{type(failure).__name__}: {failure}",
                    "it works for powers of two only. Let each rank beyond the largest power of "
                    "two hand its tensor to a partner first, and get the result back at the end",
                ) from None
        reached = []
        for n in (4, 6):
            took = len(rounds([run["report"] for run in by_size[n]]))
            checking.at_most(
                took,
                ALL_REDUCES["doubling"](n).rounds,
                what=f"rounds on {n} ranks",
                unit="rounds",
                meaning="a ring or a tree in disguise, or two exchanges where one will do: in "
                "round k every rank swaps its whole sum with the rank 2**k away",
            )
            reached.append(f"{took} rounds on {n}")
        verdict.reached = ", ".join(reached)


def check_audit(audit: Callable[..., tuple[float, str]]) -> None:
    """Judge exercise 6.4: `audit(collective, nbytes, n, seconds, link)` -> (busbw, verdict)."""
    with checking.exercise("6.4", par="every verdict right") as verdict:
        cases = _claims()
        for collective, nbytes, n, seconds, link in cases:
            claim = f"{collective} of {nbytes / 1e9:.4g} GB on {n} ranks in {seconds * 1e3:.4g} ms"
            answer = audit(collective, nbytes, n, seconds, link)
            if not isinstance(answer, tuple) or len(answer) != 2:
                raise CheckFailed(
                    f"{claim}: a pair (busbw, verdict)", repr(answer), "the return value's shape"
                )
            checking.close_to(
                answer[0],
                nbytes / seconds * bus_factor(collective, n),
                within=0.001,
                what=f"busbw of {claim}",
                unit="bytes/s",
                meaning="busbw = S / t x factor: 2(n-1)/n for all_reduce, (n-1)/n for "
                "reduce_scatter and all_gather, 1 for broadcast and reduce; S in bytes, "
                "seconds in seconds",
            )
            expected = _verdict(collective, nbytes, n, seconds, link)
            if answer[1] != expected:
                raise CheckFailed(
                    f"{claim}, link {link / 1e9:.0f} GB/s: {expected!r}",
                    repr(answer[1]),
                    "a switch that adds lets an all_reduce send S per link instead of "
                    "2(n-1)/n S, so busbw may exceed the link; S/t may not, and no other "
                    "collective has that excuse",
                )
        verdict.reached = f"{len(cases)} of {len(cases)} verdicts"


def check_choose(choose: Callable[..., str]) -> None:
    """Judge exercise 6.5: `choose(n, nbytes, alpha, beta)` names the fastest all_reduce."""
    with checking.exercise("6.5", par="never more than 1 % slower than the best") as verdict:
        grid = list(
            itertools.product(
                (8, 64, 1024, 2, 4, 3, 6, 100, 1000), [2**k for k in range(2, 33, 3)],
                (1e-6, 5e-5), (1 / 5e10, 1 / 1e8),
            )
        )  # fmt: skip
        for n, nbytes, alpha, beta in grid:
            name = choose(n, nbytes, alpha, beta)
            case = f"n={n}, S={nbytes}, alpha={alpha:g} s, {1 / beta / 1e9:g} GB/s"
            if name not in CHOICES:
                raise CheckFailed(f"{case}: one of {CHOICES}", repr(name), "the name is not known")
            times = {
                choice: ALL_REDUCES[choice](n).seconds(nbytes, alpha=alpha, beta=beta)
                for choice in CHOICES
            }
            best = min(times, key=times.get)
            if times[name] > 1.01 * times[best]:
                raise CheckFailed(
                    f"{case}: {best}, {times[best]:.3g} s",
                    f"{name}, {times[name]:.3g} s",
                    _why_not(n, name, best),
                )
        verdict.reached = f"the best in all {len(grid)} cases"


def _why_not(n: int, name: str, best: str) -> str:
    if n & (n - 1):
        return (
            "a world size that is no power of two: doubling and halving-doubling pay two more "
            "rounds of the whole tensor there"
        )
    if ALL_REDUCES[name](n).rounds > ALL_REDUCES[best](n).rounds:
        return "the tensor is small: rounds decide, and this choice has too many of them"
    return "the tensor is large: bytes decide, and this choice sends too many of them"


def _sums(way: Callable[[torch.Tensor], None], lengths: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Run the learner's function on each length; runs on every rank."""
    found = {}
    for length in lengths:
        tensor = checking.rank_data(length, rank=dist.get_rank())
        with wire.meter() as m, memory.watch() as usage:
            way(tensor)
        found[length] = {"tensor": tensor, "report": m.report, "peak": usage.peak}
    return found


def _broadcast(way: Callable[..., None], numel: int, src: int, chunks: int) -> dict[str, Any]:
    """Run the learner's broadcast; runs on every rank."""
    tensor = checking.rank_data(numel, rank=dist.get_rank())
    with wire.meter() as m:
        way(tensor, src=src, chunks=chunks)
    return {"tensor": tensor, "report": m.report}


def _right_sums(
    way: Callable[[torch.Tensor], None], n: int, lengths: Sequence[int]
) -> list[dict[str, Any]]:
    """Hold the sums of every length to the expected ones; return the runs of the first length."""
    results = checking.on_ranks(_sums, way, lengths, world_size=n)
    for place, length in enumerate(lengths):
        expected = checking.sum_over_ranks(length, world_size=n)
        for rank, run in enumerate(results):
            checking.same_values(
                run[length]["tensor"],
                expected,
                what=f"rank {rank} of {n}, {length} elements",
                meaning=_what_is_wrong(run[length]["tensor"], rank, n, length, even=place == 0),
            )
    return [run[lengths[0]] for run in results]


def _what_is_wrong(got: torch.Tensor, rank: int, n: int, length: int, *, even: bool) -> str:
    """Name the mistake behind a wrong sum, from which ranks' data are in it."""
    data = [checking.rank_data(length, rank=r) for r in range(n)]
    wrong = got != sum(data)
    if not even and length % n:
        return (
            f"lengths that divide by {n} come out right and {length} does not: chunks differ in "
            "length there. Cut with tensor_split, and receive into a buffer as long as the chunk "
            "that arrives"
        )
    if torch.equal(got[wrong], data[rank][wrong]):
        return (
            "part of the tensor is as it was: a turn of the ring is missing, or a round. "
            "n-1 rounds sum the chunks, n-1 more bring each sum to everybody"
        )
    if torch.stack([got == part for part in data]).any(0)[wrong].all():
        return (
            "what arrives overwrites this rank's own numbers instead of being added: the "
            "receive buffer is the tensor itself. Receive into a buffer of its own"
        )
    for counts in itertools.product((0, 1, 2), repeat=n):
        mixture = sum(count * part for count, part in zip(counts, data, strict=True))
        if wrong.any() and torch.equal(mixture[wrong], got[wrong]):
            if 2 in counts:
                return f"rank {counts.index(2)}'s share is in the sum twice: one chunk too many"
            missing = [r for r, count in enumerate(counts) if count == 0]
            return f"the shares of ranks {missing} are missing: too few rounds, or a wrong chunk"
    return (
        "a wrong chunk: in every round the chunk that a rank receives is the one that its left "
        "neighbour sends; write both down for n = 3"
    )


def _shares_sent(runs: Sequence[dict[str, Any]], numel: int) -> tuple[list[float], str]:
    """Return what each rank sent, in units of S, and how that was counted."""
    sent = checking.sent([run["report"] for run in runs])
    return (sent.matrix.sum(axis=1) / (numel * ITEM)).tolist(), sent.how


def _claims() -> list[tuple[str, int, int, float, float]]:
    """Return claims to audit: (collective, S, n, seconds, link in bytes per second one way)."""
    gib = 2**30
    return [
        ("all_reduce", 16 * gib, 8, 62.6e-3, 450e9),  # 8x H200, the switch adds: true
        ("all_reduce", 16 * gib, 8, 81.9e-3, 450e9),  # the same, Ring
        ("all_gather", 16 * gib, 8, 41.6e-3, 450e9),
        ("reduce_scatter", 16 * gib, 8, 41.4e-3, 450e9),
        ("all_reduce", 10**9, 16, 2.2e-3, 300e9),  # the puzzle's table
        ("broadcast", 10**9, 16, 0.8e-3, 300e9),
        ("all_gather", 16 * gib, 8, 30e-3, 450e9),  # above the wire, and nothing adds
        ("all_reduce", 10**8, 2, 1.0e-3, 90e9),  # n = 2: factor 1, no gain from a switch
        ("all_reduce", 10**8, 2, 1.0e-3, 110e9),
    ]


def _verdict(collective: str, nbytes: int, n: int, seconds: float, link: float) -> str:
    if nbytes / seconds * bus_factor(collective, n) <= link:
        return "possible"
    if collective == "all_reduce" and nbytes / seconds <= link:
        return "needs a switch that adds"
    return "impossible"
