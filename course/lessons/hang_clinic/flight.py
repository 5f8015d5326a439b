"""Flight records of the patients: written as NCCL's watchdog would, and compared by torchfrtrace.

PyTorch 2.8 and 2.9 install the command `torchfrtrace` without the module that it starts. There,
what a newer PyTorch said of patient 6 is kept in `data`.
"""

import contextlib
import functools
import importlib.util
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

from course.lessons.hang_clinic.programs import patient
from course.place import launch
from labkit.ranks.errors import LaunchTimeout

MODULE = "torch.distributed.flight_recorder.fr_trace"
KEPT = Path(__file__).parent / "data" / "torchfrtrace-6.txt"
_NOTE = "(kept from PyTorch 2.13: this version lacks the module that torchfrtrace starts)\n"


def record_of(number: int) -> Path:
    """Run a patient until it hangs; return the folder in which each rank left its record."""
    folder = Path(tempfile.mkdtemp(dir=_all_records().name))
    with contextlib.suppress(LaunchTimeout):
        launch(_job, number, folder, world_size=patient(number).world_size, timeout=1.5)
    return folder


def compare(folder: Path) -> str:
    """Let torchfrtrace compare the records of a folder; return its last lines."""
    if importlib.util.find_spec(MODULE.rpartition(".")[0]) is None:
        return _NOTE + KEPT.read_text(encoding="utf-8")
    command = [sys.executable, "-m", MODULE, "--prefix", "rank_", str(folder)]
    analyzer = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    return "\n".join((analyzer.stdout + analyzer.stderr).splitlines()[-16:])


def calls(folder: Path) -> dict[int, list[str]]:
    """Return the names of the calls that each rank's record holds, by rank."""
    records = {int(file.name.removeprefix("rank_")): file for file in folder.glob("rank_*")}
    traces = {rank: pickle.loads(records[rank].read_bytes()) for rank in sorted(records)}
    return {r: [entry["profiling_name"] for entry in t["entries"]] for r, t in traces.items()}


@functools.cache
def _all_records() -> tempfile.TemporaryDirectory:
    """Make the folder of all records, which goes with this process."""
    return tempfile.TemporaryDirectory()


def _job(number: int, folder: Path) -> None:
    threading.Thread(target=_dump_after, args=(0.7, folder), daemon=True).start()
    patient(number).program()


def _dump_after(seconds: float, folder: Path) -> None:
    """Write this rank's record to a file; on NCCL PyTorch's own watchdog does this."""
    time.sleep(seconds)
    trace = pickle.loads(torch._C._distributed_c10d._dump_fr_trace(includeStackTraces=False))
    ranks = str(list(range(dist.get_world_size())))
    trace["pg_config"] = {"0": {"name": "0", "desc": "all", "ranks": ranks}}  # gloo leaves it empty
    (folder / f"rank_{dist.get_rank()}").write_bytes(pickle.dumps(trace))
