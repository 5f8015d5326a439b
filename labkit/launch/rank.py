"""What one rank does, from its first instruction to its last.

A rank is a process forked by `labkit.launch.server` (or started afresh by `labkit.launch.spawner`).
It talks to the launching process through its standard output and error, through one socket
(``control``), and through files in the launch's private directory:

- ``job``: what to run, read at the start;
- ``result-R``: what the program returned, or how it failed, written at the end;
- ``stack-R`` and ``calls-R``: the rank's Python stack and the calls that it entered, on demand;
- ``signalled-R``: its stack, if the demand came as a signal, since it heard nothing.

On the socket the rank says ``F`` (finished) or ``R`` (raised) and then stays until it is killed, so
that no peer ever sees a connection close before the launcher knows why. It hears ``D`` (dump) or,
when the launching side is gone, the end of the stream.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import pickle
import shutil
import signal
import socket
import sys
import tempfile
import threading
import traceback
from pathlib import Path

import cloudpickle
import torch
import torch.distributed as dist

from labkit.launch.casefile import Line
from labkit.launch.errors import Failure
from labkit.launch.job import DUMPED, FINISHED, RAISED, Job


def main(directory: Path, rank: int, control: socket.socket) -> None:
    """Run the job's program as this rank, in the place that it has entered; never return."""
    job = Job.load(directory)
    _prepare_process(job, rank, directory, control)
    try:
        _join(job, rank, directory)
        program, args = pickle.loads(job.program)
        blob, word = _packed(program(*args)), FINISHED
    except BaseException as error:
        blob, word = cloudpickle.dumps(_failure(rank, error)), RAISED
    sys.stdout.flush()
    sys.stderr.flush()
    (directory / f"result-{rank}").write_bytes(blob)
    with contextlib.suppress(OSError):
        control.sendall(word)
    threading.Event().wait()  # until the launcher has heard everybody


def _prepare_process(job: Job, rank: int, directory: Path, control: socket.socket) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Jupyter interrupts the whole process group
    sys.stdout = open(1, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    faulthandler.enable(all_threads=False)
    if hasattr(signal, "SIGUSR1"):
        stack = (directory / f"signalled-{rank}").open("w")  # open as long as the rank lives
        faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
    os.environ.clear()
    os.environ.update(job.environment)
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job.world_size}
    ranks |= {"LOCAL_WORLD_SIZE": job.world_size, "LABKIT_RANK": rank}
    os.environ.update({name: str(value) for name, value in ranks.items()})
    os.environ["TMPDIR"] = tempfile.tempdir = str(directory)  # what a rank leaves goes with it
    os.environ["GLOO_SOCKET_IFNAME"] = job.placements[rank].interface
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "256")
    os.chdir(job.cwd)
    sys.path[:] = job.path
    torch.set_num_threads(job.threads)
    threading.Thread(
        target=_listen, args=(rank, directory, control), name="labkit", daemon=True
    ).start()


def _join(job: Job, rank: int, directory: Path) -> None:
    level = dist.DebugLevel.DETAIL if job.checks else dist.DebugLevel.OFF
    if job.checks or "TORCH_DISTRIBUTED_DEBUG" not in job.environment:
        dist.set_debug_level(level)
    else:
        dist.set_debug_level_from_env()
    if "nccl" in job.backend:
        torch.cuda.set_device(rank)
    # A FileStore, since TCPStore may stall 5 s in a reverse DNS look-up (pytorch issue 159007).
    store = dist.FileStore(str(directory / "store"), job.world_size)
    dist.init_process_group(job.backend, store=store, rank=rank, world_size=job.world_size)


def _listen(rank: int, directory: Path, control: socket.socket) -> None:
    """Answer the launcher while the program runs; end the rank when the launcher is gone."""
    while True:
        word = control.recv(1)
        if not word:
            shutil.rmtree(directory, ignore_errors=True)  # the last rank to go finds it quiet
            os.killpg(os.getpid(), signal.SIGKILL)  # this process, and those that it started
        with (directory / f"stack-{rank}").open("w") as file:
            faulthandler.dump_traceback(file, all_threads=True)
        unfinished = directory / f"calls-{rank}.part"
        unfinished.write_text(_calls())
        unfinished.rename(directory / f"calls-{rank}")  # whole or not at all
        control.sendall(DUMPED)


def _calls() -> str:
    """Return what torch's flight recorder holds, and who is in which group, as JSON."""
    groups = {
        group.group_name: dist.get_process_group_ranks(group)
        for group in list(dist.distributed_c10d._world.pg_map)
    }
    record = json.loads(torch._C._distributed_c10d._dump_fr_trace_json())
    return json.dumps({"entries": record.get("entries", []), "groups": groups})


def _packed(value: object) -> bytes:
    try:
        return cloudpickle.dumps(value)
    except Exception as error:
        raise TypeError(
            f"the program returned a {type(value).__qualname__} that cannot be sent back: {error}. "
            "Return plain data: numbers, strings, lists, tensors."
        ) from error


def _failure(rank: int, error: BaseException) -> Failure:
    frames = tuple(
        Line(frame.filename, frame.lineno or 0, frame.name)
        for frame in traceback.extract_tb(error.__traceback__, limit=None)
    )
    own = tuple(line for line in frames if Path(line.filename).parent != Path(__file__).parent)
    error.__traceback__ = None
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    try:
        pickle.loads(cloudpickle.dumps(error))
        travels = error if isinstance(error, Exception) else None  # SystemExit stays here
    except Exception:
        travels = None
    return Failure(rank, travels, kind, str(error), own)
