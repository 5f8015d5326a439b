"""What this machine is: a value that goes into every record."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from labkit.ranks import affinity


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts about a machine that a measurement depends on.

    Example:
        >>> Machine.here().cpus >= 1
        True
    """

    cpu_model: str
    cpus: int  # logical CPUs that this process may use (its affinity, not what the machine has)
    cpu_quota: float | None
    """CPUs' worth of time that the control group allows; None without a limit."""
    memory: int  # bytes of main memory
    gpus: tuple[str, ...]  # names of the GPUs, in CUDA's order
    system: str  # kernel name, release and architecture
    python: str
    torch: str
    virtual: bool  # whether a hypervisor is underneath, as far as the CPU says so

    @classmethod
    def here(cls) -> Machine:
        """Describe the machine that this runs on."""
        return cls(
            cpu_model=_cpu_model(),
            cpus=usable_cpus(),
            cpu_quota=cpu_quota(),
            memory=_memory(),
            gpus=_gpu_names(),
            system=f"{platform.system()} {platform.release()} {platform.machine()}",
            python=platform.python_version(),
            torch=metadata.version("torch"),
            virtual=" hypervisor" in _cpu_info(),
        )

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Machine:
        """Rebuild it from `dataclasses.asdict`, also after a way through JSON."""
        return cls(**fields | {"gpus": tuple(fields["gpus"])})

    @property
    def cores(self) -> float:
        """CPUs' worth of work that can go on at once: usable CPUs, or the quota if it is lower."""
        return min(self.cpus, self.cpu_quota or self.cpus)


def usable_cpus() -> int:
    """Return how many logical CPUs this process may run on."""
    return len(affinity.cpus())


def cpu_quota(
    root: Path = Path("/sys/fs/cgroup"), groups: Path = Path("/proc/self/cgroup")
) -> float | None:
    """Return the control groups' limit in CPUs; None where there is none.

    Each group around this process limits it, so the lowest ``cpu.max`` (cgroup v2) counts. The
    files are below ``root``; the file ``groups`` names the group.
    """
    folders = [root]  # in a container often the only one to be seen
    with contextlib.suppress(OSError):
        for line in groups.read_text().splitlines():
            inside = root / line.rpartition(":")[2].strip("/")
            folders += [inside, *inside.parents]
    return min(filter(None, map(_limit, folders)), default=None)


def _limit(folder: Path) -> float | None:
    with contextlib.suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    return None


def gpu_count() -> int:
    """Return how many CUDA devices torch can use, without importing torch where there is none."""
    drivers = (Path("/dev/nvidiactl"), Path("/dev/kfd"))  # NVIDIA's and AMD's
    if sys.platform == "linux" and not any(driver.exists() for driver in drivers):
        return 0
    import torch

    return torch.cuda.device_count()


def _gpu_names() -> tuple[str, ...]:
    with contextlib.suppress(RuntimeError):  # they are there, and the driver is too old for torch
        if count := gpu_count():
            import torch

            return tuple(map(torch.cuda.get_device_name, range(count)))
    return ()


def _cpu_info() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/cpuinfo").read_text()
    return ""


def _cpu_model() -> str:
    model = re.search("^model name.*?: *(.*)", _cpu_info(), re.MULTILINE)
    return model[1].strip() if model else platform.processor() or platform.machine()


def _memory() -> int:
    with contextlib.suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 0
