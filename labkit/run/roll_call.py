"""Who is there, before ranks of several nodes begin: all of them, and with the same versions."""

from __future__ import annotations

import json
import os
import platform
import socket
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from importlib import metadata
from typing import TYPE_CHECKING

from labkit.run.failures import LaunchError

if TYPE_CHECKING:
    from torch.distributed import Store

PATIENCE = "LABKIT_JOIN_TIMEOUT"
"""Environment variable: seconds that ranks wait for each other at the start."""
_ALIKE = ("labkit", "torch", "python")


@dataclass(frozen=True, slots=True)
class Present:
    """One rank's answer to the roll call."""

    rank: int
    host: str
    labkit: str
    torch: str
    python: str
    """Major and minor version: pickles travel between ranks."""

    @classmethod
    def here(cls, rank: int) -> Present:
        """Describe this process."""
        try:
            version = metadata.version("labkit")
        except metadata.PackageNotFoundError:
            version = "not installed"
        return cls(
            rank=rank,
            host=socket.gethostname(),
            labkit=version,
            torch=metadata.version("torch"),
            python=".".join(platform.python_version_tuple()[:2]),
        )


def patience() -> timedelta:
    """Return how long to wait for the other ranks: LABKIT_JOIN_TIMEOUT, or 120 s."""
    return timedelta(seconds=float(os.environ.get(PATIENCE, "120")))


def call(store: Store, me: Present, *, world_size: int) -> list[Present]:
    """Answer, and wait for everybody's answer.

    Args:
        store: A store that all ranks share, used by nothing else.
        me: This rank's answer.
        world_size: How many ranks there must be.

    Returns:
        The answers, by rank.

    Raises:
        LaunchError: Ranks did not answer in time, or run other versions; names them.
    """
    store.set(str(me.rank), json.dumps(asdict(me)))
    keys = [str(rank) for rank in range(world_size)]
    try:
        store.wait(keys, patience())
    except RuntimeError:  # torch's DistStoreError among them
        missing = [rank for rank, key in enumerate(keys) if not store.check([key])]
        raise too_few(f"ranks {missing} are missing", world_size) from None
    present = [Present(**json.loads(store.get(key))) for key in keys]
    for name in (field.name for field in fields(Present) if field.name in _ALIKE):
        _hold_alike(present, name)
    return present


def too_few(found: str, world_size: int) -> LaunchError:
    """Say that not all ranks came in time."""
    return LaunchError(
        f"{world_size} ranks were announced, but {found} after {patience().total_seconds():g} s. "
        "Is every node started, with the same address and port, and can it reach them? "
        f"{PATIENCE}=600 waits longer."
    )


def _hold_alike(present: list[Present], name: str) -> None:
    versions: dict[str, list[int]] = {}
    for one in present:
        versions.setdefault(getattr(one, name), []).append(one.rank)
    if len(versions) > 1:
        found = "; ".join(
            f"{version} on ranks {ranks} ({present[ranks[0]].host})"
            for version, ranks in versions.items()
        )
        raise LaunchError(f"all ranks need the same {name}: {found}.")
