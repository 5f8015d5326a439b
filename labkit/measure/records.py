"""A measurement that can be kept, compared and doubted: samples with all that they depend on."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import enum
import json
import math
import os
import shlex
import stat
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from labkit.measure.timing import Summary, slowest, summarize
from labkit.measure.untrusted import one_line
from labkit.ranks import torchrun
from labkit.ranks.machine import Machine

VERSION = 3


class Tier(enum.StrEnum):
    """How a figure came to be. No figure goes without one; tiers are never mixed unsaid."""

    MEASURED = "MEASURED"  # here and now
    EMULATED = "EMULATED"  # here and now: real traffic over shaped links
    RECORDED = "RECORDED"
    """Measured, but elsewhere: machine, date and versions are in the provenance."""
    MODELLED = "MODELLED"  # computed, from a model whose parameters are named
    PUBLISHED = "PUBLISHED"  # somebody else's figure, with its source


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a record comes from."""

    machine: Machine
    backend: str
    date: str  # ISO 8601, UTC
    command: str
    nodes: tuple[tuple[int, ...], ...] = ()
    """Under torchrun: the ranks of each node; the first one is `machine`. Empty for a launch."""
    nccl: str = ""  # NCCL's version, where it carried the tensors: not always that of torch's build

    @classmethod
    def here(cls, backend: str = "gloo") -> Provenance:
        """Describe this machine, now."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        nccl = ""
        if "nccl" in backend:
            import torch  # noqa: F401 - which loads it

            with contextlib.suppress(OSError):  # a build for CPUs has none
                code = ctypes.c_int()
                ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(code))
                nccl = f"{code.value // 10**4}.{code.value // 100 % 100}.{code.value % 100}"
        return cls(Machine.here(), backend, now, _command(), torchrun.nodes(), nccl)

    def __str__(self) -> str:
        machine = self.machine  # of another tool's log little may be known
        known = {
            machine.cpu_model: machine.cpu_model,
            f"{machine.cores:g} CPUs": machine.cpus,
            f"{len(machine.gpus)} x {', '.join(sorted(set(machine.gpus)))}": machine.gpus,
            f"torch {machine.torch}": machine.torch,
            f"{self.backend} {self.nccl}".rstrip(): self.backend,
            self.date[:10]: self.date,
        }
        several = f"{len(self.nodes)} nodes, the first " if len(self.nodes) > 1 else ""
        return several + ", ".join(text for text, there in known.items() if there)


@dataclass(frozen=True, slots=True)
class Record:
    """One case of an experiment, measured on every rank."""

    experiment: str
    case: str
    """What distinguishes it within the experiment: ``"pinned together"``."""
    params: dict[str, Any]
    """The settings: world_size, pairs, bucket_cap, ..."""
    samples: list[list[float]]
    """``samples[r][i]``: seconds of iteration i on rank r."""
    tier: Tier
    provenance: Provenance
    collective: str | None = None
    """Its name in torch.distributed, where one call of one collective was timed."""
    nbytes: int | None = None
    """S, the largest buffer on a rank, in bytes."""
    values: dict[str, Any] = field(default_factory=dict)
    """Other measured or computed figures, by name; seconds and bytes."""
    predicted: float | None = None
    """What a model says that `seconds` should be; None where none was asked."""
    others: float | None = None
    """CPUs that other programs used meanwhile; None where nobody looked."""

    @property
    def world_size(self) -> int:
        """Number of ranks: as the settings say, else as many as have samples."""
        stated = self.params.get("world_size")
        return stated if isinstance(stated, int) and stated > 0 else len(self.samples)

    @property
    def seconds(self) -> list[float]:
        """Time of each iteration: the slowest rank's."""
        return slowest(self.samples)

    @property
    def summary(self) -> Summary:
        """Median, 10th and 90th percentile of `seconds`."""
        return summarize(self.seconds)

    @property
    def algbw(self) -> float | None:
        """S / t in bytes per second, from the median time."""
        return None if self.nbytes is None else self.nbytes / statistics.median(self.seconds)

    @property
    def busbw(self) -> float | None:
        """``algbw`` times the bus factor (nccl-tests): comparable with the speed of a link."""
        if self.algbw is None or self.collective is None:
            return None
        return self.algbw * bus_factor(self.collective, self.world_size)


_SHARES = ("reduce_scatter", "all_gather", "all_to_all", "gather", "scatter")
_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    **dict.fromkeys(_SHARES, lambda n: (n - 1) / n),
    **dict.fromkeys(("broadcast", "reduce", "send"), lambda n: 1.0),
}
"""busbw / algbw for n ranks. Source: nccl-tests, doc/PERFORMANCE.md."""


def _command() -> str:
    """Return the command that this process was started with, as one would type it."""
    script, spec = Path(sys.argv[0]), getattr(sys.modules["__main__"], "__spec__", None)
    if script.name == "ipykernel_launcher.py":
        return "a notebook"
    if spec is not None:  # python -m PACKAGE, or python -m PACKAGE.MODULE
        name = spec.name.removesuffix(".__main__")
        return shlex.join(["python", "-m", name, *sys.argv[1:]])
    return shlex.join([script.name, *sys.argv[1:]])


def bus_factor(collective: str, world_size: int) -> float:
    """Return busbw / algbw, as nccl-tests defines it; a ValueError where it does not."""
    if collective not in _FACTORS:
        known = ", ".join(_FACTORS)
        raise ValueError(f"no bus factor for {collective!r}; there is one for {known}.")
    return _FACTORS[collective](world_size)


def tiers_of(records: Iterable[Record]) -> str:
    """Name the tiers of records, each once: ``"MEASURED + MODELLED"``."""
    return " + ".join(dict.fromkeys(record.tier for record in records))


def for_its_owner(path: str, flags: int) -> int:
    """Open a file that others on a shared machine cannot read: the `opener` of what is personal.

    A file that is there already and open to others is closed to them.
    """
    number = os.open(path, flags, 0o600)
    if stat.S_ISREG(os.fstat(number).st_mode):  # no terminal, no /dev/null
        with contextlib.suppress(OSError):  # it is another's, or its disk knows no modes
            os.fchmod(number, 0o600)
    return number


def save(records: Sequence[Record], path: Path | str) -> Path:
    """Write records as one JSON file, a line each, atomically; return its path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(dataclasses.asdict(record)) for record in records)
    draft = path.with_name(f".{path.name}.{os.getpid()}")  # now: what was before may fail
    with open(draft, "w", encoding="utf-8", opener=for_its_owner) as file:
        file.write(f'{{"version": {VERSION}, "records": [\n{lines}\n]}}\n')
    return draft.replace(path)  # a whole file or the old one, never half


def load(
    path: Path | str, *, recorded: bool = False, experiment: str | None = None
) -> list[Record]:
    """Read the records that `save` wrote: of one experiment if it is named.

    With `recorded` they are called RECORDED: they come from another machine or time.

    Raises:
        ValueError: It is no file of records that this labkit reads; says why, in one line.
    """
    path = Path(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != VERSION:
            raise ValueError(f"version {document['version']}; this labkit reads {VERSION}")
        records = [_record(entry, f"records[{i}]") for i, entry in enumerate(document["records"])]
    except (AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(one_line(f"{path} is no file of labkit records: {error}")) from None
    records = [record for record in records if experiment in {None, record.experiment}]
    here = {Tier.MEASURED: Tier.RECORDED, Tier.EMULATED: Tier.RECORDED} if recorded else {}
    return [
        dataclasses.replace(record, tier=here.get(record.tier, record.tier)) for record in records
    ]


_KINDS: dict[str, Any] = {
    **dict.fromkeys(("experiment", "case"), str),
    **dict.fromkeys(("params", "values"), dict),
    **dict.fromkeys(("predicted", "others"), float | int | None),
    "collective": str | None,
    "nbytes": int | None,
}
"""What a record from a file must have, by name; samples and provenance are looked into."""


def _record(entry: dict[str, Any], place: str) -> Record:
    try:
        origin = entry.pop("provenance")
        machine = Machine.from_dict(origin.pop("machine"))
        nodes = tuple(tuple(map(int, ranks)) for ranks in origin.pop("nodes", []))
        provenance = Provenance(machine, **origin, nodes=nodes)
        record = Record(**entry | {"tier": Tier(entry["tier"]), "provenance": provenance})
        for name, kind in _KINDS.items():
            if not isinstance(value := getattr(record, name), kind):
                raise ValueError(f"{name}={value!r}")
        if not all(0 < seconds < math.inf for times in record.samples for seconds in times):
            raise ValueError("samples that are no seconds")
        if len({len(times) for times in record.samples}) > 1:
            raise ValueError("ranks of unlike length")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{place}: {type(error).__name__}: {error}") from None
    return record
