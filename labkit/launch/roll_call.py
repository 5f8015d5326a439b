"""Who is there, before ranks of several nodes begin: all of them, and with the same versions."""

from __future__ import annotations

import json
import os
import platform
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from importlib import metadata
from typing import TYPE_CHECKING, Any

from labkit.launch.errors import LaunchError
from labkit.launch.machine import Machine

if TYPE_CHECKING:
    from torch.distributed import Store

PATIENCE = "LABKIT_JOIN_TIMEOUT"
"""Environment variable: seconds that ranks wait for each other at the start."""
_ALIKE = ("labkit", "torch", "python", "backend")


@dataclass(frozen=True, slots=True)
class Present:
    """One rank's answer to the roll call."""

    rank: int
    node: str
    """What torchrun or Slurm calls this rank's node; without them, the host."""
    host: str
    labkit: str
    torch: str
    python: str
    """Major and minor version: pickles travel between ranks."""
    backend: str
    """What carries this rank's tensors: a rank that sees no GPU of its own cannot join NCCL."""
    machine: Machine

    @classmethod
    def here(cls, rank: int, backend: str = "gloo") -> Present:
        """Describe this process."""
        try:
            version = metadata.version("labkit")
        except metadata.PackageNotFoundError:
            version = "not installed"
        host = socket.gethostname()
        return cls(
            rank=rank,
            node=os.environ.get("GROUP_RANK") or os.environ.get("SLURM_NODEID") or host,
            host=host,
            labkit=version,
            torch=metadata.version("torch"),
            python=".".join(platform.python_version_tuple()[:2]),
            backend=backend,
            machine=Machine.here(),
        )

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Present:
        """Rebuild it from `dataclasses.asdict`."""
        return cls(**fields | {"machine": Machine.from_dict(fields["machine"])})


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of several, and which ranks ran there. It has no name: records are passed on."""

    ranks: tuple[int, ...]
    machine: Machine

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Node:
        """Rebuild it from `dataclasses.asdict`."""
        return cls(tuple(fields["ranks"]), Machine.from_dict(fields["machine"]))


def nodes(present: Sequence[Present]) -> tuple[Node, ...]:
    """Group the answers by node, in the order of their first rank."""
    together: dict[str, list[Present]] = {}
    for one in present:
        together.setdefault(one.node, []).append(one)
    return tuple(
        Node(tuple(one.rank for one in ranks), ranks[0].machine) for ranks in together.values()
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
    answers = [json.loads(store.get(key)) for key in keys]
    for name in _ALIKE:  # first of all: another labkit may answer in other words
        _hold_alike(answers, name)
    return [Present.from_dict(answer) for answer in answers]


def too_few(found: str, world_size: int) -> LaunchError:
    """Say that not all ranks came in time."""
    return LaunchError(
        f"{world_size} ranks were announced, but {found} after {patience().total_seconds():g} s. "
        "Is every node started, with the same address and port, and can it reach them? "
        f"{PATIENCE}=600 waits longer."
    )


def _hold_alike(answers: Sequence[dict[str, Any]], name: str) -> None:
    versions: dict[str, list[int]] = {}
    for rank, answer in enumerate(answers):
        versions.setdefault(answer[name], []).append(rank)
    if len(versions) > 1:
        found = "; ".join(
            f"{version} on ranks {ranks} ({answers[ranks[0]]['host']})"
            for version, ranks in versions.items()
        )
        raise LaunchError(f"all ranks need the same {name}: {found}.")
