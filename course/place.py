"""Where an experiment's ranks run, chosen once: loopback, shaped hosts, torchrun's, or elsewhere.

    FOUR = Place(hosts=4, rate="200mbit")

    def compare(cases):
        def measure(here):                          # `here` is FOUR with its links up
            ranks = here.launch(program, cases)
            return [here.record(case, samples(ranks, case), experiment=NAME) for case in cases]

        return FOUR.records(measure, experiment=NAME, cases=cases)

`records` measures here and notes what other programs used meanwhile. Where no links can be made, it
says so and returns the records that the lesson's recording has of the same place, as RECORDED;
never a mixture. Under torchrun the ranks and the network are those that are there.

    records = on_gpus(lambda gpus: list(compare(cases, place=gpus)), needs=2)

runs the same on this machine's GPUs, with NCCL.
"""

import json
import os
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from course import catalogue, runs
from labkit.fabric.errors import FabricUnavailable
from labkit.fabric.fabric import Fabric
from labkit.measure import records
from labkit.measure.records import Provenance, Record, Tier
from labkit.ranks import launcher, machine, torchrun
from labkit.ranks.rank import entered_calls


def launch(program: Callable[..., Any], /, *args: Any, **options: Any) -> list[Any]:
    """Run ``program(*args)`` on ranks as `labkit.launch` does, with its options, on the CPU.

    Lessons are about this machine's CPUs and sockets. Beside GPUs, too, ranks use gloo and no rank
    starts CUDA, which takes a second: a limit of two counts what a program does. Under torchrun the
    backend is the job's.
    """
    __tracebackhide__ = True
    if not torchrun.is_here():
        options = {"backend": "gloo"} | options
    return launcher.launch(program, *args, **options)


@dataclass(frozen=True, slots=True)
class Place:
    """Hosts, the rate of their links, and how many ranks each has."""

    hosts: int = 4
    rate: str | None = None  # of each host's link; None: this machine's loopback
    ranks_per_host: int = 1
    fabric: Fabric | None = None
    """Hosts and links of another shape than `Fabric.star`; `rate` is then what records call it."""
    backend: str = "gloo"

    @classmethod
    def gpus(cls) -> "Place":
        """Return this machine's GPUs: as many ranks as there are, NCCL, no shaped links."""
        return cls(hosts=1, ranks_per_host=machine.gpu_count(), backend="nccl")

    @property
    def world_size(self) -> int:
        """Number of ranks; under torchrun all that are there."""
        if torchrun.is_here():
            return int(os.environ["WORLD_SIZE"])
        return self.hosts * self.ranks_per_host

    @property
    def link(self) -> str:
        """The rate in a word: that of the links, ``"loopback"``, ``"GPUs"`` or ``"torchrun"``."""
        own = "GPUs" if self.backend == "nccl" else "loopback"
        return "torchrun" if torchrun.is_here() else self.rate or own

    @property
    def tier(self) -> Tier:
        """What a figure is that was measured here."""
        on_loopback = self.rate is None or torchrun.is_here()
        return Tier.MEASURED if on_loopback else Tier.EMULATED

    @contextmanager
    def up(self) -> Iterator["Place"]:
        """Yield this place with its links up; `FabricUnavailable` where none can be made here."""
        if self.tier is Tier.MEASURED:
            yield replace(self, fabric=None)
            return
        fabric = self.fabric or Fabric.star(
            hosts=self.hosts, rate=self.rate, ranks_per_host=self.ranks_per_host
        )
        with fabric:
            yield replace(self, fabric=fabric)

    def watched(self, measure: Callable[["Place"], list[Record]]) -> list[Record]:
        """Measure at this place, once it is `up`, and note what other programs used meanwhile."""
        with self.up() as here:
            return runs.watched(lambda: measure(here))

    def launch(self, program: Callable[..., Any], *args: Any, **options: Any) -> list[Any]:
        """Run ``program(*args)`` on all ranks of a place that is up; the options are `launch`'s.

        Its `labkit.device()` is the CPU, beside GPUs, too, but for `Place.gpus()`.
        """
        options = {"world_size": self.world_size} | options
        if not torchrun.is_here():
            here = {"fabric": self.fabric, "backend": self.backend}
            return launch(program, *args, **here | options)
        results = launch(partial(_with_carriers, program), *args, **options)
        _carriers.clear()
        _carriers.update(*(carriers for _, carriers in results))
        return [result for result, _ in results]

    def record(
        self,
        case: str,
        samples: list[list[float]],
        *,
        experiment: str,
        params: dict[str, Any] | None = None,
        **fields: Any,
    ) -> Record:
        """Return a record of what was measured at this place; the fields are those of `Record`."""
        carried_by = ", ".join(sorted(_carriers)) if torchrun.is_here() else self.backend
        origin = self.tier, Provenance.here(carried_by or "gloo")
        hosts = len(torchrun.nodes()) if torchrun.is_here() else self.hosts
        settings = {"hosts": hosts, "rate": self.link} | (params or {})
        return Record(experiment, case, settings, samples, *origin, **fields)

    def has(self, record: Record) -> bool:
        """Tell whether a record was made at this place, as far as it says."""
        there = record.params.get("hosts", self.hosts), record.params.get("rate", self.link)
        return there == (self.hosts, self.link) and record.world_size == self.world_size

    def records(
        self,
        measure: Callable[["Place"], list[Record]],
        *,
        experiment: str,
        cases: Container[str] | None = None,
        say: runs.Say = print,
    ) -> list[Record]:
        """Measure here; where no links can be made, return what was recorded of this place.

        `measure` gets this place, up. Else `say` is told why nothing runs here, and the records are
        the recorded ones of the lesson's experiment, of all `cases` if none are given;
        `LookupError` where there are none.
        """
        try:
            return self.watched(measure)
        except FabricUnavailable as reason:
            say(f"{reason}\nShown instead: what another machine measured (RECORDED).")
        recorded = filter(self.has, catalogue.experiment(experiment).recorded())
        kept = [record for record in recorded if cases is None or record.case in cases]
        if not kept:
            there = f"the recording of {experiment} has nothing of {self}"
            raise LookupError(f"no links can be made here, and {there}.")
        return kept


_carriers: set[str] = set()
"""Under torchrun: what carried the bytes of the last launch, as its ranks tell."""


def _with_carriers(program: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, set[str]]:
    """Run a program on a rank; return also who carried its bytes, by torch's flight recorder.

    A job's group may have gloo for the CPU and NCCL for GPUs: where the tensors lay, decides.
    """
    begin = time.time_ns()
    result = program(*args, **kwargs)
    calls = json.loads(entered_calls())["entries"]
    names = [call["profiling_name"] for call in calls if call["time_created_ns"] >= begin]
    return result, {name.partition(":")[0] for name in names if not name.endswith("barrier")}


def on_gpus(
    measure: Callable[[Place], Iterable[Record]],
    *,
    needs: int = 2,
    recording: Path | None = None,
    experiment: str | None = None,
) -> list[Record]:
    """Measure on this machine's GPUs; where there are fewer than `needs`, say so in a line.

    `measure` gets `Place.gpus()`, or under torchrun what is there. Where nothing runs here, the
    records are those of the experiment in the file `recording` that NCCL made; none without one.
    """
    there = machine.gpu_count()
    if there >= needs:
        return runs.watched(lambda: list(measure(Place.gpus())))
    kept = records.load(recording, recorded=True, experiment=experiment) if recording else []
    kept = [record for record in kept if "nccl" in record.provenance.backend]
    instead = "Shown instead: a recorded run." if kept else "Nobody has recorded it yet."
    print(f"This takes {needs} GPUs; this machine has {there or 'none'}. {instead}")
    return kept
