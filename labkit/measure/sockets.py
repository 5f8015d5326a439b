"""What the kernel counts for this process's own TCP connections: the peer, the bytes each way.

Linux keeps the counts in `struct tcp_info`, which any process may read for a socket that it holds:
no root, no tracing, nothing to change in the code that owns the socket (here: gloo's threads,
inside torch).
"""

import fcntl
import os
import socket
import stat
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Offsets in struct tcp_info (linux/tcp.h). The last two came with Linux 4.19.
BYTES_RECEIVED, BYTES_SENT, BYTES_RETRANS, TCP_INFO_BYTES = 128, 200, 208, 216
SIOCOUTQNSD = 0x894B  # ioctl: bytes of the send queue that have not left (linux/sockios.h)

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Connection:
    """One end of a TCP connection. Its other end has `local` and `peer` swapped."""

    local: Address
    peer: Address
    network: int
    """The network namespace (its inode) where the addresses mean something, 0 when they mean the
    same everywhere."""

    @property
    def other_end(self) -> "Connection":
        """The same connection as the process at the other end sees it."""
        return Connection(self.peer, self.local, self.network)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one end has sent and received since the connection was opened."""

    sent: int
    """Bytes handed to the network once each: what had to be sent again is not counted."""
    received: int


def unavailable() -> str | None:
    """Say in one sentence why the counts cannot be read here; return None when they can."""
    if sys.platform != "linux" or not hasattr(socket, "TCP_INFO"):
        return f"it reads TCP_INFO, which only Linux has; this is {sys.platform}"
    with socket.socket() as probe:
        found = len(probe.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES))
    if found < TCP_INFO_BYTES:
        return f"it needs Linux 4.19 or later; {os.uname().release} does not count bytes_sent"
    return None


def snapshot() -> dict[Connection, Traffic]:
    """Read the counts of every TCP connection that this process holds."""
    network = Path("/proc/self/ns/net").stat().st_ino
    found = {}
    for sock in _tcp_sockets():
        local, peer = _address(sock.getsockname()), _address(sock.getpeername())
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        (received,) = struct.unpack_from("Q", info, BYTES_RECEIVED)
        sent, again = struct.unpack_from("QQ", info, BYTES_SENT)
        private = local[0].startswith(("127.", "::1", "fe80:"))
        found[Connection(local, peer, network if private else 0)] = Traffic(sent - again, received)
    return found


def drain(timeout: float = 30.0) -> None:
    """Wait until every byte that this process wrote has left.

    `sent` rises when bytes leave, not when they are written: on a slow link, or under a
    congestion control that paces (bbr), a finished `send` can still have bytes in the kernel's
    queue. (To wait for the other side's word as well would take 40 ms, its delayed
    acknowledgement.)

    Raises:
        TimeoutError: something is still queued after `timeout` seconds.
    """
    give_up = time.monotonic() + timeout
    while queued := sum(_not_sent(sock) for sock in _tcp_sockets()):
        if time.monotonic() > give_up:
            raise TimeoutError(f"{queued} bytes still queued in the kernel after {timeout:g} s")
        time.sleep(0.0005)


def _not_sent(sock: socket.socket) -> int:
    (queued,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), SIOCOUTQNSD, bytes(4)))
    return queued


def _tcp_sockets() -> Iterator[socket.socket]:
    """Yield each connected TCP socket of this process, as a duplicate that is closed afterwards."""
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 - a hot path of plain names
        with _duplicate(int(entry)) as sock:
            if sock is not None:
                yield sock


@contextmanager
def _duplicate(fd: int) -> Iterator[socket.socket | None]:
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            yield None
            return
        sock = socket.socket(fileno=os.dup(fd))
    except (
        OSError
    ):  # closed between the listing and here, or not a socket of a kind that Python knows
        yield None
        return
    with sock:
        internet = sock.family in (socket.AF_INET, socket.AF_INET6)
        yield sock if internet and sock.type == socket.SOCK_STREAM and _connected(sock) else None


def _connected(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:  # a listening socket
        return False
    return True


def _address(name: tuple) -> Address:
    """Return (host, port), an IPv4 address inside IPv6 as IPv4: both ends must read the same."""
    return name[0].removeprefix("::ffff:").partition("%")[0], name[1]
