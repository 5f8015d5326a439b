"""What the course needs of a machine, each checked by trying it, with what a lack means."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from labkit.launch import machine

GIB = 2**30
OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    found: str
    state: str = "ok"
    """`ok`; `note`: the course runs, but with less; `missing`: it cannot run."""
    meaning: str = ""
    """What it means for the course."""
    remedy: str = ""
    """What to do about it."""


def examine() -> list[Finding]:
    """Look at everything; a check that fails in an unforeseen way becomes a note."""
    return [_safely(check) for check in CHECKS]


def can_run(findings: list[Finding]) -> bool:
    """Say whether nothing that the course cannot do without is missing."""
    return not any(finding.state == "missing" for finding in findings)


def python() -> Finding:
    """Check the interpreter's version."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return Finding(
            "Python", found, "missing", "labkit needs Python 3.11 or later.",
            "Make the virtual environment with a newer python3.",
        )  # fmt: skip
    return Finding("Python", found)


def torch() -> Finding:
    """Check that torch is there with torch.distributed, and which backends it has."""
    if util.find_spec("torch") is None:
        return Finding(
            "torch", "not installed", "missing", "Everything here runs on it.",
            "pip install -r requirements.txt",
        )  # fmt: skip
    import torch.distributed as dist

    version = metadata.version("torch")
    if not dist.is_available() or not dist.is_gloo_available():
        return Finding(
            "torch", f"{version}, without gloo", "missing",
            "Every lesson talks through gloo.", "Install a build of torch with torch.distributed.",
        )  # fmt: skip
    backends = ["gloo", *(["nccl"] if dist.is_nccl_available() else [])]
    return Finding("torch", f"{version}, backends {', '.join(backends)}")


def notebook_tools() -> Finding:
    """Check what the notebooks are opened and drawn with."""
    needed = ("jupyterlab", "ipywidgets", "ipykernel", "matplotlib", "networkx", "cloudpickle")
    lacking = [name for name in needed if util.find_spec(name) is None]
    if lacking:
        return Finding(
            "notebooks", f"not installed: {', '.join(lacking)}", "missing",
            "The lessons are notebooks.", "pip install -r requirements.txt",
        )  # fmt: skip
    return Finding("notebooks", f"JupyterLab {metadata.version('jupyterlab')}")


def launch_two_ranks() -> Finding:
    """Start two real ranks and let them talk."""
    from labkit.launch.launcher import launch

    launch(_sum_of_ranks, world_size=2)  # the first launch also starts the fork server
    start = time.perf_counter()
    total = launch(_sum_of_ranks, world_size=2)
    seconds = time.perf_counter() - start
    if total != [1, 1]:
        return Finding("two ranks", f"summed 0 + 1 to {total}", "missing", "gloo does not work.")
    return Finding("two ranks", f"started, summed and ended in {seconds * 1e3:.0f} ms")


def _sum_of_ranks() -> int:
    import torch
    import torch.distributed as dist

    total = torch.tensor(dist.get_rank())
    dist.all_reduce(total)
    return int(total)


def cpus() -> Finding:
    """Compare the CPUs that are shown with those that may be used."""
    shown, usable, quota = os.cpu_count() or 1, machine.usable_cpus(), machine.cpu_quota()
    found = f"{usable} usable" + (f" of {shown}" if usable != shown else "")
    if quota is not None and quota < usable:
        return Finding(
            "CPUs", f"{found}, but limited to {quota:g} CPUs' worth of time (cgroup)", "note",
            "Ranks are stopped when the quota is used up: timings jump. labkit counts the quota.",
            f"Give the container as many CPUs as it sees, or pin it: --cpuset-cpus=0-"
            f"{max(int(quota), 1) - 1}.",
        )  # fmt: skip
    if usable < 2:
        return Finding(
            "CPUs", found, "note",
            "All ranks take turns on one CPU: the lessons run, slowly, and lesson 01 has no "
            "placement to choose.",
        )  # fmt: skip
    return Finding("CPUs", found)


def memory() -> Finding:
    """Compare the memory with what the lessons need."""
    total = machine.Machine.here().memory
    if total and total < 3.5 * GIB:
        return Finding(
            "memory", f"{total / GIB:.1f} GiB", "note",
            "Lessons 02 and 03 are made for 4 GiB.", "Close other programs before you run them.",
        )  # fmt: skip
    return Finding("memory", f"{total / GIB:.1f} GiB" if total else "not known")


def shared_memory() -> Finding:
    """Look at /dev/shm, where ranks meet and share tensors."""
    folder = Path("/dev/shm")
    if not folder.is_dir():
        return Finding(
            "shared memory", "no /dev/shm", "note",
            "Ranks meet in the temporary directory instead: slower to start.",
        )  # fmt: skip
    size = shutil.disk_usage(folder).total
    found = f"/dev/shm of {size / GIB:.2g} GiB"
    if size < 256 * 2**20:
        return Finding(
            "shared memory", found, "note",
            "Shared tensors of more than this end a rank with SIGBUS.",
            "In Docker: --shm-size=1g.",
        )  # fmt: skip
    return Finding("shared memory", found)


def gpus() -> Finding:
    """List GPUs and how they are linked."""
    names = machine.Machine.here().gpus
    if not names:
        return Finding(
            "GPUs", "none", "note",
            "Everything runs on the CPU; cells that need GPUs say so and do nothing.",
        )  # fmt: skip
    found = f"{len(names)}: {', '.join(sorted(set(names)))}"
    smi = shutil.which("nvidia-smi")
    if smi and len(names) > 1:
        done = subprocess.run([smi, "topo", "-m"], capture_output=True, text=True, timeout=30)
        found += "\n" + done.stdout.rstrip()
    meaning = "" if len(names) > 1 else "One GPU: NCCL between ranks needs two or more."
    return Finding("GPUs", found, "ok" if len(names) > 1 else "note", meaning)


def fabric() -> Finding:
    """Make two hosts joined by a shaped link, and take them away again."""
    from labkit.fabric.fabric import Fabric, FabricUnavailable

    try:
        with Fabric.star(hosts=2, rate="100mbit"):
            return Finding("fabric", "hosts with shaped links can be made (user namespaces)")
    except FabricUnavailable as error:
        return Finding(
            "fabric", f"no: {error.cause}", "note",
            "What is EMULATED on shaped links is shown as RECORDED runs.", error.remedy,
        )  # fmt: skip


def wire_meter() -> Finding:
    """Check that the kernel tells how many bytes a socket sent."""
    from labkit.measure import sockets

    reason = sockets.unavailable()
    if reason:
        return Finding(
            "wire meter", f"no: {reason}", "note",
            "Checks count the bytes of send calls instead of bytes on the wire.",
        )  # fmt: skip
    return Finding("wire meter", "bytes per connection can be read (TCP_INFO)")


def scheduler() -> Finding:
    """Check that the kernel tells how long a thread ran and waited."""
    try:
        waited = Path("/proc/self/schedstat").read_text().split()[1]
    except (OSError, IndexError):
        return Finding(
            "scheduler", "no /proc/self/schedstat", "note",
            "Time waiting for a CPU cannot be told from time blocked.",
        )  # fmt: skip
    return Finding(
        "scheduler", f"waiting for a CPU can be read ({int(waited) / 1e6:.0f} ms so far)"
    )


CHECKS: tuple[Callable[[], Finding], ...] = (
    python, torch, notebook_tools, launch_two_ranks,
    cpus, memory, shared_memory, gpus, fabric, wire_meter, scheduler,
)  # fmt: skip
_ESSENTIAL = {python, torch, notebook_tools, launch_two_ranks}


def _safely(check: Callable[[], Finding]) -> Finding:
    name = check.__name__.replace("_", " ")
    try:
        return check()
    except Exception as error:
        state = "missing" if check in _ESSENTIAL else "note"
        return Finding(name, f"could not be tried: {type(error).__name__}: {error}", state)
