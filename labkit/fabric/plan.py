"""The plan of a fabric: which host may send how fast to which, before anything is built.

A plan is plain data: `labkit.fabric.fabric` writes it, `labkit.fabric.namespaces` builds it.
"""

import re
from dataclasses import dataclass
from numbers import Real

NETWORK = "10.77.0"  # private to the fabric
INTERFACE = "eth0"
MANAGEMENT, MANAGEMENT_NETWORK = "eth1", "10.78.0"  # the second interface, where hosts have one
MTU = 9000  # the largest IP packet in bytes
MOST_HOSTS = 64  # n hosts need n^2 shaping rules; 64 hosts take some seconds to build

_UNITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_RATE = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-zA-Z]+)\s*")


def address(host: int, network: str = NETWORK) -> str:
    """Return a host's IPv4 address."""
    return f"{network}.{host + 1}"


def parse_rate(rate: str | float) -> float:
    """Return a rate in bits per second: a number, or text with a unit as `tc` writes it.

    `"200mbit"`, `"1gbit"`, `"1.5gbit"`: 1 gbit is 1e9 bits per second.

    Example:
        >>> parse_rate("200mbit")
        200000000.0
    """
    if isinstance(rate, bool) or not isinstance(rate, str | Real):
        raise ValueError(f'rate={rate!r} is not a rate: a number of bits per second, or "200mbit".')
    if isinstance(rate, str):
        match = _RATE.fullmatch(rate)
        if match is None or match[2].lower() not in _UNITS:
            raise ValueError(
                f"rate={rate!r} is not a rate. Write a number and one of "
                f'{", ".join(_UNITS)}: rate="200mbit".'
            )
        bits = float(match[1]) * _UNITS[match[2].lower()]
    else:
        bits = float(rate)
    if not 0 < bits < float("inf"):
        raise ValueError(f"rate={rate!r} must be above 0 bits per second and finite.")
    return bits


@dataclass(frozen=True, slots=True)
class Plan:
    """Hosts and the rates between them, in bits per second on the wire."""

    rates: tuple[tuple[float, ...], ...]
    """`rates[src][dst]`: what src may send to dst; the diagonal is not used."""
    nics: tuple[float, ...] | None = None
    """What each host's NIC carries each way, all peers together; None: no such limit."""
    servers: tuple[int, ...] | None = None
    """Each host's server; what stays in one does not pass a NIC. None: none shares a server."""
    management: float | None = None
    """What each host may send through a second interface; None: it has none."""

    def __post_init__(self) -> None:
        if self.nics is not None and len(self.nics) != self.hosts:
            raise ValueError(f"nics has {len(self.nics)} rates for {self.hosts} hosts.")
        lengths = [len(row) for row in self.rates]
        if set(lengths) - {self.hosts}:
            raise ValueError(f"rates must be a square matrix; {self.hosts} rows have {lengths}.")
        if not 2 <= self.hosts <= MOST_HOSTS:
            raise ValueError(
                f"a fabric of {self.hosts} hosts was asked for; 2 to {MOST_HOSTS} can be built. "
                "More ranks than hosts: use ranks_per_host."
            )
        if self.servers is not None and len(self.servers) != self.hosts:
            raise ValueError(f"servers has {len(self.servers)} entries for {self.hosts} hosts.")

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return len(self.rates)

    @property
    def fastest(self) -> float:
        """The highest rate that one transfer may have, in bits per second."""
        everyone = range(self.hosts)
        return max(self.wire_rate(src, dst) for src in everyone for dst in everyone if src != dst)

    def check_host(self, **numbers: int) -> None:
        """Refuse, by the name of the argument, what is no host's number: a ValueError."""
        for name, number in numbers.items():
            if not isinstance(number, int) or not 0 <= number < self.hosts:
                raise ValueError(f"{name}={number!r} is no host: 0 to {self.hosts - 1}.")

    def wire_rate(self, src: int, dst: int) -> float:
        """Return what src can send to dst when nobody else sends, in bits per second."""
        rate = self.rates[src][dst]
        if self.nics is None or self.in_one_server(src, dst):
            return rate
        return min(rate, self.nics[src], self.nics[dst])

    def in_one_server(self, src: int, dst: int) -> bool:
        """Say whether two hosts are parts of one server."""
        return self.servers is not None and self.servers[src] == self.servers[dst]
