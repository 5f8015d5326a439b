"""A cluster on a laptop: hosts with network cards of their own, joined by links of chosen rates.

Hosts are Linux network namespaces, links are veth pairs that the kernel's own shaper slows down.
Ranks on them are ordinary processes, and their traffic is ordinary TCP: only the wire is short.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from labkit.fabric import rates
from labkit.fabric.errors import FabricUnavailable, explain
from labkit.fabric.plan import Plan
from labkit.fabric.shaping import INTERFACE
from labkit.launch import torchrun
from labkit.launch.placement import Placement

__all__ = ["Fabric", "FabricUnavailable"]

SWITCH = "LABKIT_NO_FABRIC"  # set to anything: behave as where namespaces are not allowed
_LABKIT_IS_IN = Path(__file__).parents[2]


class Fabric:
    """Hosts joined by shaped links, for `launch(..., fabric=...)`.

        with Fabric.star(hosts=4, rate="1gbit") as fabric:
            launch(program, world_size=4, fabric=fabric)

    Rank r runs on host `r // ranks_per_host`. Ranks of one host share its NIC, and reach each
    other over the host's own loopback, which is not slowed down. A fabric serves any number of
    launches; when its `with` block ends, or its maker dies, nothing is left of it. It never
    touches the interfaces of the machine itself.

    Args:
        pair_rates: `pair_rates[src][dst]` is what src may send to dst, in bits per second or as
            text such as `"200mbit"`. The diagonal is not used.
        nics: What each host's NIC carries each way, all peers together. None: no such limit.
        servers: Which server each host is a part of; None: none shares one (see `rails`).
        ranks_per_host: How many consecutive ranks share a host.
        mtu: Largest IP packet in bytes.
        delay: Seconds that every packet waits before it leaves a host (needs the kernel's netem).

    Raises:
        ValueError: the rates are not a square matrix of rates, there are fewer than 2 or more
            than 64 hosts, or this machine cannot carry the fastest link.
        FabricUnavailable: on entering the `with` block, where hosts cannot be made here.
    """

    def __init__(
        self,
        pair_rates: Sequence[Sequence[str | float]],
        nics: Sequence[str | float] | None = None,
        *,
        servers: Sequence[int] | None = None,
        ranks_per_host: int = 1,
        mtu: int = 9000,
        delay: float = 0.0,
    ) -> None:
        if ranks_per_host < 1:
            raise ValueError(f"ranks_per_host={ranks_per_host} must be 1 or more.")
        self.ranks_per_host = ranks_per_host
        self.plan = Plan(
            rates=tuple(
                tuple(0.0 if src == dst else rates.parse_rate(rate) for dst, rate in enumerate(row))
                for src, row in enumerate(pair_rates)
            ),
            nics=None if nics is None else tuple(rates.parse_rate(nic) for nic in nics),
            servers=None if servers is None else tuple(servers),
            mtu=mtu,
            delay=delay,
        )
        self._holder: subprocess.Popen | None = None
        self._namespaces: list[tuple[str, ...]] = []

    @classmethod
    def star(
        cls, hosts: int, rate: str | float | Sequence[str | float], **options: int | float
    ) -> "Fabric":
        """Join hosts by one switch: each has a NIC of `rate`, in both directions.

        Args:
            hosts: How many.
            rate: Of every NIC, or one for each host.
            **options: `ranks_per_host`, `mtu`, `delay` as for `Fabric`.
        """
        same = isinstance(rate, str | int | float)
        nics = [rate] * hosts if same else list(rate)
        if len(nics) != hosts:
            raise ValueError(f"hosts={hosts} but {len(nics)} rates were given; give one for each.")
        fastest = max(map(rates.parse_rate, nics), default=0.0)
        return cls([[fastest] * hosts for _ in range(hosts)], nics, **options)

    @classmethod
    def rails(
        cls, servers: int, cards: int, rate: str | float, inside: str | float, **options: int
    ) -> "Fabric":
        """Join servers that have several network cards each, as GPU servers do: a card per rank.

        Every card is a host of this fabric, so that rank r is on server ``r // cards`` and has its
        card ``r % cards`` for itself. The ranks of one server reach each other over fast links that
        pass no card, like NVLink.

        Args:
            servers: How many.
            cards: How many each server has.
            rate: Of each card, in both directions.
            inside: Of the link between any two ranks of one server.
            **options: `mtu` as for `Fabric`.
        """
        where = [card // cards for card in range(servers * cards)]
        pair_rates = [[inside if a == b else rate for b in where] for a in where]
        return cls(pair_rates, [rate] * len(where), servers=where, **options)

    @classmethod
    def from_topology(cls, topology, scale: float, **options: int | float) -> "Fabric":
        """Give every pair of hosts the bandwidth of a pair of GPUs, scaled down.

        Args:
            topology: Has `bandwidths()`, a square matrix in bytes per second: a
                `labkit.lessons.p2p_topology.topology.Topology`.
            scale: With 1/1000 a link of 93 GB/s becomes one of 744 Mbit/s.
            **options: `ranks_per_host`, `mtu`, `delay` as for `Fabric`.
        """
        if not scale > 0:
            raise ValueError(f"scale={scale} must be above 0; 1/1000 makes 744 Mbit/s of 93 GB/s.")
        matrix = topology.bandwidths()
        pair_rates = [
            [
                0.0 if src == dst else float(bandwidth) * 8 * scale
                for dst, bandwidth in enumerate(row)
            ]
            for src, row in enumerate(matrix)
        ]
        return cls(pair_rates, **options)

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return self.plan.hosts

    def payload_rate(self, src: int, dst: int) -> float:
        """Return the bytes per second that a tensor gets from host src to host dst, alone.

        That is the link's rate less the headers of Ethernet, IP and TCP (0.7 % with mtu 9000).
        """
        return self.plan.payload_rate(src, dst)

    def placement(self, rank: int, world_size: int) -> Placement:
        """Return where a rank runs: the namespaces to enter, and the interface to speak through.

        Raises:
            RuntimeError: the fabric is not up (outside its `with` block).
            ValueError: the ranks do not fit on the hosts.
        """
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
        if self._holder.poll() is not None:
            raise RuntimeError(
                f"The process that held this fabric's hosts has ended (status "
                f"{self._holder.returncode}). Make a new fabric."
            )
        host = rank // self.ranks_per_host
        return Placement(namespaces=self._namespaces[host], interface=INTERFACE, host=host)

    def __enter__(self) -> "Fabric":
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> "Fabric":
        """Build the hosts; for a notebook, whose cells cannot share a `with` block.

        Raises:
            FabricUnavailable: hosts cannot be made here.
            ValueError: this machine cannot carry the fastest link.
        """
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
                "Run the course in a Linux virtual machine or container.",
            )
        self._check_rate()
        self._start_holder()
        return self

    def stop(self) -> None:
        """Take the hosts down, if they are up."""
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.stdin.close()  # the holder ends with its input
            holder.stdout.close()
            holder.wait()

    def _check_rate(self) -> None:
        ceiling = rates.loopback_rate(wanted=self.plan.fastest)
        if self.plan.fastest > ceiling:
            raise ValueError(
                f"A link of {rates.format_rate(self.plan.fastest)} was asked for; this machine's "
                f"loopback carries {rates.format_rate(ceiling)}. Choose a lower rate or scale."
            )

    def _start_holder(self) -> None:
        with tempfile.TemporaryFile("w+") as errors:
            holder = subprocess.Popen(
                [sys.executable, "-m", "labkit.fabric.namespaces"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=_environment(),
                start_new_session=True,
            )
            try:
                holder.stdin.write(json.dumps(self.plan.as_dict()) + "\n")
                holder.stdin.flush()
                answer = json.loads(holder.stdout.readline() or "{}")
            except BaseException:  # KeyboardInterrupt too: leave nothing behind
                holder.kill()
                holder.wait()
                raise
            if "hosts" not in answer:
                holder.kill()
                holder.communicate()
                errors.seek(0)
                raise explain(answer, errors.read())
        self._holder = holder
        self._namespaces = [tuple(paths) for paths in answer["hosts"]]


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(_LABKIT_IS_IN), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}
