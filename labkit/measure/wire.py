"""The wire meter: how many bytes each rank really sent to each other rank during a block.

    def program():
        x = torch.ones(2**18)
        dist.all_reduce(x)                  # the first call opens connections: keep it outside
        with wire.meter() as m:
            dist.all_reduce(x)
        return m.report

    wire.payload(launch(program, world_size=4))   # 4 x 4 bytes: row = sender, column = receiver

**The counts are the kernel's.** Linux keeps them in `struct tcp_info`, which any process may read
for a socket that it holds: no root, no tracing, nothing to change in the code that owns the socket
(here: gloo's threads, inside torch). So they hold for code that nobody can edit.

**Payload and control.** gloo puts a 48-byte header before each message and sends two more headers
without a message, "ready to send" and "ready to receive". So what rank i sends to rank j is

    bytes = payload + 48 x (2 x messages from i to j + messages from j to i)

`matrix` returns the left side. `payload` returns the first term on the right, by this rule: where
the block held nothing but sends and receives, both terms are known from the calls, and must add up
to the kernel's count to the last byte. Where a collective of the library ran, its messages cannot
be seen; the payload of each pair is then taken to be a multiple of `UNIT` bytes, and the rest must
be a whole number of headers. What does not add up is refused.
"""

import contextlib
import fcntl
import math
import os
import socket
import stat
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist

from labkit.measure.calls import ANY_SOURCE, Call, CallLog

HEADER = 48
"""Bytes of gloo's message header: six 8-byte fields (gloo/transport/tcp/pair.h, struct Op)."""
SEGMENT = 2**20
"""Largest message of gloo's collectives; larger tensors go in several (its kMaxSegmentSize)."""

UNIT = 4096  # bytes: what the payload of collectives is taken to be a multiple of
_AMBIGUOUS = UNIT // math.gcd(UNIT, HEADER)  # so many headers are themselves a multiple of the unit

_INSTEAD = "Of a real model take wire.matrix(reports): all bytes, with the headers."

# Offsets in struct tcp_info (linux/tcp.h). The last two came with Linux 4.19.
_BYTES_RECEIVED, _BYTES_SENT, _BYTES_RETRANS, _TCP_INFO_BYTES = 128, 200, 208, 216
_SIOCOUTQNSD = 0x894B  # ioctl: bytes of the send queue that have not left (linux/sockios.h)


class WireUnavailable(RuntimeError):
    """The bytes cannot be counted here; the message says why. `counted` works all the same."""


class WireMismatch(ValueError):
    """The bytes do not add up; the message says between which ranks and what to do."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One end of a TCP connection. Its other end has `local` and `peer` swapped."""

    local: tuple[str, int]
    peer: tuple[str, int]
    network: int  # the network namespace (its inode) of private addresses; 0 for others

    @property
    def other_end(self) -> "Connection":
        """The same connection as the process at the other end sees it."""
        return Connection(self.peer, self.local, self.network)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one end has sent and received since the connection was opened."""

    sent: int  # bytes handed to the network once each: what had to be sent again is not counted
    received: int


@dataclass(frozen=True, slots=True)
class Report:
    """What one rank saw during a block. Picklable: return it from the rank."""

    rank: int
    world_size: int
    calls: tuple[Call, ...]  # sends, receives and collectives that the block called, in order
    flows: dict[Connection, Traffic]
    """Bytes during the block, per connection. What was received may include the start of what a
    faster rank did next; what was sent is exact."""
    opened: frozenset[Connection] = frozenset()
    closed: frozenset[Connection] = frozenset()
    unavailable: str | None = None  # why the kernel's counts are missing, or None


@dataclass(slots=True)
class Meter:
    """What `meter` yields; `report` is there once the block has ended."""

    _report: Report | None = None

    @property
    def report(self) -> Report:
        """This rank's report; a RuntimeError before the block has ended."""
        if self._report is None:
            raise RuntimeError(
                "the wire meter's report exists only after its `with` block has ended"
            )
        return self._report


@contextmanager
def meter(log: CallLog | None = None) -> Iterator[Meter]:
    """Count, inside a rank, the bytes that this process sends to each other rank during the block.

    All groups of the process are counted together. The block must wait for whatever it starts.
    Where the counts cannot be read the block runs all the same, its calls are listed, and `matrix`
    says what is missing. Only calls of torch.distributed are intercepted, a few tens of
    microseconds each; `log` may be a `CallLog` of your own, which sees more.
    """
    result, log, reason = Meter(), log or CallLog(), _unavailable_to_group()
    before = {} if reason else _counts()
    with log:
        yield result
    after = {} if reason else _counts()
    flows, zero = {}, Traffic(0, 0)
    for end, now in after.items():
        then = before.get(end, zero)
        flows[end] = Traffic(now.sent - then.sent, now.received - then.received)
    result._report = Report(
        rank=dist.get_rank(),
        world_size=dist.get_world_size(),
        calls=tuple(log.calls),
        flows=flows,
        opened=frozenset(after.keys() - before.keys()),
        closed=frozenset(before.keys() - after.keys()),
        unavailable=reason,
    )


def matrix(reports: Sequence[Report]) -> np.ndarray:
    """Return every byte that each rank sent to each other rank, headers included.

    Of each rank's `Report`, in any order: int64, row = sender, column = receiver.

    Raises:
        WireUnavailable: a rank could not read the kernel's counts.
        WireMismatch: a connection between two ranks was closed in the block: its bytes are lost.
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
                    f"rank {report.rank} closed a connection to rank {owner[end.other_end]} during "
                    "the block: its bytes are lost. Destroy process groups outside the block."
                )
        for end, traffic in report.flows.items():
            if end.other_end in owner:  # else not a rank: a store, a debugger
                sent[report.rank, owner[end.other_end]] += traffic.sent
    return sent


def payload(reports: Sequence[Report]) -> np.ndarray:
    """Return the payload that each rank sent to each other rank, without gloo's headers.

    As `matrix`; the rule is at the top of this module. Where the block called collectives of the
    library, every message must be a multiple of `UNIT`: choose tensors that divide by
    2 x world_size x UNIT.

    Raises:
        WireMismatch: the bytes are not payload plus whole headers, or connections were opened.
    """
    reports = _in_order(reports)
    sent = matrix(reports)
    ends = {end for report in reports for end in report.flows}
    if any(end.other_end in ends for report in reports for end in report.opened):
        raise WireMismatch(
            "connections between ranks were opened during the block, and their first bytes are "
            f"not gloo's frames. Make the same calls once before the block. {_INSTEAD}"
        )
    if all(call.kind in ("send", "recv") for report in reports for call in report.calls):
        return _confirmed(sent, reports)
    pairs = np.ndenumerate(sent)
    return np.array([_multiple(int(x), *pair) for pair, x in pairs]).reshape(sent.shape)


def counted(reports: Sequence[Report]) -> np.ndarray:
    """Return the bytes that each rank *asked* to send to each other rank: the sum of its sends.

    As `matrix`, on every platform and backend; of what the library's own collectives send it knows
    nothing.
    """
    reports = _in_order(reports)
    requested = np.zeros((len(reports), len(reports)), dtype=np.int64)
    for report in reports:
        for call in report.calls:
            if call.kind == "send":
                requested[report.rank, call.peer] += call.nbytes
    return requested


def _confirmed(sent: np.ndarray, reports: Sequence[Report]) -> np.ndarray:
    """Return `counted`, after checking it against the kernel's bytes."""
    requested, headers, known = counted(reports), np.zeros_like(sent), True
    for report in reports:
        for call in report.calls:
            if call.peer == ANY_SOURCE:
                known = False  # how many headers it answered with, and to whom
            else:
                headers[report.rank, call.peer] += 2 if call.kind == "send" else 1
    wanted = requested + HEADER * headers
    excess = sent - wanted
    mistaken = excess != 0 if known else (excess < 0) | (excess % HEADER != 0)
    if mistaken.any():
        i, j = np.argwhere(mistaken)[0]
        raise WireMismatch(
            f"rank {i} asked to send {requested[i, j]} bytes to rank {j}, which with "
            f"{headers[i, j]} headers of {HEADER} makes {wanted[i, j]}; the kernel sent "
            f"{sent[i, j]}. Does the block wait for all that it starts, and does nothing else run "
            f"on this rank? {_INSTEAD}"
        )
    return requested


def _multiple(sent: int, src: int, dst: int) -> int:
    """Return the largest multiple of `UNIT` that leaves a whole number of headers in `sent`."""
    possible = range(min(_AMBIGUOUS, sent // HEADER + 1))
    headers = next((k for k in possible if (sent - HEADER * k) % UNIT == 0), None)
    what = f"rank {src} sent {sent} bytes to rank {dst}"
    if headers is None:
        raise WireMismatch(
            f"{what}: not a multiple of {UNIT} plus whole {HEADER}-byte headers. Choose tensors "
            f"whose bytes divide by 2 x world_size x {UNIT}. {_INSTEAD}"
        )
    if 6 * (sent // SEGMENT) >= _AMBIGUOUS:
        raise WireMismatch(
            f"{what}: so many messages that {_AMBIGUOUS} headers could pass for payload. "
            f"Send less in one block. {_INSTEAD}"
        )
    return sent - HEADER * headers


def _in_order(reports: Sequence[Report]) -> list[Report]:
    if not isinstance(reports, Sequence) or not all(isinstance(x, Report) for x in reports):
        raise TypeError(
            "one report of every rank is needed, which each returns as meter.report, "
            f"got a {type(reports).__name__}: {str(reports)[:40]}"
        )
    ranks = sorted(report.rank for report in reports)
    if not reports or ranks != list(range(reports[0].world_size)):
        world = reports[0].world_size if reports else "?"
        raise ValueError(
            f"one report of every rank is needed: world_size={world}, reports of ranks {ranks}"
        )
    return sorted(reports, key=lambda report: report.rank)


def unavailable() -> str | None:
    """Say in one sentence why this system does not tell the counts; None where it does."""
    if sys.platform != "linux" or not hasattr(socket, "TCP_INFO"):
        return f"it reads TCP_INFO, which only Linux has; this is {sys.platform}"
    with socket.socket() as probe:
        length = len(probe.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES))
    if length < _TCP_INFO_BYTES:
        return f"it needs Linux 4.19 or later; {os.uname().release} does not count bytes_sent"
    return None


def _unavailable_to_group() -> str | None:
    backend = str(dist.get_backend_config())
    if "gloo" not in backend:
        return f"it knows gloo's messages; {backend!r} may move bytes without TCP"
    transport = os.environ.get("GLOO_DEVICE_TRANSPORT", "TCP")
    if transport != "TCP":
        return f"GLOO_DEVICE_TRANSPORT={transport} frames messages differently"
    return unavailable()


def _counts() -> dict[Connection, Traffic]:
    """Read the counts once nothing is queued, without the connection to torch's own store."""
    _drain()
    store = int(os.environ.get("MASTER_PORT", -1))
    counts = _snapshot().items()
    return {end: count for end, count in counts if store not in (end.local[1], end.peer[1])}


def _drain(timeout: float = 30.0) -> None:
    """Wait until every byte that this process wrote has left.

    `sent` rises when bytes leave, not when they are written: on a slow link, or under a
    congestion control that paces (bbr), a finished `send` can still have bytes in the kernel's
    queue. (To wait for the other side's word as well would take 40 ms, its delayed
    acknowledgement.)
    """

    def not_sent(sock: socket.socket) -> int:
        return struct.unpack("i", fcntl.ioctl(sock.fileno(), _SIOCOUTQNSD, bytes(4)))[0]

    give_up = time.monotonic() + timeout
    while queued := sum(map(not_sent, _tcp_sockets())):
        if time.monotonic() > give_up:
            raise TimeoutError(f"{queued} bytes still queued in the kernel after {timeout:g} s")
        time.sleep(0.0005)


def _snapshot() -> dict[Connection, Traffic]:
    """Read the counts of every TCP connection that this process holds."""
    network = Path("/proc/self/ns/net").stat().st_ino
    counts = {}
    for sock in _tcp_sockets():
        local, peer = _address(sock.getsockname()), _address(sock.getpeername())
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        (received,) = struct.unpack_from("Q", info, _BYTES_RECEIVED)
        sent, again = struct.unpack_from("QQ", info, _BYTES_SENT)
        private = local[0].startswith(("127.", "::1", "fe80:"))
        counts[Connection(local, peer, network if private else 0)] = Traffic(sent - again, received)
    return counts


def _tcp_sockets() -> Iterator[socket.socket]:
    """Yield each connected TCP socket of this process, as a duplicate that is closed afterwards."""
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 - a hot path of plain names
        with contextlib.ExitStack() as closing:
            try:
                if not stat.S_ISSOCK(os.fstat(int(entry)).st_mode):
                    continue
                sock = closing.enter_context(socket.socket(fileno=os.dup(int(entry))))
                sock.getpeername()
            except OSError:  # closed meanwhile, of a kind unknown to Python, or listening
                continue
            internet = sock.family in (socket.AF_INET, socket.AF_INET6)
            if internet and sock.type == socket.SOCK_STREAM:
                yield sock


def _address(name: tuple[Any, ...]) -> tuple[str, int]:
    """Return (host, port), an IPv4 address inside IPv6 as IPv4: both ends must read the same."""
    return name[0].removeprefix("::ffff:").partition("%")[0], name[1]
