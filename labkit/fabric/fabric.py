"""A cluster on a laptop: hosts with network cards of their own, joined by links of chosen rates.

Hosts are Linux network namespaces, links are veth pairs that the kernel's own shaper slows down.
Ranks on them are ordinary processes, and their traffic is ordinary TCP: only the wire is short.
"""

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from labkit.fabric.errors import FabricUnavailable, explain
from labkit.fabric.plan import INTERFACE, MTU, Plan, address, parse_rate
from labkit.ranks import server, torchrun
from labkit.ranks.rank import Placement

__all__ = ["Fabric", "FabricUnavailable"]

SWITCH = "LABKIT_NO_FABRIC"  # set to anything: behave as where namespaces are not allowed
_HOLD = "from labkit.fabric.namespaces import main; main()"
_ETHERNET_HEADER = 14  # bytes before each IP packet, counted by the kernel's shaper
_TCP_IP_HEADERS = 52  # bytes of each packet that carry no payload: IPv4 20, TCP 20 + 12 timestamps
_fastest_seen = 0.0
_holder: "_Holder | None" = None
_lock = threading.Lock()


class Fabric:
    """Hosts joined by shaped links, for `launch(..., fabric=...)`.

        with Fabric.star(hosts=4, rate="1gbit") as fabric:
            launch(program, world_size=4, fabric=fabric)

    Rank r runs on host `r // ranks_per_host`. Ranks of one host share its NIC, and reach each
    other over the host's own loopback, which is not slowed down. A fabric serves any number of
    launches; when its `with` block or the process ends, nothing is left of it. It never touches
    the machine's own interfaces.

    Args:
        pair_rates: `pair_rates[src][dst]` is what src may send to dst, in bits per second or as
            text such as `"200mbit"`. The diagonal is not used.
        nics: What each host's NIC carries each way, all peers together. None: no such limit.
        servers: Which server each host is a part of; None: none shares one (see `rails`).
        ranks_per_host: How many consecutive ranks share a host.
        management: What a second interface of each host carries, eth1, as clusters have one. Ranks
            use eth0 unless GLOO_SOCKET_IFNAME says otherwise when a group is made.

    Raises:
        ValueError: the rates are no square matrix of rates, or for fewer than 2 or more than 64
            hosts; on entering the block, this machine cannot carry the fastest link.
        FabricUnavailable: on entering the block, hosts cannot be made here.
    """

    def __init__(
        self,
        pair_rates: Sequence[Sequence[str | float]],
        nics: Sequence[str | float] | None = None,
        *,
        servers: Sequence[int] | None = None,
        ranks_per_host: int = 1,
        management: str | float | None = None,
    ) -> None:
        _check_counts(ranks_per_host=ranks_per_host)
        self.ranks_per_host = ranks_per_host
        self.plan = Plan(
            rates=tuple(
                tuple(0.0 if src == dst else parse_rate(rate) for dst, rate in enumerate(row))
                for src, row in enumerate(pair_rates)
            ),
            nics=None if nics is None else tuple(map(parse_rate, nics)),
            servers=None if servers is None else tuple(servers),
            management=None if management is None else parse_rate(management),
        )
        self._holder: _Holder | None = None
        self._tie: socket.socket | None = None
        """What keeps the hosts up as long as it is open."""
        self._namespaces: list[list[str]] = []

    def __repr__(self) -> str:
        rates = sorted({rate / 1e6 for row in self.plan.rates for rate in row if rate})
        links = f"{rates[0]:g}" if len(rates) == 1 else f"{rates[0]:g} to {rates[-1]:g}"
        each = self.ranks_per_host
        return f"<Fabric: {self.hosts} hosts, ranks on each: {each}, links of {links} Mbit/s>"

    @classmethod
    def star(
        cls, hosts: int, rate: str | float | Sequence[str | float], **options: Any
    ) -> "Fabric":
        """Join hosts by one switch: each has a NIC of `rate`, in both directions.

        Several rates are one for each host; the options are those of `Fabric`.
        """
        _check_counts(hosts=hosts)
        several = isinstance(rate, Iterable) and not isinstance(rate, str)
        rates: Any = rate if several else [rate] * hosts
        nics = tuple(map(parse_rate, rates))
        if len(nics) != hosts:
            raise ValueError(f"hosts={hosts} but {len(nics)} rates were given; give one for each.")
        fastest = max(nics, default=0.0)
        return cls([[fastest] * hosts for _ in range(hosts)], nics, **options)

    @classmethod
    def rails(
        cls, servers: int, cards: int, rate: str | float, inside: str | float, **options: int
    ) -> "Fabric":
        """Join servers that have several network cards each, as GPU servers do: a card per rank.

        Every card is a host of this fabric: rank r is on server ``r // cards`` and has its card
        ``r % cards`` for itself. `rate` is that of each card, in both directions, `inside` that of
        the link between any two ranks of one server, which passes no card, like NVLink.
        """
        _check_counts(servers=servers, cards=cards)
        server_of = [card // cards for card in range(servers * cards)]
        pair_rates = [[inside if a == b else rate for b in server_of] for a in server_of]
        return cls(pair_rates, [rate] * len(server_of), servers=server_of, **options)

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return self.plan.hosts

    def payload_rate(self, src: int, dst: int) -> float:
        """Return the bytes per second that a tensor gets from host src to host dst, alone.

        The headers of Ethernet, IP and TCP take the rest of the link's rate: 0.7 %.
        """
        self.plan.check_host(src=src, dst=dst)
        share = (MTU - _TCP_IP_HEADERS) / (MTU + _ETHERNET_HEADER)
        return self.plan.wire_rate(src, dst) / 8 * share

    def address(self, host: int) -> str:
        """Return a host's IPv4 address, for a TCPStore or a server of one's own on it."""
        self.plan.check_host(host=host)
        return address(host)

    def placement(self, rank: int, world_size: int) -> Placement:
        """Return where a rank runs: the namespaces to enter, and the interface to speak through."""
        room = self.hosts * self.ranks_per_host
        if world_size > room:
            raise ValueError(
                f"world_size={world_size} does not fit on {self.hosts} hosts with "
                f"ranks_per_host={self.ranks_per_host}: there is room for {room} ranks."
            )
        if self._holder is None:
            raise RuntimeError(
                "This fabric is not up. Use `with Fabric... as fabric:`, or start()."
            )
        if (status := self._holder.process.poll()) is not None:
            raise RuntimeError(
                f"The process that held this fabric's hosts has ended (status {status}). Make a "
                "new fabric."
            )
        host = rank // self.ranks_per_host
        return Placement(tuple(self._namespaces[host]), INTERFACE, address(host))

    def __enter__(self) -> "Fabric":
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> "Fabric":
        """Build the hosts; for a notebook, whose cells cannot share a `with` block."""
        if self._holder is not None:
            raise RuntimeError("This fabric is already up.")
        if switched_off := os.environ.get(SWITCH):
            raise FabricUnavailable(f"it is switched off by {SWITCH}={switched_off}", "Unset it.")
        if torchrun.is_here():
            raise FabricUnavailable(
                "ranks that torchrun started stay where they are", "Run it without torchrun."
            )
        if sys.platform != "linux":
            raise FabricUnavailable(
                f"network namespaces are Linux's, and this is {sys.platform}",
                "Run this in a Linux virtual machine or container.",
            )
        fastest = self.plan.fastest
        if fastest > (ceiling := _loopback_rate(wanted=fastest)):
            raise ValueError(
                f"A link of {fastest / 1e9:.4g} Gbit/s was asked for; this machine's loopback "
                f"carries {ceiling / 1e9:.4g} Gbit/s. Choose a lower rate or scale."
            )
        holder = _shared_holder()
        self._tie, self._namespaces = holder.make(self.plan)
        self._holder = holder
        return self

    def stop(self) -> None:
        """Take the hosts down, if they are up."""
        holder, self._holder = self._holder, None
        if holder is not None and self._tie is not None:
            with self._tie:
                if holder.owner == os.getpid():  # and not a fork of it
                    self._tie.shutdown(socket.SHUT_WR)
                    self._tie.recv(1)  # its other end closes when they are gone


class _Holder:
    """The process that holds the hosts of all this process's fabrics. Use `_shared_holder`."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (open as long as it lives)
        self._requests, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                server.interpreter(_HOLD),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                start_new_session=True,
            )

    def make(self, plan: Plan) -> tuple[socket.socket, list[list[str]]]:
        """Build a fabric's hosts; return what keeps them up, and the namespaces of each."""
        ours, theirs = socket.socketpair()
        answer: dict[str, Any] = {}
        try:
            with theirs, contextlib.suppress(ConnectionError):  # it died, and its stderr tells
                socket.send_fds(self._requests, [b" "], [theirs.fileno()])
                theirs.close()
                ours.sendall(json.dumps(asdict(plan)).encode() + b"\n")
                with ours.makefile() as lines:
                    answer = json.loads(lines.readline() or "{}")
            if "hosts" not in answer:
                if answer.get("ends", True):
                    self.process.wait()
                self._errors.seek(0)
                raise explain(answer, self._errors.read())
        except BaseException:  # KeyboardInterrupt too: leave nothing behind
            ours.close()
            raise
        return ours, answer["hosts"]

    def stop(self) -> None:
        """End it, and what it holds."""
        if self.owner == os.getpid():
            self._requests.close()
            self.process.wait()
            self._errors.close()


def _shared_holder() -> _Holder:
    """Return this process's holder; the first call starts it."""
    global _holder
    with _lock:
        ours = _holder is not None and _holder.owner == os.getpid()
        if _holder is None or not ours or _holder.process.poll() is not None:
            _holder = _Holder()
            atexit.register(_holder.stop)
        return _holder


def _check_counts(**counts: object) -> None:
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"{name}={count!r} must be a whole number, 1 or more.")


def _loopback_rate(wanted: float = 0.0) -> float:
    """Return what one TCP connection over this machine's loopback carries, in bits per second.

    A shaped link can only slow traffic down, so no fabric is faster than this. Other programs can
    make a measurement too low but never too high, so the highest of this process counts; while it
    is below `wanted`, it is measured again, ever longer, for up to a second in all.
    """
    global _fastest_seen
    seconds = 0.03
    while not _fastest_seen or (_fastest_seen < wanted and seconds < 0.5):
        _fastest_seen = max(_fastest_seen, _measure_loopback(seconds))
        seconds *= 2
    return _fastest_seen


def _measure_loopback(seconds: float) -> float:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    block, room, received = bytes(1 << 18), bytearray(1 << 18), 0

    def pour() -> None:
        until = time.perf_counter() + seconds
        with sender:
            while time.perf_counter() < until:
                sender.sendall(block)

    pouring = threading.Thread(target=pour)
    begin = time.perf_counter()
    pouring.start()
    with receiver:
        while count := receiver.recv_into(room):
            received += count
    pouring.join()
    return received * 8 / (time.perf_counter() - begin)
