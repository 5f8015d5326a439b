"""Checks of lesson 6: collectives by hand, judged on values and on every cost; two verdicts.

A function is tried on data that differ by rank and place, on world sizes and lengths that do not
divide, on two dimensions and other dtypes, and on tensors so large that a race shows. How it was
done comes first: collectives inside, handles dropped, buffers used too early. Then the values: what
a wrong sum lacks or has twice is found out, so that the message can name the mistake. Then the
costs, in every run and on every rank.
"""

import itertools
import math
import re
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from course import checking
from course.checking import CheckFailed
from course.comm import costs
from course.comm.rounds import rounds
from labkit.measure import memory, wire
from labkit.measure.records import bus_factor
from labkit.ranks.errors import RankDied

BIG = 2**18
"""Elements of a tensor whose messages do not fit into the kernel's buffers."""
LATE = 0.05
"""Seconds by which odd ranks start later with a big tensor."""
PARS = {
    "6.1": "1.5 S sent per rank, 6 messages and 0.5 S of scratch on 4 ranks",
    "6.2": "chunks + n - 2 rounds, S per link, 2 pieces of scratch",
    "6.3": "2 rounds on 4 ranks, 4 rounds on 6, 2 S of scratch",
    "6.4": "every verdict right",
    "6.5": "never more than 1 % slower than the best",
}
CHOICES = ("ring", "tree", "doubling", "halving-doubling")


@dataclass(frozen=True, slots=True)
class _Case:
    """One trial of a learner's function."""

    n: int
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    src: int | None = None
    chunks: int | None = None

    @property
    def options(self) -> dict[str, int]:
        """What the function gets beside the tensor."""
        return {} if self.src is None else {"src": self.src, "chunks": self.chunks}

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def __str__(self) -> str:
        options = "".join(f", {name}={value}" for name, value in self.options.items())
        plain = self.dtype == torch.float32
        kind = "" if plain else f" of {str(self.dtype).removeprefix('torch.')}"
        return f"n={self.n}, shape {self.shape}{kind}{options}"

    def data(self, rank: int) -> torch.Tensor:
        """Return a rank's input."""
        return checking.rank_data(self.numel, rank=rank, dtype=self.dtype).reshape(self.shape)

    def hint(self) -> str:
        """Say what is special about this case, for somebody whose function fails in it."""
        if self.n == 1:
            return "one rank is alone: there is nobody to send to, and nothing to do"
        if self.dtype != torch.float32:
            return "scratch must have the tensor's dtype: torch.empty_like, or tensor.new_empty"
        if len(self.shape) > 1:
            return "a tensor of two dimensions: cut a flat view of it, tensor.view(-1)"
        if self.n & (self.n - 1):
            return "a number of ranks that is no power of two"
        return "a length that does not divide: pieces differ, and some may be empty"


@dataclass(frozen=True, slots=True)
class _Run:
    """What one rank did in one case."""

    tensor: torch.Tensor
    report: wire.Report
    peak: int
    """Bytes of scratch, torch's and numpy's."""

    @property
    def messages(self) -> list[Any]:
        """The sends that have content."""
        return [call for call in self.report.calls if call.kind == "send" and call.nbytes]


def check_ring_all_reduce(ring_all_reduce: Callable[[torch.Tensor], None]) -> None:
    """Judge exercise 6.1: `ring_all_reduce(tensor)` sums in place over all ranks."""
    with checking.exercise("6.1", par=PARS["6.1"]) as verdict:
        cases = [_Case(4, shape) for shape in ((4000,), (4001,), (3,), (1,), (12, 7), (BIG,))]
        cases += [_Case(4, (4000,), torch.int64), _Case(5, (15, 7), torch.float64)]
        cases += [_Case(n, (length,)) for n in (2, 1, 3, 5, 7) for length in (60 * n, 60 * n + 1)]
        for case, runs in _tried(ring_all_reduce, cases, wrong=_wrong_ring):
            sent, messages = _sent(runs, case), max(len(run.messages) for run in runs)
            _hold(
                case, "sent by the busiest rank, elements", sent,
                2 * (case.numel - case.numel // case.n),
                "the values are right, but a ring sends 2(n-1)/n S; (n-1) S means that whole "
                "tensors go around instead of chunks, 2(n-1) S on one rank that it serves all",
            )  # fmt: skip
            _hold(
                case, "messages sent by the busiest rank", messages, 2 * (case.n - 1),
                "more messages than rounds: each of the 2(n-1) rounds sends one chunk",
            )  # fmt: skip
            if case in (_Case(4, (4000,)), _Case(4, (BIG,))):
                _hold_scratch(case, runs, 2 / 4, "one chunk to receive into is enough")
                verdict.reached = f"{sent / case.numel:.4g} S and {messages} messages on 4 ranks"


def check_pipelined_broadcast(pipelined_broadcast: Callable[..., None]) -> None:
    """Judge exercise 6.2: `pipelined_broadcast(tensor, src=0, chunks=8)`."""
    with checking.exercise("6.2", par=PARS["6.2"]) as verdict:
        settings = [
            (4, (803,), 0, 8), (4, (803,), 2, 5), (4, (3,), 0, 8), (4, (803,), 1, 1),
            (4, (BIG,), 0, 8), (3, (803,), 1, 8), (5, (24, 7), 3, 8), (2, (803,), 1, 3),
            (1, (803,), 0, 8),
        ]  # fmt: skip
        cases = [_Case(n, shape, src=src, chunks=chunks) for n, shape, src, chunks in settings]
        cases.insert(0, _Case(4, (803,), torch.int64, src=0, chunks=8))
        for case, runs in _tried(pipelined_broadcast, cases, wrong=_wrong_copy):
            src, chunks = case.src, case.chunks
            for rank, run in enumerate(runs):
                for call in run.messages:
                    if call.peer != (rank + 1) % case.n or call.peer == src:
                        raise CheckFailed(
                            f"{case}: the chain src, src + 1, ... (modulo n)",
                            f"rank {rank} sends to rank {call.peer}",
                            "in a chain each rank sends to the next one only, and the last to "
                            "nobody; a root that serves several shares its link between them",
                        )
            item, took = case.dtype.itemsize, _rounds(runs)
            largest = max((c.nbytes for run in runs for c in run.messages), default=0) / item
            _hold(
                case, "sent by the busiest rank, elements", _sent(runs, case), case.numel,
                "a chain passes each element on once",
            )  # fmt: skip
            _hold(
                case, "largest message, elements", largest, math.ceil(case.numel / chunks),
                "the tensor is not cut into `chunks` pieces",
            )  # fmt: skip
            _hold(
                case, "messages on a link", max(len(run.messages) for run in runs), chunks,
                "more pieces than `chunks`: take their number from the argument",
            )  # fmt: skip
            _hold(
                case, "rounds", took, min(chunks, case.numel) + case.n - 2 if case.n > 1 else 0,
                "a rank waits for more than the piece that it passes on: it collects all pieces "
                "first (store and forward), or waits for a send before it receives the next piece",
            )  # fmt: skip
            if case.numel == BIG:
                _hold_scratch(case, runs, 2 / chunks, "a piece can be received where it belongs")
                verdict.reached = f"{took} rounds for {chunks} chunks on {case.n} ranks"


def check_recursive_doubling(recursive_doubling: Callable[[torch.Tensor], None]) -> None:
    """Judge exercise 6.3: `recursive_doubling(tensor)` sums in place, for any world size."""
    with checking.exercise("6.3", par=PARS["6.3"]) as verdict:
        cases = [_Case(4, (64,)), _Case(4, (64,), torch.int64), _Case(4, (4 * BIG,))]
        cases += [_Case(n, shape) for n in (2, 3, 6, 5, 7, 1) for shape in ((64,), (7,), (3, 5))]
        reached = {}
        for case, runs in _tried(recursive_doubling, cases, wrong=_wrong_sum):
            reached[case.n] = _rounds(runs)
            _hold(
                case, "rounds", reached[case.n], costs.recursive_doubling_all_reduce(case.n).rounds,
                "a ring or a tree in disguise, or two exchanges where one will do: in round k "
                "every rank swaps its whole sum with the rank 2**k away",
            )  # fmt: skip
            if case.numel > BIG:
                _hold_scratch(case, runs, 2, "one tensor to receive into is enough")
        verdict.reached = f"{reached[4]} rounds on 4 ranks, {reached[6]} on 6"


def check_audit(audit: Callable[..., tuple[float, str]]) -> None:
    """Judge exercise 6.4: `audit(collective, nbytes, n, seconds, link)` -> (busbw, verdict)."""
    with checking.exercise("6.4", par=PARS["6.4"]) as verdict:
        claims = _claims()
        for collective, nbytes, n, seconds, link in claims:
            claim = (
                f"{collective} of {nbytes / 1e9:.4g} GB on {n} ranks in {seconds * 1e3:.4g} ms, "
                f"link {link / 1e9:.4g} GB/s"
            )
            what = f"{claim}: a pair (busbw, verdict)"
            given = checking.ask(audit, collective, nbytes, n, seconds, link)
            found = checking.answer(given, tuple, what=what)
            if len(found) != 2:
                raise CheckFailed(what, repr(found), f"a tuple of {len(found)}, not of two")
            expected, told = _audit(collective, nbytes, n, seconds, link)
            algbw, bits = nbytes / seconds, expected * 8
            meaning = checking.diagnose(
                found[0],
                {
                    "that is algbw, S / t: the factor is missing": algbw,
                    "bits per second: a link of 450 GB/s carries bytes": bits,
                    "GB/s: the statement asks for bytes per second": expected / 1e9,
                    "the factor of all_reduce is 2(n-1)/n: two turns of the ring": expected / 2,
                    "the factor of one turn is (n-1)/n": expected * 2,
                    "n ranks, not n - 1: the factor 2 is reached by no finite ring": algbw * 2,
                },
                otherwise="busbw = S / t x factor: 2(n-1)/n for all_reduce, (n-1)/n for "
                "reduce_scatter and all_gather, 1 for broadcast and reduce",
            )
            checking.close_to(
                found[0], expected, within=0.001, what=f"busbw of {claim}", unit="bytes/s",
                meaning=meaning,
            )  # fmt: skip
            if found[1] != told:
                raise CheckFailed(
                    f"{claim}: {told!r}", repr(found[1]), _why_not_judged(found[1], told)
                )
        verdict.reached = f"{len(claims)} of {len(claims)} verdicts"


def check_choose(choose: Callable[..., str]) -> None:
    """Judge exercise 6.5: `choose(n, nbytes, alpha, beta)` names the fastest all_reduce."""
    with checking.exercise("6.5", par=PARS["6.5"]) as verdict:
        grid = list(
            itertools.product(
                (8, 64, 1024, 2, 4, 3, 6, 100, 1000), [2**k for k in range(2, 33)],
                (1e-6, 5e-5), (1 / 5e10, 1 / 1e8),
            )
        )  # fmt: skip
        names = [checking.ask(choose, *point) for point in grid]
        for point, name in zip(grid, names, strict=True):
            n, nbytes, alpha, beta = point
            case = f"n={n}, S={nbytes}, alpha={alpha:g} s, {1 / beta / 1e9:g} GB/s"
            checking.answer(name, str, what=f"{case}: one of {CHOICES}")
            if name not in CHOICES:
                raise CheckFailed(f"{case}: one of {CHOICES}", repr(name), "the name is not known")
            times = {choice: _seconds(choice, *point) for choice in CHOICES}
            best = min(times, key=times.get)
            if times[name] > 1.01 * times[best]:
                raise CheckFailed(
                    f"{case}: {best}, {times[best]:.3g} s",
                    f"{name}, {times[name]:.3g} s",
                    checking.diagnose(names, _mistaken(grid), otherwise=_why_not(n, name, best)),
                )
        verdict.reached = f"the best in all {len(grid)} cases"


def _tried(
    way: Callable[..., None], cases: Sequence[_Case], *, wrong: Callable[..., str]
) -> Iterator[tuple[_Case, list[_Run]]]:
    """Run the cases, a launch for each world size in a row; hold manners and values of each.

    `wrong` names the mistake behind a wrong tensor, from it, the case and the rank.
    """
    for n, group in itertools.groupby(cases, key=lambda case: case.n):
        chosen = list(group)
        for case, runs in zip(chosen, _on_ranks(way, chosen, chosen[0] == cases[0]), strict=True):
            _hold_manners(case, runs)
            data = [case.data(rank) for rank in range(n)]
            expected = sum(data) if case.src is None else data[case.src]
            for rank, run in enumerate(runs):
                if not torch.equal(run.tensor, expected):
                    what, meaning = f"{case}, rank {rank}", wrong(run.tensor, case, rank)
                    checking.same_values(run.tensor, expected, what=what, meaning=meaning)
            yield case, runs


def _on_ranks(way: Callable[..., None], cases: Sequence[_Case], first: bool) -> list[list[_Run]]:
    """Return the runs of each case, rank by rank; tell what hangs or kills ranks here."""
    n = cases[0].n
    hang = (
        "ranks wait for each other, or for a message that nobody sends. Read who stands where: two "
        "ranks that both send first (gloo's blocking send returns when the receive is posted); a "
        "rank that skips a message, or a loop that does not end"
    )
    try:
        results = checking.on_ranks(_play, way, cases, first, world_size=n, hang=hang)
    except RankDied as death:
        if "op.preamble.length" not in str(death):
            raise
        sizes = re.search(r"op.nbytes. (\d+) vs (\d+)", str(death))
        raise CheckFailed(
            f"n={n}: a receive is as long as the message",
            f"a message of {sizes[1]} bytes met a receive of {sizes[2]}",
            "a buffer with another dtype than the tensor's (use torch.empty_like or "
            "tensor.new_empty), or pieces that sender and receiver cut or order differently",
        ) from None
    return [list(runs) for runs in zip(*results, strict=True)]


def _play(way: Callable[..., None], cases: Sequence[_Case], first: bool) -> list[_Run]:
    """Run a learner's function on each case; runs on every rank."""
    rank, found = dist.get_rank(), []
    dist.barrier()  # connections are open before anything is metered
    for case in cases:
        tensor, options = case.data(rank), case.options
        if case.numel >= BIG and rank % 2:
            time.sleep(LATE)
        try:
            with wire.meter(buffers=True) as m, _scratched() as peak, checking.by_hand():
                way(tensor, **options)
        except (NotImplementedError, CheckFailed):
            raise
        except Exception as error:
            if first and case == cases[0]:
                raise  # with the learner's own traceback
            got = f"rank {rank}: {type(error).__name__}: {str(error).splitlines()[0]}"
            raise CheckFailed(f"{case}: no exception", got, case.hint()) from error
        found.append(_Run(tensor, m.report, peak()))
    return found


@contextmanager
def _scratched() -> Iterator[Callable[[], int]]:
    """Count the scratch of a block: yields a function that returns the peak in bytes."""
    peaks = []
    tracemalloc.start()
    try:
        with memory.watch() as usage:
            yield lambda: usage.peak + sum(peaks)
        traced = tracemalloc.get_traced_memory()[1]
        peaks.append(traced if traced > 2**18 else 0)  # numpy's arrays; less is Python's own
    finally:
        tracemalloc.stop()


def _hold_manners(case: _Case, runs: Sequence[_Run]) -> None:
    """Refuse what moves no messages, or uses a buffer while it is under way."""
    if case.n > 1 and not any(run.report.calls for run in runs):
        raise CheckFailed(
            f"{case}: messages between ranks", "none",
            "no send and no receive was called; the data must go through torch.distributed",
        )  # fmt: skip
    for rank, run in enumerate(runs):
        for call in run.report.calls:
            if call.touched:
                name, towards = ("isend", "to") if call.kind == "send" else ("irecv", "from")
                raise CheckFailed(
                    f"{case}: no buffer is used while it is under way",
                    f"rank {rank}, {name} {towards} rank {call.peer}: {call.touched} uses its "
                    "buffer before the wait",
                    "a race. The numbers may leave after they were changed: wait for the send, "
                    "too, before you write into its buffer"
                    if call.kind == "send"
                    else "a race. What has not arrived yet is used: wait for the receive first",
                )


def _sent(runs: Sequence[_Run], case: _Case) -> float:
    """Return the elements that the busiest rank sent."""
    sent = checking.sent([run.report for run in runs])
    return float(sent.sum(axis=1).max()) / case.dtype.itemsize


def _rounds(runs: Sequence[_Run]) -> int:
    return len(rounds([run.report for run in runs]))


def _hold(case: _Case, what: str, got: float, par: float, meaning: str) -> None:
    checking.at_most(got, par, what=f"{case}: {what}", unit="", meaning=meaning)


def _hold_scratch(case: _Case, runs: Sequence[_Run], par: float, enough: str) -> None:
    peak = max(run.peak for run in runs) / (case.numel * case.dtype.itemsize)
    meaning = f"copies of the tensor; {enough}, and tensor_split gives views"
    _hold(case, "scratch memory, in S", peak, par, meaning)


def _wrong_ring(got: torch.Tensor, case: _Case, rank: int) -> str:
    """Name the mistake behind a wrong sum that was made of chunks."""
    inside = [_shares(got, case, chunk) for chunk in range(case.n)]
    if case.numel % case.n and case.numel < BIG:
        return (
            f"{case.numel} elements do not divide by {case.n}: chunks differ in length there. Cut "
            "with tensor_split, and receive into a buffer as long as the chunk that arrives"
        )
    if None not in inside and all(max(counts) == 1 for counts in inside):
        complete = sum(min(counts) for counts in inside)
        if complete < case.n and all(counts[rank] for counts in inside):
            return (
                f"{complete} of {case.n} chunks have every share, the others some: a turn of the "
                "ring is missing, or a round. n-1 rounds sum the chunks, n-1 more bring each sum "
                "to every rank"
            )
    return _wrong_sum(got, case, rank)


def _wrong_sum(got: torch.Tensor, case: _Case, rank: int) -> str:
    """Name the mistake behind a wrong sum, from which ranks' data are in it."""
    data = [case.data(r) for r in range(case.n)]
    wrong = got != sum(data)
    if (got == data[rank])[wrong].all():
        where = "all dimensions count: a flat view has them all, tensor.view(-1)"
        return (
            f"{int(wrong.sum())} elements are still this rank's own numbers: nothing was added to "
            f"them; {where if len(case.shape) > 1 else 'which message should have brought it?'}"
        )
    if torch.stack([got == part for part in data]).any(0)[wrong].all():
        return (
            "what arrives overwrites this rank's own numbers instead of being added: the "
            "receive buffer is the tensor itself. Receive into a buffer of its own"
        )
    chunk = int(wrong.view(-1).nonzero()[0]) * case.n // case.numel
    counts = _shares(got, case, chunk)
    if counts and 2 in counts:
        return (
            f"rank {counts.index(2)}'s share is in the sum twice: one round or chunk too many, or "
            "a race: a buffer was changed while it was still being sent"
        )
    if counts and 0 in counts:
        missing = [r for r, count in enumerate(counts) if count == 0]
        return f"the shares of ranks {missing} are missing: too few rounds, or a wrong chunk"
    if case.numel >= BIG:
        return (
            "right on small tensors and wrong on large ones: a race. A buffer is changed while it "
            "is still being sent (through numpy, perhaps): wait for both works, then add"
        )
    return (
        "a wrong chunk: in every round the chunk that a rank receives is the one that its left "
        "neighbour sends; write both down for n = 3"
    )


def _shares(got: torch.Tensor, case: _Case, chunk: int) -> tuple[int, ...] | None:
    """Return how often each rank's data are in a chunk, if they are 0, 1 or 2 times."""
    parts = [case.data(r).view(-1).tensor_split(case.n)[chunk][-16:] for r in range(case.n)]
    found = got.view(-1).tensor_split(case.n)[chunk][-16:]
    for counts in itertools.product((1, 0, 2), repeat=case.n):
        mixture = sum(count * part for count, part in zip(counts, parts, strict=True))
        if torch.equal(mixture, found):
            return counts
    return None


def _wrong_copy(got: torch.Tensor, case: _Case, rank: int) -> str:
    """Name the mistake behind a wrong broadcast."""
    src = case.src
    right = (got == case.data(src)).flatten()
    if src and torch.equal(got, case.data(0)):
        return "that is rank 0's tensor: the chain starts at src, counted modulo n"
    if rank == src:
        return "the root's own tensor has changed: it sends, and receives nothing"
    if torch.equal(got, case.data(rank)):
        return "nothing arrived on this rank: the chain ends at the rank before src, modulo n"
    if right[0] and not right[-1]:
        return "the end is missing: the last piece is shorter when chunks do not divide"
    return (
        "pieces are not where they belong: they arrive in the order in which they were sent, and "
        "each is received into its own place of the tensor"
    )


def _claims() -> list[tuple[str, int, int, float, float]]:
    """Return claims to audit: (collective, S, n, seconds, link in bytes per second one way)."""
    gib, gb = 2**30, 10**9
    return [
        ("all_reduce", 16 * gib, 8, 62.6e-3, 450e9),  # 8x H200, the switch adds: true
        ("all_reduce", 16 * gib, 8, 81.9e-3, 450e9),  # the same, Ring
        ("all_gather", 16 * gib, 8, 41.6e-3, 450e9),
        ("reduce_scatter", 16 * gib, 8, 41.4e-3, 450e9),
        ("all_reduce", gb, 16, 2.2e-3, 450e9),  # the puzzle's table as labelled
        ("broadcast", gb, 16, 0.8e-3, 450e9),
        ("reduce", gb, 16, 2.4e-3, 450e9),
        ("all_gather", 16 * gib, 8, 30e-3, 450e9),  # above the wire, and nothing adds
        ("all_reduce", 16 * gib, 8, 41e-3, 450e9),  # S / t fits the wire, (n+1)/n S / t does not
        ("all_reduce", 10**8, 2, 1.0e-3, 90e9),  # n = 2: a switch has nothing to save
        ("all_reduce", 10**8, 2, 1.0e-3, 110e9),
        ("broadcast", gb, 4, 1.0, 1e9),  # just possible
        ("all_reduce", gb, 4, 1.0, 1.5e9),
        ("all_reduce", gb, 4, 1.0, 1.25e9),  # just possible for a switch
        ("reduce", gb, 4, 1.0, 0.9e9),
    ]


def _audit(collective: str, nbytes: int, n: int, seconds: float, link: float) -> tuple[float, str]:
    busbw = nbytes / seconds * bus_factor(collective, n)
    if busbw <= link:
        return busbw, "possible"
    if collective == "all_reduce" and nbytes / seconds * (n + 1) / n <= link:
        return busbw, "needs a switch that adds"
    return busbw, "impossible"


def _why_not_judged(got: str, told: str) -> str:
    if told == "possible":
        return "busbw is not above the link (equal will do): nothing speaks against the claim"
    if told == "impossible" and got == "needs a switch that adds":
        return "with a switch that adds, (n+1)/n S still cross each link; not S alone"
    return (
        "a switch that adds lets an all_reduce send (n+1)/n S per link instead of 2(n-1)/n S, so "
        "busbw may exceed the link"
    )


def _seconds(name: str, n: int, nbytes: float, alpha: float, beta: float) -> float:
    return costs.ALL_REDUCES[name](n).seconds(nbytes, alpha=alpha, beta=beta)


def _mistaken(grid: Sequence[tuple]) -> dict[str, list[str]]:
    """Return what usual mistakes would choose on the grid, by what they mean."""

    def price(name: str, n: int, *, fold: float = 1, depth: Callable = math.ceil) -> costs.Cost:
        p = 2 ** math.floor(math.log2(n))
        more = costs.Cost(2 * fold, 2 * fold) if n != p else costs.Cost(0, 0)
        if name == "doubling":
            return costs.Cost(math.log2(p), math.log2(p)) + more
        if name == "halving-doubling":
            return costs.Cost(2 * math.log2(p), 2 * (p - 1) / p) + more
        if name == "tree":
            up = depth(math.log2(n))
            return costs.Cost(2 * up, 2 * up)
        return costs.ring_all_reduce(n)

    def chosen(price: Callable[[str, int], costs.Cost]) -> list[str]:
        return [
            min(CHOICES, key=lambda c: price(c, n).seconds(nbytes, alpha=alpha, beta=beta))
            for n, nbytes, alpha, beta in grid
        ]

    return {
        "the fold is forgotten: a world size that is no power of two costs doubling and "
        "halving-doubling two more rounds of the whole tensor": chosen(
            lambda c, n: price(c, n, fold=0)
        ),
        "the fold costs two rounds, there and back: this counts one": chosen(
            lambda c, n: price(c, n, fold=0.5)
        ),
        "the ring goes round twice: 2(n-1) rounds and 2(n-1)/n S": chosen(
            lambda c, n: costs.ring_reduce_scatter(n) if c == "ring" else price(c, n)
        ),
        "a tree's depth is ceil(log2 n): three ranks need two rounds down": chosen(
            lambda c, n: price(c, n, depth=math.floor)
        ),
        "the tree goes up and down again: 2 ceil(log2 n) rounds of S": chosen(
            lambda c, n: costs.tree_broadcast(n) if c == "tree" else price(c, n)
        ),
    }


def _why_not(n: int, name: str, best: str) -> str:
    if n & (n - 1):
        return (
            "a world size that is no power of two: doubling and halving-doubling pay two more "
            "rounds of the whole tensor there"
        )
    if costs.ALL_REDUCES[name](n).rounds > costs.ALL_REDUCES[best](n).rounds:
        return "the tensor is small: rounds decide, and this choice has too many of them"
    return "the tensor is large: bytes decide, and this choice sends too many of them"
