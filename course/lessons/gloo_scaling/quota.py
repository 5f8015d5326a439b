"""A cgroup with a CPU quota: processes in it get so much CPU time together, on any of the CPUs.

It takes root and a cgroup file system that can be written to. Here it was run with version 1; for
version 2 it follows the kernel's Documentation/admin-guide/cgroup-v2.rst, and was not run.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

PERIOD = 100_000  # µs; the kernel's default


@contextlib.contextmanager
def group(cpus: float, root: Path = Path("/sys/fs/cgroup")) -> Iterator[Path]:
    """Make a cgroup that may use so many CPUs' time; yield its folder. `OSError`: not here."""
    version_1 = root / "cpu/cpu.cfs_quota_us"
    folder = (version_1.parent if version_1.exists() else root) / f"a-quota-{os.getpid()}"
    folder.mkdir()
    try:
        most = round(cpus * PERIOD)
        if version_1.exists():
            (folder / "cpu.cfs_period_us").write_text(f"{PERIOD}")
            (folder / "cpu.cfs_quota_us").write_text(f"{most}")
        else:
            (root / "cgroup.subtree_control").write_text("+cpu")
            (folder / "cpu.max").write_text(f"{most} {PERIOD}")
        yield folder
    finally:
        folder.rmdir()


def available() -> bool:
    """Say whether a quota can be set here."""
    try:
        with group(1.0):
            return True
    except OSError:
        return False


def join(folder: Path) -> None:
    """Put this process, with all its threads, into a cgroup."""
    (folder / "cgroup.procs").write_text(f"{os.getpid()}")
