"""Run a learner's function on real ranks, case by case, and gather what a judge needs.

    cases = [Case(n, shape) for n in (4, 3, 1) for shape in ((803,), (), (2, 64))]
    for case, ranks in trials(ring_all_reduce, cases, by_hand=True):
        for rank, ran in enumerate(ranks):
            checking.same_values(ran.given[0], case.total(), what=f"{case}, rank {rank}", ...)
        checking.at_most(sent(ranks).sum(), 6 * case.nbytes, what="bytes sent by all", ...)

Cases of one world size in a row share a launch. With `by_hand` only sends and receives may be
called: collectives are refused, handles that are dropped or waited for twice, buffers that are used
while they are under way, and silence.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from course.checks import checking
from course.checks.checking import hold
from course.checks.memory import Allocated, BufferCall, BufferLog
from labkit.measure import wire
from labkit.measure.calls import tensors_in

WIDE = 2**31 + 1
"""What the data of 64-bit types are multiplied by: float32 cannot add them without rounding."""

SILENCE = """no send and no receive was called: data go through torch.distributed, and a function
with `yield` in it does not run"""
COLLECTIVE = """a collective does the work that this exercise is about, or waits for ranks that
have nothing to do with it: build it from sends and receives"""
WAITED = """gloo's second wait() for a handle never returns: it waits for another message. Take
the handle off your list when you have waited for it"""
DROPPED = "its handle was dropped: keep it, and wait for it. Without it a message may never arrive"
RACES = {
    "send": "a race: wait for the send, too, before you write into its buffer",
    "recv": "a race, what has not arrived yet is used: wait for the receive first",
}


SHAPE = (803,)  # of a tensor, where nobody asks for another


@dataclass(frozen=True, slots=True)
class Case:
    """One trial of a learner's function; by default of one tensor that differs between ranks."""

    world_size: int
    shape: tuple[int, ...] = SHAPE
    dtype: torch.dtype = torch.float32
    options: dict[str, Any] = field(default_factory=dict)  # keyword arguments of the function
    make: Callable[["Case", int], tuple] | None = None
    """(case, rank) -> the function's positional arguments; None: the rank's `data`."""
    late: float = 0.0  # seconds by which odd ranks start later: so that a race shows

    @property
    def numel(self) -> int:
        """Elements of the tensor."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """S, the bytes of the tensor."""
        return self.numel * self.dtype.itemsize

    def data(self, rank: int) -> torch.Tensor:
        """Return a rank's tensor: whole numbers that differ from rank to rank.

        Their sums are exact in any order, so a right answer is right to the last bit, and one that
        forgot or doubled a rank cannot pass. Those of 64 bits exceed float32.
        """
        generator = torch.Generator().manual_seed(rank)
        whole = torch.randint(-99, 100, self.shape, generator=generator).to(self.dtype)
        return whole * WIDE if self.dtype in (torch.int64, torch.float64) else whole

    def total(self) -> torch.Tensor:
        """Return the sum of all ranks' data."""
        return torch.stack([self.data(rank) for rank in range(self.world_size)]).sum(0)

    def __str__(self) -> str:
        plain = self.dtype == torch.float32
        kind = "" if plain else f" of {str(self.dtype).removeprefix('torch.')}"
        options = "".join(f", {name}={value}" for name, value in self.options.items())
        is_chosen = self.make is None or self.shape != SHAPE  # else `make` has its own
        shape = f", shape {self.shape}" if is_chosen else ""
        return f"n={self.world_size}{shape}{kind}{options}"


@dataclass(frozen=True, slots=True)
class Ran:
    """What one rank did in one case."""

    given: tuple
    """The function's arguments, as it left them; of a list it got a copy, which it may empty."""
    stays: bool  # whether the tensors in them still lie where they lay
    report: wire.Report
    peak: int  # bytes of new tensors, at most at one time
    made: int  # bytes of all new tensors together

    @property
    def calls(self) -> tuple[BufferCall, ...]:
        """Every call of torch.distributed, in order."""
        return self.report.calls

    @property
    def messages(self) -> list[BufferCall]:
        """The sends that have content."""
        return [call for call in self.calls if call.kind == "send" and call.nbytes]


def sent(ranks: Sequence[Ran]) -> np.ndarray:
    """Return the payload that went over the wire, in bytes: row = sender, column = receiver.

    Where the wire cannot be read, what the ranks *asked* to send is counted instead.
    """
    reports = [ran.report for ran in ranks]
    try:
        return wire.payload(reports)
    except wire.WireUnavailable:
        return wire.counted(reports)


def trials(
    way: Callable[..., Any], cases: Sequence[Case], *, by_hand: bool = False, **how: Any
) -> Iterator[tuple[Case, list[Ran]]]:
    """Yield each case and what its ranks did, unless it is refused; `how`: as in `on_ranks`."""
    for n, group in itertools.groupby(cases, key=lambda case: case.world_size):
        together = list(group)
        by_rank = checking.on_ranks(_play, way, together, by_hand, world_size=n, **how)
        for case, ranks in zip(together, zip(*by_rank, strict=True), strict=True):
            talks = n == 1 or not by_hand or any(ran.calls for ran in ranks)
            hold(talks, f"{case}: messages between ranks", "none", SILENCE)
            yield case, list(ranks)


def _play(way: Callable[..., Any], cases: Sequence[Case], by_hand: bool) -> list[Ran]:
    """Try the function on each case; runs on every rank."""
    rank, played = dist.get_rank(), []
    dist.barrier()  # connections are open before anything is metered
    for case in cases:
        given = case.make(case, rank) if case.make else (case.data(rank),)
        lists = [list(value) if isinstance(value, list) else value for value in given]
        before = [tensor.data_ptr() for tensor in tensors_in(given)]
        time.sleep(case.late * (rank % 2))
        log = HandLog() if by_hand else BufferLog()
        with wire.meter(log) as meter, Allocated() as usage, checking.named(str(case)):
            way(*lists, **case.options)
        stays = [tensor.data_ptr() for tensor in tensors_in(given)] == before
        played.append(Ran(given, stays, meter.report, usage.peak, usage.made))
        if by_hand:
            _hold_manners(f"{case}, rank {rank}", played[-1])
    return played


class HandLog(BufferLog):
    """Refuses calls before they are made, so that no other rank is left waiting in them."""

    def before_call(self, kind: str, reads: list[torch.Tensor], writes: list[torch.Tensor]) -> None:
        """Refuse a collective."""
        by_hand = kind in ("send", "recv")
        hold(by_hand, "sends and receives only", f"a call of dist.{kind}", COLLECTIVE)
        super().before_call(kind, reads, writes)

    def before_wait(self, work: dist.Work) -> None:
        """Refuse a second wait, which would never return."""
        once, again = "one wait() for each isend and irecv", "a second one for the same handle"
        hold(work not in self.waited_for, once, again, WAITED)
        super().before_wait(work)


def _hold_manners(where: str, ran: Ran) -> None:
    """Refuse handles that are dropped, and buffers that are used while they are under way."""
    for call in ran.calls:
        name = f"{'isend to' if call.kind == 'send' else 'irecv from'} rank {call.peer}"
        waited = "every isend and irecv is waited for before the function returns"
        hold(call.waited is not None, waited, f"{where}: an {name} that nobody waits for", DROPPED)
        used = f"{name}: {call.touched} uses its buffer before the wait"
        alone = f"{where}: no buffer is used while it is under way"
        hold(not call.touched, alone, used, RACES[call.kind])
