"""Where the figures of other tools come from: ranks, hosts, GPUs, versions; not users."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.measure.records import Provenance
from labkit.measure.untrusted import one_line
from labkit.ranks.machine import Machine
from labkit.ranks.torchrun import Node

Say = Callable[[int | None, str], None]
"""Told the number of a line, from 1, and what is wrong there."""
_ADDRESS = re.compile(r"\d+[.-]\d+[.-]\d+[.-]\d+")
_TALK = re.compile(r".CCL_(?:DEBUG|HOSTID)")
_WHOLE = re.compile(r"-?\d{1,18}(?:\.0*)?")
_SETTING = re.compile(r"\b([NR]CCL_[A-Z0-9_]+)(?:=| set by environment to )([^\s'\"`]+)")


def lines_of(path: Path, told: Callable[[int], object] = lambda nbytes: None) -> Iterator[str]:
    """Yield the lines of a text; `told` hears every megabyte how many bytes were read."""
    nbytes, next_told = 0, 2**20
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            nbytes += len(line)
            if nbytes > next_told:
                told(nbytes)
                next_told = nbytes + 2**20
            yield line


@dataclass(slots=True)
class Devices:
    """Which ranks ran on which hosts and GPUs, as far as a log says."""

    ranks: list[tuple[str, str]] = field(default_factory=list)
    """Host and GPU, by rank."""
    complete: bool = True
    inferred: int | None = None
    """The number of ranks, where they are not all listed."""

    @property
    def world_size(self) -> int | None:
        """Number of ranks, None where nobody knows."""
        return len(self.ranks) if self.ranks and self.complete else self.inferred

    @property
    def hosts(self) -> list[str]:
        """The hosts' names, in the order of their ranks, without domains; an address is no name."""
        found = dict.fromkeys(host for host, _ in self.ranks)
        return [
            f"host {i}" if _ADDRESS.search(name) else one_line(name.partition(".")[0], 60)
            for i, name in enumerate(found)
        ]

    def params(self) -> dict[str, int | None]:
        """Return `hosts`, `gpus_per_host` (None if they differ) and `world_size`."""
        counts = set(Counter(host for host, _ in self.ranks).values())
        known = self.complete and self.ranks
        return {
            "hosts": len(self.hosts) if known else None,
            "gpus_per_host": counts.pop() if known and len(counts) == 1 else None,
            "world_size": self.world_size,
        }

    def provenance(self, *, library: str, date: str = "", command: str = "") -> Provenance:
        """Say where records come from: without names."""
        by_host: dict[str, list[int]] = {}
        for rank, (host, _) in enumerate(self.ranks):
            by_host.setdefault(host, []).append(rank)
        nodes = [
            Node(tuple(ranks), _machine(self.ranks[rank][1] for rank in ranks))
            for ranks in by_host.values()
        ]
        machine = nodes[0].machine if nodes else _machine(())
        return Provenance(machine, one_line(library, 60), date, command, tuple(nodes))


def _machine(gpus: Iterable[str]) -> Machine:
    return Machine(
        "", 0, None, 0, tuple(one_line(gpu, 80) for gpu in gpus if gpu), "", "", "", virtual=False
    )


def version(code: int) -> str:
    """Write NCCL's version number as its name: 22807 is 2.28.7, 2708 was 2.7.8."""
    base = 10000 if code >= 10000 else 1000
    return f"{code // base}.{code % base // 100}.{code % 100}"


def whole(number: Any) -> int:
    """Return a whole number of at most 18 digits.

    Raises:
        ValueError: It is none.
    """
    if isinstance(number, bool) or not _WHOLE.fullmatch(str(number)[:40].strip()):
        raise ValueError(f"no whole number: {str(number)[:20]!r}")
    return int(float(number)) if "." in str(number) else int(number)


def settings(text: str) -> dict[str, str]:
    """Return the variables of NCCL that a text sets, but for paths and addresses.

    Example:
        >>> settings("mpirun -x NCCL_ALGO=Ring -x NCCL_TOPO_FILE=/home/me/topo.xml all_reduce_perf")
        {'NCCL_ALGO': 'Ring'}
    """
    return {
        name: one_line(value.rstrip("."), 60)
        for name, value in _SETTING.findall(text)
        if "/" not in value and not _ADDRESS.search(value) and not _TALK.match(name)
    }


def case_name(collective: str, nbytes: int, params: dict[str, Any]) -> str:
    """Name a case: ``"all_reduce, 2 x 8, 1 GiB"``."""
    units = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
    scale, unit = next((found for found in units if nbytes and nbytes % found[0] == 0), units[-1])
    hosts, each = params.get("hosts"), params.get("gpus_per_host")
    ranks = f"{hosts} x {each}" if hosts and each else f"{params.get('world_size', '?')} ranks"
    place = ", in place" if params.get("in_place") else ""
    return f"{collective}, {ranks}, {nbytes // scale} {unit}{place}"
