"""Which ranks ran on which hosts and GPUs, as far as a log says."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from labkit.measure.records import Provenance
from labkit.measure.untrusted import one_line
from labkit.ranks.machine import Machine

Problem = Callable[[int | None, str], None]
"""Called with the number of a line, from 1, and what is wrong there."""


class Place(NamedTuple):
    """Where one rank ran; empty where the log does not say."""

    host: str
    gpu: str
    """The model's name."""
    pci: str = ""
    """The GPU's PCI address, which tells the slot: ``"0000:9d:00"``."""


@dataclass(slots=True)
class Layout:
    """The places of a job's ranks."""

    places: list[Place] = field(default_factory=list)
    """By rank."""
    complete: bool = True
    inferred: int | None = None
    """The number of ranks, where they are not all listed."""

    @property
    def world_size(self) -> int | None:
        """Number of ranks, None where nobody knows."""
        return len(self.places) if self.places and self.complete else self.inferred

    @property
    def hosts(self) -> list[str]:
        """The hosts' names, in the order of their ranks."""
        return [_short(host, 64) for host in dict.fromkeys(place.host for place in self.places)]

    @property
    def slots(self) -> list[str]:
        """The PCI addresses in use, each once, in the order of the ranks."""
        return [_short(pci, 20) for pci in dict.fromkeys(p.pci for p in self.places) if pci]

    def params(self) -> dict[str, int | None]:
        """Return `hosts`, `gpus_per_host` (None if they differ) and `world_size`."""
        counted = Counter(place.host for place in self.places)
        counts = set(counted.values())
        known = self.complete and self.places
        return {
            "hosts": len(counted) if known else None,
            "gpus_per_host": counts.pop() if known and len(counts) == 1 else None,
            "world_size": self.world_size,
        }

    def provenance(self, *, library: str, date: str = "", command: str = "") -> Provenance:
        """Say where records come from."""
        by_host: dict[str, list[int]] = {}
        for rank, place in enumerate(self.places):
            by_host.setdefault(place.host, []).append(rank)
        nodes = tuple(map(tuple, by_host.values()))
        gpus = [self.places[rank].gpu for rank in nodes[0]] if nodes else []
        named = tuple(_short(gpu, 80) for gpu in gpus if gpu)
        return _provenance(named, _short(library, 60), date, command, nodes)


@cache
def _provenance(gpus: tuple[str, ...], library: str, date: str, command: str, nodes: tuple):
    """Tests of one cluster share it: a thousand hosts have half a million pairs."""
    machine = Machine("", 0, None, 0, gpus, "", "", "", virtual=False)
    return Provenance(machine, library, date, command, nodes)


@cache
def _short(text: str, most: int) -> str:
    return one_line(text, most)


def case_name(collective: str, nbytes: int, params: dict[str, Any]) -> str:
    """Name a case: ``"all_reduce, 2 x 8, 1 GiB"``."""
    units = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
    scale, unit = next((known for known in units if nbytes and nbytes % known[0] == 0), units[-1])
    hosts, each = params.get("hosts"), params.get("gpus_per_host")
    ranks = f"{hosts} x {each}" if hosts and each else f"{params.get('world_size', '?')} ranks"
    place = ", in place" if params.get("in_place") else ""
    return f"{collective}, {ranks}, {nbytes // scale} {unit}{place}"
