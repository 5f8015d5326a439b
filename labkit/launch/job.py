"""What a launch hands to its ranks, as one file in its private directory."""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

from labkit.launch.placement import Placement

FINISHED, RAISED, DUMP, DUMPED = b"F", b"R", b"D", b"K"
"""What a rank and its launcher say to each other on the control socket (`labkit.launch.rank`)."""


@dataclass(frozen=True, slots=True)
class Job:
    """A program and the circumstances in which every rank runs it."""

    program: bytes
    """``(program, args)``, pickled by `labkit.launch.packing.pack`."""
    world_size: int
    backend: str
    checks: bool
    """Whether torch compares the ranks' calls (its DETAIL debug level)."""
    threads: int
    """Intra-op threads of torch per rank."""
    placements: tuple[Placement, ...]
    environment: dict[str, str]
    path: tuple[str, ...]
    cwd: str

    @classmethod
    def here(cls, **fields: object) -> Job:
        """Return a job with the calling process's environment, import path and folder."""
        circumstances = {"environment": dict(os.environ), "path": tuple(sys.path)}
        return cls(**fields, **circumstances, cwd=str(Path.cwd()))

    def save(self, directory: Path) -> None:
        """Write the job where `load` finds it."""
        (directory / "job").write_bytes(pickle.dumps(self))

    @classmethod
    def load(cls, directory: Path) -> Job:
        """Read the job that `save` wrote."""
        return pickle.loads((directory / "job").read_bytes())
