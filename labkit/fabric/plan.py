"""The plan of a fabric: which host may send how fast to which, before anything is built.

A plan is plain data. The maker of a fabric writes it, `labkit.launch.hosts` builds it.
"""

from dataclasses import asdict, dataclass

ETHERNET_HEADER = 14  # bytes before each IP packet, counted by the kernel's shaper
TCP_IP_HEADERS = 52  # bytes of each packet that carry no payload: IPv4 20, TCP 20 + 12 timestamps


@dataclass(frozen=True, slots=True)
class Plan:
    """Hosts and the rates between them, in bits per second on the wire."""

    rates: tuple[tuple[float, ...], ...]
    """`rates[src][dst]`: what src may send to dst; the diagonal is not used."""
    nics: tuple[float, ...] | None = None
    """What each host's NIC carries each way, all peers together; None: no such limit."""
    servers: tuple[int, ...] | None = None
    """Which server each host is a part of: what stays in a server does not pass a NIC. None: none
    shares a server."""
    mtu: int = 9000
    """Largest IP packet in bytes."""
    delay: float = 0.0
    """Seconds that every packet waits at its sender (needs the kernel's netem)."""

    def __post_init__(self) -> None:
        if any(len(row) != self.hosts for row in self.rates):
            lengths = [len(row) for row in self.rates]
            raise ValueError(f"rates must be a square matrix; {self.hosts} rows have {lengths}.")
        if not 2 <= self.hosts <= MOST_HOSTS:
            raise ValueError(
                f"a fabric of {self.hosts} hosts was asked for; 2 to {MOST_HOSTS} can be built. "
                "More ranks than hosts: use ranks_per_host."
            )
        if self.servers is not None and len(self.servers) != self.hosts:
            raise ValueError(f"servers has {len(self.servers)} entries for {self.hosts} hosts.")
        if not 576 <= self.mtu <= 65535:
            raise ValueError(f"mtu={self.mtu} must be between 576 and 65535 bytes.")
        if self.delay < 0:
            raise ValueError(f"delay={self.delay} must not be negative (it is in seconds).")

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return len(self.rates)

    @property
    def fastest(self) -> float:
        """The highest rate that one transfer may have, in bits per second."""
        return max(
            self.wire_rate(src, dst)
            for src in range(self.hosts)
            for dst in range(self.hosts)
            if src != dst
        )

    def wire_rate(self, src: int, dst: int) -> float:
        """Return what src can send to dst when nobody else sends, in bits per second."""
        rate = self.rates[src][dst]
        if self.nics is None or self.in_one_server(src, dst):
            return rate
        return min(rate, self.nics[src], self.nics[dst])

    def in_one_server(self, src: int, dst: int) -> bool:
        """Say whether two hosts are parts of one server."""
        return self.servers is not None and self.servers[src] == self.servers[dst]

    def payload_rate(self, src: int, dst: int) -> float:
        """Return the bytes of a tensor per second that remain of `wire_rate` after headers.

        Each packet of `mtu` bytes carries `mtu - 52` bytes of payload and takes `mtu + 14` bytes
        of the wire.
        """
        share = (self.mtu - TCP_IP_HEADERS) / (self.mtu + ETHERNET_HEADER)
        return self.wire_rate(src, dst) / 8 * share

    def as_dict(self) -> dict:
        """Return the plan as JSON can carry it."""
        return asdict(self)


MOST_HOSTS = 64  # n hosts need n^2 shaping rules; 64 hosts take some seconds to build
