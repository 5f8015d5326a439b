"""What a launch could leave behind: processes, files, descriptors."""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from labkit.ranks import server


def here() -> dict[str, object]:
    """Return everything that must be the same before and after a launch of this process."""
    return {
        "ranks": children_of(server.shared().pid),
        "directories": directories_of(os.getpid()),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
    }


def stat(pid: int | str) -> list[str]:
    """Return a process's state, its parent and what follows; nothing where it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def children_of(pid: int) -> list[int]:
    names = [path.name for path in Path("/proc").glob("[0-9]*")]
    return [int(name) for name in names if stat(name)[1:2] == [str(pid)]]


def directories_of(pid: int) -> list[str]:
    places = [Path("/dev/shm"), Path(os.environ.get("TMPDIR", "/tmp"))]
    return [str(path) for place in places for path in place.glob(f"labkit-{pid}-*")]


def alive(pid: int | str) -> bool:
    """Say whether the process runs; one that ended and waits for its parent does not."""
    return stat(pid)[:1] not in ([], ["Z"])


def after(pids: Iterable[int], launcher: int) -> list[int | str]:
    """Return which of these processes live, and which directories are there, when all had time."""
    deadline = time.monotonic() + 20
    while left := [*filter(alive, pids), *directories_of(launcher)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return left
