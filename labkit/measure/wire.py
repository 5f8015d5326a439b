"""The wire meter: how many bytes each rank really sent to each other rank during a block.

    def program():
        x = torch.ones(2**18)
        dist.all_reduce(x)                  # the first call opens connections: keep it outside
        with wire.meter() as m:
            dist.all_reduce(x)
        return m.report

    wire.payload(launch(program, world_size=4))   # 4 x 4 bytes: row = sender, column = receiver

The counts are the kernel's (`labkit.measure.sockets`), so they hold for code that nobody can edit,
such as gloo's.

**Payload and control.** gloo puts a 48-byte header before each message and sends two more headers
without a message, "ready to send" and "ready to receive". So what rank i sends to rank j is

    bytes = payload + 48 x (2 x messages from i to j + messages from j to i)

`matrix` returns the left side. `payload` returns the first term on the right, by this rule: where
the block held nothing but sends and receives, both terms are known from the calls, and must add up
to the kernel's count to the last byte. Where a collective of the library ran, its messages cannot
be seen; the payload of each pair is then taken to be a multiple of `unit` bytes, and the rest must
be a whole number of headers. What does not add up is refused.
"""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch.distributed as dist

from labkit.measure import sockets
from labkit.measure.calls import ANY_SOURCE, Call, CallLog

HEADER = 48
"""Bytes of gloo's message header: six 8-byte fields (gloo/transport/tcp/pair.h, struct Op)."""
SEGMENT = 2**20
"""Largest message that gloo's collectives send; larger tensors go in several (gloo's
kMaxSegmentSize)."""


class WireUnavailable(RuntimeError):
    """The bytes cannot be counted here; the message says why. `counted` works all the same."""


class WireMismatch(ValueError):
    """The bytes do not add up; the message says between which ranks and what to do."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one rank saw during a block. Picklable: return it from the rank."""

    rank: int
    world_size: int
    calls: tuple[Call, ...]
    """Sends, receives and collectives that the block called, in order."""
    flows: dict[sockets.Connection, sockets.Traffic]
    """Bytes during the block, per connection. What was received may include the start of what a
    faster rank did next; what was sent is exact."""
    opened: frozenset[sockets.Connection] = frozenset()
    closed: frozenset[sockets.Connection] = frozenset()
    unavailable: str | None = None
    """Why the kernel's counts are missing, or None."""


@dataclass(slots=True)
class Meter:
    """What `meter` yields; `report` is there once the block has ended."""

    _report: Report | None = field(default=None)

    @property
    def report(self) -> Report:
        """This rank's report.

        Raises:
            RuntimeError: the block has not ended, or it ended with an exception.
        """
        if self._report is None:
            raise RuntimeError(
                "the wire meter's report exists only after its `with` block has ended"
            )
        return self._report


@contextmanager
def meter() -> Iterator[Meter]:
    """Count, inside a rank, the bytes that this process sends to each other rank during the block.

    All groups of the process are counted together. The block must wait for whatever it starts.
    Where the counts cannot be read the block runs all the same, its calls are listed, and `matrix`
    says what is missing.

    Yields:
        A `Meter`, whose `report` is this rank's row of `matrix`.
    """
    result, log, reason = Meter(), CallLog(), _unavailable()
    before = {} if reason else _settled()
    with log:
        yield result
    after = {} if reason else _settled()
    zero = sockets.Traffic(0, 0)
    result._report = Report(
        rank=dist.get_rank(),
        world_size=dist.get_world_size(),
        calls=tuple(log.calls),
        flows={
            end: sockets.Traffic(
                now.sent - before.get(end, zero).sent, now.received - before.get(end, zero).received
            )
            for end, now in after.items()
        },
        opened=frozenset(after.keys() - before.keys()),
        closed=frozenset(before.keys() - after.keys()),
        unavailable=reason,
    )


def matrix(reports: Sequence[Report]) -> np.ndarray:
    """Return every byte that each rank sent to each other rank, headers included.

    Args:
        reports: one `Report` per rank, in any order.

    Returns:
        int64, shape (world_size, world_size): row = sender, column = receiver.

    Raises:
        WireUnavailable: a rank could not read the kernel's counts.
        WireMismatch: a connection between two ranks was closed during the block: its bytes are
            lost.
    """
    reports = _in_order(reports)
    if reason := next((report.unavailable for report in reports if report.unavailable), None):
        raise WireUnavailable(
            f"the wire meter cannot count here: {reason}. wire.counted(reports) adds up the send "
            "calls instead."
        )
    owner = {end: report.rank for report in reports for end in (*report.flows, *report.closed)}
    sent = np.zeros((len(reports), len(reports)), dtype=np.int64)
    for report in reports:
        for end in report.closed:
            if end.other_end in owner:
                raise WireMismatch(
                    f"rank {report.rank} closed a connection to rank {owner[end.other_end]} "
                    "during the block: "
                    "its bytes are lost. Destroy process groups outside the block."
                )
        for end, traffic in report.flows.items():
            if end.other_end in owner:  # else not a rank: a store, a debugger
                sent[report.rank, owner[end.other_end]] += traffic.sent
    return sent


def payload(reports: Sequence[Report], *, unit: int = 4096) -> np.ndarray:
    """Return the payload that each rank sent to each other rank, without gloo's headers.

    The rule is at the top of this module.

    Args:
        reports: one `Report` per rank, in any order.
        unit: bytes; used only when the block called collectives of the library. Every message must
            then be a multiple of it: choose tensors that divide by 2 x world_size x unit.

    Returns:
        int64, shape (world_size, world_size): row = sender, column = receiver.

    Raises:
        WireUnavailable: as `matrix`.
        WireMismatch: the bytes are not payload plus whole headers, or connections were opened in
            the block.
    """
    reports = _in_order(reports)
    sent = matrix(reports)
    ends = {end for report in reports for end in report.flows}
    if any(end.other_end in ends for report in reports for end in report.opened):
        raise WireMismatch(
            "connections between ranks were opened during the block, and their first bytes are "
            "not gloo's frames. "
            "Make the same calls once before the block."
        )
    if any(call.kind not in ("send", "recv") for report in reports for call in report.calls):
        return np.array(
            [
                [_multiple(int(b), unit, i, j) for j, b in enumerate(row)]
                for i, row in enumerate(sent)
            ]
        )
    return _confirmed(sent, reports)


def counted(reports: Sequence[Report]) -> np.ndarray:
    """Return the bytes that each rank *asked* to send to each other rank: the sum of its sends.

    Works on every platform and backend, and knows nothing of what the library's own collectives
    send.

    Returns:
        int64, shape (world_size, world_size): row = sender, column = receiver.
    """
    reports = _in_order(reports)
    asked = np.zeros((len(reports), len(reports)), dtype=np.int64)
    for report in reports:
        for call in report.calls:
            if call.kind == "send":
                asked[report.rank, call.peer] += call.nbytes
    return asked


def _confirmed(sent: np.ndarray, reports: Sequence[Report]) -> np.ndarray:
    """Return `counted`, after checking it against the kernel's bytes."""
    asked, headers = counted(reports), np.zeros_like(sent)
    for report in reports:
        for call in report.calls:
            if call.peer == ANY_SOURCE:
                continue
            headers[report.rank, call.peer] += 2 if call.kind == "send" else 1
    known = all(call.peer != ANY_SOURCE for report in reports for call in report.calls)
    excess = sent - asked - HEADER * headers
    for i, j in np.argwhere((excess != 0) if known else (excess < 0) | (excess % HEADER != 0)):
        raise WireMismatch(
            f"rank {i} asked to send {asked[i, j]} bytes to rank {j}, which with {headers[i, j]} "
            f"headers of {HEADER} "
            f"makes {asked[i, j] + HEADER * headers[i, j]}; the kernel sent {sent[i, j]}. Does "
            "the block wait for all "
            "that it starts, and does nothing else run on this rank?"
        )
    return asked


def _multiple(sent: int, unit: int, src: int, dst: int) -> int:
    """Return the largest multiple of `unit` that leaves a whole number of headers in `sent`."""
    ambiguous = unit // math.gcd(unit, HEADER)
    """So many headers are themselves a multiple of the unit."""
    headers = next(
        (k for k in range(min(ambiguous, sent // HEADER + 1)) if (sent - HEADER * k) % unit == 0),
        None,
    )
    if headers is None:
        raise WireMismatch(
            f"rank {src} sent {sent} bytes to rank {dst}: not a multiple of unit={unit} plus "
            f"whole {HEADER}-byte "
            "headers. Choose tensors whose bytes divide by 2 x world_size x unit, or a smaller "
            "unit."
        )
    if 6 * (sent // SEGMENT) >= ambiguous:
        raise WireMismatch(
            f"rank {src} sent {sent} bytes to rank {dst}: so many messages that {ambiguous} "
            "headers could pass for "
            f"payload. Use a larger unit than {unit}."
        )
    return sent - HEADER * headers


def _in_order(reports: Sequence[Report]) -> list[Report]:
    ranks = sorted(report.rank for report in reports)
    if not reports or ranks != list(range(reports[0].world_size)):
        world = reports[0].world_size if reports else "?"
        raise ValueError(
            f"one report of every rank is needed: world_size={world}, reports of ranks {ranks}"
        )
    return sorted(reports, key=lambda report: report.rank)


def _settled() -> dict[sockets.Connection, sockets.Traffic]:
    """Read the counts once nothing is queued, without the connection to torch's own store."""
    sockets.drain()
    store = os.environ.get("MASTER_PORT")
    return {
        end: traffic
        for end, traffic in sockets.snapshot().items()
        if store is None or int(store) not in (end.local[1], end.peer[1])
    }


def _unavailable() -> str | None:
    backend = str(dist.get_backend_config())
    if "gloo" not in backend:
        return f"it knows gloo's messages; {backend!r} may move bytes without TCP"
    transport = os.environ.get("GLOO_DEVICE_TRANSPORT", "TCP")
    if transport != "TCP":
        return f"GLOO_DEVICE_TRANSPORT={transport} frames messages differently"
    return sockets.unavailable()
