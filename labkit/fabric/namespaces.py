"""The process that holds the hosts of fabrics: run by `labkit.fabric.fabric`.

Its standard input is a socket, over which it is sent another one for each fabric. From that it
reads a plan as one line of JSON, builds the hosts in namespaces of their own, answers with one line
of JSON, and takes them down when that socket closes. The hosts are nothing but open files of this
process: when it ends, for whatever reason, the kernel takes all of them down.

A host's cable is a veth pair from its namespace to a bridge, shaped at both ends. Every end has one
htb class per peer, so that no transfer waits in another transfer's queue:

    the host's eth0      what the host sends, a class per destination
    the bridge's port    what the host receives, a class per source (only if NICs are limited)

The classes of one end share its NIC's rate: htb takes turns between them. A second interface, where
there is one, has a bridge of its own and one class for all that the host sends.
"""

import ctypes
import functools
import json
import os
import select
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from labkit.fabric import plan as plans

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)
_ROOT = 0x10000  # htb's handle 1:0; 1:1 is the NIC, 1:2, 1:3, ... are the peers
_NIC = _ROOT + 1
_IPV4 = 0x0800
_NO_PREFIX_ROUTE = 0x200  # IFA_F_NOPREFIXROUTE
_OFFSETS = {"src": 12, "dst": 16}  # of the addresses in an IPv4 header


class _Builder:
    """Builds the hosts of a plan; `step` says what it is doing, for the message if it fails."""

    def __init__(self, plan: plans.Plan) -> None:
        self.plan = plan
        self.step = "start"
        self.opened: list[int] = []
        """The networks: without these open files, nothing is left of them."""

    def build(self) -> list[tuple[str, ...]]:
        """Return, for each host, the namespaces that a rank has to enter."""
        self.step = "import pyroute2"
        from pyroute2 import IPRoute

        self.step = "create namespaces"
        user, home = _leave_the_machine()
        try:
            networks = self._join_hosts(IPRoute)
        finally:  # a network that a process is in outlives its files
            _call("setns", home, _CLONE_NEWNET)
        return [(*user, f"/proc/{os.getpid()}/fd/{network}") for network in networks]

    def _join_hosts(self, connect: Any) -> list[int]:
        """Make the hosts, with `connect` for the namespace that it is called in; return them."""
        for _ in range(1 + self.plan.hosts):
            _call("unshare", _CLONE_NEWNET)
            self.opened.append(_open_network())
        middle, *networks = self.opened
        _call("setns", middle, _CLONE_NEWNET)
        with connect() as ipr:  # speaks to the namespace in which it is opened
            ports = self._lay_cables(ipr, networks, plans.INTERFACE)
            if self.plan.nics is not None:
                for host, port in enumerate(ports):
                    self._shape(ipr, port, host, by="src")
            if self.plan.management is not None:
                self._lay_cables(ipr, networks, plans.MANAGEMENT)
        for host, network in enumerate(networks):
            _call("setns", network, _CLONE_NEWNET)
            with connect() as ipr:
                self._configure_host(ipr, host)
        return networks

    def _lay_cables(self, ipr: Any, networks: list[int], interface: str) -> list[int]:
        """Join all hosts by a bridge; return its ports, a host's cable ends at `interface`."""
        self.step, name, ports = "add a bridge", f"bridge-{interface}", []
        ipr.link("add", ifname=name, kind="bridge")
        (bridge,) = ipr.link_lookup(ifname=name)
        ipr.link("set", index=bridge, state="up")
        for host, network in enumerate(networks):
            self.step, name = "add a veth pair", f"{interface}-{host}"
            theirs = {"ifname": interface, "net_ns_fd": network, "mtu": plans.MTU}
            ipr.link("add", ifname=name, kind="veth", mtu=plans.MTU, peer=theirs)
            ports += ipr.link_lookup(ifname=name)
            ipr.link("set", index=ports[-1], master=bridge, state="up")
        return ports

    def _configure_host(self, ipr: Any, host: int) -> None:
        self.step = "configure a host"
        with suppress(OSError):  # /proc/sys is read-only in a container, and IPv6 does no harm
            Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
        ipr.link("set", index=1, state="up")  # lo is down in a new namespace
        self._shape(ipr, self._connect(ipr, plans.INTERFACE, plans.NETWORK, host), host, by="dst")
        if (rate := self.plan.management) is not None:
            index = self._connect(ipr, plans.MANAGEMENT, plans.MANAGEMENT_NETWORK, host)
            ipr.tc("add", "htb", index=index, handle=_ROOT, default=_NIC - _ROOT)
            _add_class(ipr, index, _NIC, _ROOT, rate, rate)

    def _connect(self, ipr: Any, interface: str, network: str, host: int) -> int:
        """Give a host's interface its address and the only route; return its index."""
        (index,) = ipr.link_lookup(ifname=interface)
        # noprefixroute: the only route is the one below, which names the congestion control. The
        # machine's default may be bbr, whose probing makes times scatter.
        here = plans.address(host, network)
        ipr.addr("add", index=index, address=here, prefixlen=24, flags=_NO_PREFIX_ROUTE)
        ipr.link("set", index=index, state="up", gso_max_segs=_segments(self.plan.fastest))
        route = {"dst": f"{network}.0/24", "oif": index, "scope": "link", "prefsrc": here}
        ipr.route("add", **route, metrics={"cc_algo": "cubic"})
        return index

    def _shape(self, ipr: Any, index: int, host: int, *, by: str) -> None:
        """Limit what an interface sends: a class per peer, and one above them for the whole NIC.

        By `"dst"` at the host's own end, where the peer is the receiver of a packet; by `"src"` at
        the bridge's end, where it is the sender.
        """
        self.step = "shape with htb and u32"
        plan = self.plan
        peers = [peer for peer in range(plan.hosts) if peer != host]
        across = [peer for peer in peers if not plan.in_one_server(host, peer)]
        nic = None if plan.nics is None else plan.nics[host]
        ipr.tc("add", "htb", index=index, handle=_ROOT, default=0)  # what is not IPv4 (ARP) is free
        if nic is not None:
            _add_class(ipr, index, _NIC, _ROOT, nic, nic)
        for peer in peers:
            ceil = plan.wire_rate(host, peer) if by == "dst" else plan.wire_rate(peer, host)
            parent, rate = _ROOT, ceil
            if nic is not None and peer in across:
                parent, rate = _NIC, min(ceil, nic / len(across))
            handle = _NIC + 1 + peer
            _add_class(ipr, index, handle, parent, rate, ceil)
            key = "0x" + "".join(f"{int(octet):02x}" for octet in plans.address(peer).split("."))
            packets = {"protocol": _IPV4, "keys": [f"{key}/0xffffffff+{_OFFSETS[by]}"]}
            ipr.tc("add-filter", "u32", index=index, parent=_ROOT, prio=1, target=handle, **packets)


def _add_class(ipr: Any, index: int, handle: int, parent: int, rate: float, ceil: float) -> None:
    place = {"index": index, "handle": handle, "parent": parent}
    rates = {"rate": int(rate / 8), "ceil": int(ceil / 8)}  # pyroute2 takes bytes per second
    sizes = {"burst": _burst(rate), "cburst": _burst(ceil), "mtu": 65536}
    turn = {"quantum": 2 * plans.MTU}  # the bytes of a turn when classes share
    ipr.tc("add-class", "htb", **place, **rates, **sizes, **turn)


_BURST_SECONDS, _PIECE_SECONDS = 0.5e-3, 0.25e-3


def _burst(rate: float) -> int:
    """Return the bytes that may leave at once at a rate: those of half a millisecond.

    A class that stood idle lets its burst pass at full speed, so that a message is early by so
    much. But a class that the kernel serves late, because the CPUs are busy, loses what a smaller
    burst would not hold. Measured on 2 busy CPUs, half a millisecond loses 1 to 4 % up to 1 Gbit/s.
    """
    return max(plans.MTU + 100, int(rate / 8 * _BURST_SECONDS))


def _segments(rate: float) -> int:
    """Return how many packets TCP may hand to a class in one piece: those of 0.25 ms, one at least.

    A class lets a piece pass whole if it has any credit at all. Unlimited, pieces are up to 64 KB,
    2.6 ms of a link of 200 Mbit/s: they made messages of 300 KB arrive in two thirds of their time.
    """
    return max(1, min(65536 // plans.MTU, int(rate / 8 * _PIECE_SECONDS / plans.MTU)))


@functools.cache
def _leave_the_machine() -> tuple[tuple[str, ...], int]:
    """Move this process into a user and a network namespace of its own.

    Return what ranks have to enter as well, and the network. Root may do without the user namespace
    where those are switched off.
    """
    user, group = os.getuid(), os.getgid()
    try:
        _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNET)
    except OSError:
        if user != 0:
            raise
        _call("unshare", _CLONE_NEWNET)
        return (), _open_network()
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return (f"/proc/{os.getpid()}/ns/user",), _open_network()


def _open_network() -> int:
    """Open this process's network namespace; it lasts as long as the open file."""
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _call(name: str, *args: int) -> None:
    if getattr(_LIBC, name)(*args):
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def main() -> None:
    """Hold fabrics until standard input ends, or none could be made: others may fare better."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Jupyter interrupts the whole process group
    parent, requests = os.getppid(), socket.socket(fileno=0)
    held: dict[socket.socket, list[int]] = {}
    # The socket closes with the parent, unless another process has inherited its other end.
    while os.getppid() == parent:
        for ready in select.select([requests, *held], [], [], 1.0)[0]:
            if ready is not requests:  # it has been closed
                for network in held.pop(ready):
                    os.close(network)
                ready.close()
                continue
            files = socket.recv_fds(requests, 1, 1)[1]
            if not files:
                return
            fabric, ends = socket.socket(fileno=files[0]), not held
            answer, held[fabric] = _make(fabric)
            with suppress(OSError):  # interrupted, it has gone
                fabric.sendall(json.dumps(answer | {"ends": ends}).encode() + b"\n")
            if ends and "step" in answer:
                return


def _make(fabric: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Build what is asked for over this socket; return the answer, and the open networks."""
    with fabric.makefile() as lines:
        line = lines.readline()
    if not line:  # interrupted, it has gone
        return {}, []
    builder = _Builder(plans.Plan(**json.loads(line)))
    try:
        return {"hosts": builder.build()}, builder.opened
    except Exception as error:  # the other side explains it
        code = getattr(error, "code", None) or getattr(error, "errno", None)
        return {"step": builder.step, "errno": code, "error": f"{error}"}, builder.opened
