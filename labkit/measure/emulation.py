"""Measure on a fabric; where none can be made, take the recorded run and say so.

A lesson asks an `Emulation` to time its programs by the name of the case. Either the ranks run here
and now (EMULATED), or the record of the same case on another machine is returned (RECORDED). Never
a mixture of both.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from labkit.fabric.fabric import Fabric, FabricUnavailable
from labkit.launch.launcher import launch
from labkit.measure import records
from labkit.measure.records import Provenance, Record, Tier


class Emulation:
    """A fabric to measure on, or its recording.

    Args:
        experiment: Name of the experiment.
        fabric: The hosts and links, not yet started.
        recording: The file to fall back on.

    Attributes:
        why_not: Why nothing runs here, or None where it does.
    """

    def __init__(self, experiment: str, fabric: Fabric, *, recording: Path | str) -> None:
        self.experiment, self.fabric = experiment, fabric
        self.why_not: str | None = None
        self._recorded: dict[str, Record] = {}
        try:
            fabric.start()
        except FabricUnavailable as refusal:
            self._recorded = {r.case: r for r in records.load(recording, recorded=True)}
            self.why_not = str(refusal)

    @property
    def tier(self) -> Tier:
        """What every figure of this emulation is: EMULATED or RECORDED."""
        return Tier.RECORDED if self.why_not else Tier.EMULATED

    def __str__(self) -> str:
        if self.why_not is None:
            return f"EMULATED: {self.fabric.hosts} hosts, here and now."
        origin = next(iter(self._recorded.values())).provenance
        return f"{self.why_not}\nRECORDED figures are shown in their place: {origin}."

    def time(
        self,
        case: str,
        program: Callable[..., list[float] | None],
        *args: Any,
        world_size: int | None = None,
        timeout: float = 60.0,
        **about: Any,
    ) -> Record:
        """Run a program on the fabric's ranks and return its times as a record.

        Args:
            case: The name of what is measured; a recording is looked up by it.
            program: Returns its samples in seconds on the ranks that count, None on the others.
            *args: Its arguments.
            world_size: How many ranks; one for each host if not given.
            timeout: Seconds that the ranks get.
            **about: Fields of the record: `nbytes`, `params`, `values`.

        Raises:
            LookupError: nothing runs here, and the case was not recorded.
        """
        if self.why_not is not None:
            return self._recorded_case(case)
        world_size = world_size or self.fabric.hosts
        results = launch(program, *args, world_size=world_size, fabric=self.fabric, timeout=timeout)
        return self.record(case, [samples for samples in results if samples], **about)

    def record(self, case: str, samples: Sequence[Sequence[float]], **about: Any) -> Record:
        """Make a record of samples that were measured on this fabric."""
        return Record(
            self.experiment,
            case,
            about.pop("params", {}),
            [list(rank) for rank in samples],
            Tier.EMULATED,
            Provenance.here(),
            **about,
        )

    def _recorded_case(self, case: str) -> Record:
        if case not in self._recorded:
            raise LookupError(
                f"{case!r} was not recorded, and nothing can run here: {self.why_not} "
                f"Recorded are: {', '.join(self._recorded)}."
            )
        return self._recorded[case]

    def close(self) -> None:
        """Take the fabric down, if it is up."""
        self.fabric.stop()
