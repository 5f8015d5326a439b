"""What a launch could leave behind: processes, files, descriptors."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

from labkit.ranks import server


def of(pid: int) -> dict[str, object]:
    """Return everything that must be the same before and after a launch of this process."""
    return {
        "ranks": children_of(server.shared().pid),
        "directories": directories_of(pid),
        "descriptors": descriptors(),
    }


def children_of(pid: int) -> list[int]:
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == pid:
            children.append(int(stat.parent.name))
    return children


def directories_of(pid: int) -> list[str]:
    places = [Path("/dev/shm"), Path(os.environ.get("TMPDIR", "/tmp"))]
    return [str(path) for place in places for path in place.glob(f"labkit-{pid}-*")]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def alive(pid: int | str) -> bool:
    """Say whether the process runs; one that ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def after(pids: Iterable[int], launcher: int) -> list[int | str]:
    """Return which of these processes live, and which directories are there, when all had time."""
    deadline = time.monotonic() + 20
    while left := [*filter(alive, pids), *directories_of(launcher)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return left
