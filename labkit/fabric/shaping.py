"""Build one host's cable: a veth pair from its namespace to the bridge, shaped at both ends.

Every end has one htb class per peer, so that no transfer waits in another transfer's queue:

    host's eth0          what the host sends, a class per destination
    the bridge's port    what the host receives, a class per source (only if NICs are limited)

The classes of one end share its NIC's rate: htb takes turns between them.
"""

from contextlib import suppress
from pathlib import Path

from labkit.fabric.plan import Plan

NETWORK = "10.77.0"  # the hosts are 10.77.0.1, 10.77.0.2, ...; a private network of their own
INTERFACE = "eth0"

_ROOT = 0x10000  # htb's handle 1:0; 1:1 is the NIC, 1:2, 1:3, ... are the peers
_NIC = _ROOT + 1
_IPV4 = 0x0800
_NO_PREFIX_ROUTE = 0x200  # IFA_F_NOPREFIXROUTE
_OFFSETS = {"src": 12, "dst": 16}  # of the addresses in an IPv4 header


def address(host: int) -> str:
    """Return a host's IPv4 address."""
    return f"{NETWORK}.{host + 1}"


def make_bridge(ipr) -> int:
    """Make the bridge that joins all hosts; return its index."""
    ipr.link("add", ifname="bridge", kind="bridge")
    (index,) = ipr.link_lookup(ifname="bridge")
    ipr.link("set", index=index, state="up")
    return index


def plug_in(ipr, *, host: int, bridge: int, namespace: int, plan: Plan) -> int:
    """Lay the cable of a host from the bridge into its namespace; return the port's index."""
    port = f"port{host}"
    ipr.link(
        "add",
        ifname=port,
        kind="veth",
        mtu=plan.mtu,
        peer={"ifname": INTERFACE, "net_ns_fd": namespace, "mtu": plan.mtu},
    )
    (index,) = ipr.link_lookup(ifname=port)
    ipr.link("set", index=index, master=bridge, state="up")
    return index


def configure_host(ipr, *, host: int) -> int:
    """Give a host its addresses; `ipr` speaks to the host's namespace. Return eth0's index."""
    with suppress(OSError):  # /proc/sys is read-only in a container, and IPv6 does no harm
        Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
    ipr.link("set", index=1, state="up")  # lo is down in a new namespace
    (index,) = ipr.link_lookup(ifname=INTERFACE)
    # noprefixroute: the only route is the one below, which names the congestion control. The
    # host's default may be bbr, whose probing makes times scatter.
    ipr.addr("add", index=index, address=address(host), prefixlen=24, flags=_NO_PREFIX_ROUTE)
    ipr.link("set", index=index, state="up")
    ipr.route(
        "add",
        dst=f"{NETWORK}.0/24",
        oif=index,
        scope="link",
        prefsrc=address(host),
        metrics={"cc_algo": "cubic"},
    )
    return index


def shape(ipr, *, index: int, plan: Plan, host: int, by: str) -> None:
    """Limit what an interface sends: a class per peer, and one above them for the whole NIC.

    Args:
        ipr: Speaks to the namespace of the interface.
        index: The interface.
        plan: The rates.
        host: The host at this cable.
        by: `"dst"` at the host's own end, where the peer is the receiver of a packet; `"src"`
            at the bridge's end, where it is the sender.
    """
    nic = None if plan.nics is None else plan.nics[host]
    peers = [peer for peer in range(plan.hosts) if peer != host]
    ipr.tc("add", "htb", index=index, handle=_ROOT, default=0)  # what is not IPv4 (ARP) is free
    if nic is not None:
        _add_class(ipr, index, handle=_NIC, parent=_ROOT, rate=nic, ceil=nic, mtu=plan.mtu)
    across = [peer for peer in peers if not plan.in_one_server(host, peer)]
    for peer in peers:
        limited = nic is not None and peer in across
        ceil = plan.wire_rate(host, peer) if by == "dst" else plan.wire_rate(peer, host)
        _add_class(
            ipr,
            index,
            handle=_peer_class(peer),
            parent=_NIC if limited else _ROOT,
            rate=min(ceil, nic / len(across)) if limited else ceil,
            ceil=ceil,
            mtu=plan.mtu,
        )
        _send_through_class(ipr, index, peer=peer, by=by)


def delay(ipr, *, index: int, plan: Plan, host: int) -> None:
    """Let every packet that a host sends wait `plan.delay` seconds, behind its peer's class."""
    for peer in range(plan.hosts):
        if peer != host:
            ipr.tc(
                "add",
                "netem",
                index=index,
                handle=(2 + peer) << 16,
                parent=_peer_class(peer),
                delay=round(plan.delay * 1e6),  # microseconds
                limit=100_000,  # packets that may wait; a full queue would drop
            )


def burst(rate: float) -> int:
    """Return the bytes that may leave at once at a rate: 256 KB per Gbit/s, 64 KB at least.

    The kernel refills a class in steps of its timer and hands it packets of up to 64 KB. A burst
    smaller than what a step refills loses the rest: measured, links were 64 to 100 % too slow.
    """
    return max(65536, int(rate / 1e9 * 262144))


def _add_class(ipr, index: int, *, handle: int, parent: int, rate: float, ceil: float, mtu: int):
    ipr.tc(
        "add-class",
        "htb",
        index=index,
        handle=handle,
        parent=parent,
        rate=int(rate / 8),  # pyroute2 takes bytes per second
        ceil=int(ceil / 8),
        burst=burst(rate),
        cburst=burst(ceil),
        quantum=max(mtu, 1500) * 2,  # the bytes of a turn when classes share
        mtu=65536,
    )


def _peer_class(peer: int) -> int:
    return _NIC + 1 + peer


def _send_through_class(ipr, index: int, *, peer: int, by: str) -> None:
    octets = [int(octet) for octet in address(peer).split(".")]
    key = "0x" + "".join(f"{octet:02x}" for octet in octets)
    ipr.tc(
        "add-filter",
        "u32",
        index=index,
        parent=_ROOT,
        prio=1,
        protocol=_IPV4,
        target=_peer_class(peer),
        keys=[f"{key}/0xffffffff+{_OFFSETS[by]}"],
    )
