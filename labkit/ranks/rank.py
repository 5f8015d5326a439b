"""What travels to a rank, and what the rank does with it, from its first instruction to its last.

A rank is a process of its own that `labkit.ranks.server` starts. It talks to the launching process
through its standard output and error, through one socket (``control``), and through files in the
launch's private directory:

- ``job``, ``program`` and ``port``: what to run, and how, read at the start;
- ``result-R``: what the program returned, or how it failed, written at the end;
- ``imported``: the modules of torch and of libraries that rank 0 had to import, and their files,
  for the server to have at hand;
- ``stack-R`` and ``calls-R``: the rank's Python stack and the calls that it entered, on demand;
- ``signalled-R``: its stack, if a signal had to ask for it because nobody read the socket.

On the socket the rank says ``J`` (it has joined the default group), ``F`` (finished), or ``X`` (an
exception came out of the program), ``R`` (and lies in its file) and then ``E`` (and it has ended in
order). It stays until it is killed, so that no peer ever sees a connection close before the
launcher knows why. It hears ``G`` (go: all have joined), ``D`` (dump) or, when the launching side
is gone, the end of the stream. An exception in ``result-R`` carries the moment at which it came; of
a rank that died the launcher knows when the stream ended, so a child of the program does not keep
the socket open.

The launching process imports this module too, and does not pay for torch: `main` imports it.
"""

from __future__ import annotations

import atexit
import bdb
import contextlib
import ctypes
import faulthandler
import gc
import io
import json
import multiprocessing.process
import os
import pickle
import random
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from labkit.ranks import messages
from labkit.ranks.devices import claim
from labkit.ranks.errors import Failure, Line, Raised, of_library
from labkit.ranks.parcel import Parcel, adopt, kind_of

JOINED, GO, FINISHED, DUMP, DUMPED = b"J", b"G", b"F", b"D", b"K"
FAILED, RAISED, ENDED = b"X", b"R", b"E"
END = 5.0  # seconds that a rank's threads and exit handlers get once its program has returned
END_OF_FAILED = 1.0
MANY = 32
"""Above so many ranks gloo connects a pair when it first speaks; up to it, all at the start."""
CALLS_KEPT = "256"  # how many calls torch's flight recorder keeps
SET_BY_LAUNCH = (
    *("RANK", "LOCAL_RANK", "LABKIT_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME"),
)
"""Environment variables of a rank that are its own."""
_FILES = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)  # in this order: text is buffered
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one rank runs; without a fabric, on the loopback interface of this machine."""

    namespaces: tuple[str, ...] = ()
    """Namespace files (``/proc/PID/ns/user``, ``/proc/PID/ns/net``), entered in this order."""
    interface: str = LOOPBACK  # the network interface that gloo binds to
    address: str = "127.0.0.1"  # the IPv4 address on that interface

    def enter(self) -> None:
        """Move the calling process into the namespaces.

        A user namespace takes single-threaded processes only: call this before any thread starts.
        """
        for path in self.namespaces:
            libc = ctypes.CDLL(None, use_errno=True)  # os.setns needs Python 3.12
            with Path(path).open() as namespace:
                if libc.setns(namespace.fileno(), 0) != 0:
                    code = ctypes.get_errno()
                    raise OSError(code, os.strerror(code), path)


class Hosts(Protocol):
    """What says where ranks run, as a `labkit.fabric.fabric.Fabric` does."""

    def placement(self, rank: int, world_size: int) -> Placement:
        """Return where a rank runs."""


@dataclass(frozen=True, slots=True)
class Job:
    """A program and the circumstances in which every rank runs it."""

    world_size: int
    backend: str
    init: bool  # whether the default group is made before the program starts
    checks: bool  # whether torch compares the ranks' calls (its DETAIL debug level)
    threads: int  # intra-op threads of torch per rank
    placements: tuple[Placement, ...]
    environment: dict[str, str]
    path: tuple[str, ...]
    argv: tuple[str, ...]
    cwd: str
    main: tuple[str | None, str | None]  # file and name of the launching process's ``__main__``


def main(directory: str, rank: int, control: int) -> None:
    """Run the job of that directory as this rank; never return."""
    folder = Path(directory)
    job: Job = pickle.loads((folder / "job").read_bytes())
    job.placements[rank].enter()  # first of all: torch starts threads
    _prepare_process(job, rank, folder)
    launcher, go, pid = socket.socket(fileno=control), threading.Event(), os.getpid()
    os.set_inheritable(control, False)
    os.register_at_fork(after_in_child=launcher.close)
    threading.Thread(target=_listen, args=(rank, folder, launcher, go), daemon=True).start()
    try:
        import torch
        import torch.distributed as dist

        there = len(sys.modules)  # to look at the names would copy the pages that they lie in
        torch.set_num_threads(job.threads)
        _seed_anew()
        backend = claim(job.backend, rank)
        compare_calls(job.checks)
        messages.note_all()
        if job.world_size > MANY:  # to connect every pair takes most of the time of a start
            os.environ.setdefault("TORCH_GLOO_LAZY_INIT", "1")
        if job.init:
            # A FileStore: TCPStore may stall 5 s in a reverse DNS look-up (pytorch issue 159007).
            size, store = job.world_size, dist.FileStore(str(folder / "store"), job.world_size)
            dist.init_process_group(backend, store=store, rank=rank, world_size=size)
            launcher.sendall(JOINED)
            go.wait()  # until all are connected: a program may destroy the group at once
        program, args, kwargs = Parcel.read(folder / "program", mapped=True).load()
        adopt(program, *job.main)
        result = call(program, *args, **kwargs)
        if os.getpid() != pid:
            _end_child(0)
        _packed(result).write(folder / f"result-{rank}")
        if rank == 0:
            new = list(sys.modules.items())[there:]
            files = {name: getattr(module, "__file__", None) or "" for name, module in new}
            imported = {n: f for n, f in files.items() if n.startswith("torch.") or of_library(f)}
            (folder / "imported").write_text(json.dumps(imported))
        _end_in_order(END)
        _tell(launcher, FINISHED)
    except BaseException as error:
        moment = time.monotonic()
        if os.getpid() != pid:
            traceback.print_exc()
            _end_child(1)
        _tell(launcher, FAILED)
        Parcel.of(_failure(rank, error, moment)).write(folder / f"result-{rank}")
        _tell(launcher, RAISED)
        _end_in_order(END_OF_FAILED)
        _tell(launcher, ENDED)
    threading.Event().wait()  # until the launcher has heard everybody


def _tell(launcher: socket.socket, word: bytes) -> None:
    with contextlib.suppress(OSError):
        launcher.sendall(word)


def call(program: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the program; return its result, and None where it ended by ``sys.exit(0)``."""
    try:
        return program(*args, **kwargs)
    except SystemExit as end:
        if end.code:
            raise
        return None


def _end_child(status: int) -> NoReturn:
    """End a process that the program forked, and that came back from it beside the rank."""
    _end_in_order(END_OF_FAILED)
    os._exit(status)


def _seed_anew() -> None:
    """Give this rank random numbers of its own: the server's are copied to all ranks."""
    import torch

    torch.default_generator.seed()
    random.seed()
    if (numbers := sys.modules.get("numpy.random")) is not None:
        numbers.seed()


def _end_in_order(seconds: float) -> None:
    """Do as an interpreter does at its end: wait for threads, run exit handlers, flush files."""
    beside = [t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]

    def end() -> None:
        for stop in reversed(getattr(threading, "_threading_atexits", ())):
            stop()  # idle workers of executors
        for thread in beside:
            thread.join()
        atexit._run_exitfuncs()
        _flush_files()

    if not _within(seconds, end):
        late = ", ".join(thread.name for thread in beside if thread.is_alive()) or "an exit handler"
        print(f"labkit: {late} did not end within {seconds:g} s of the program.", file=sys.stderr)
        _within(END_OF_FAILED, _flush_files)


def _flush_files() -> None:
    files = [item for item in gc.get_objects() if issubclass(type(item), _FILES)]
    for file in sorted(files, key=lambda file: not isinstance(file, io.TextIOWrapper)):
        with contextlib.suppress(Exception):  # closed, or a pipe that nobody reads
            file.flush()
    ctypes.CDLL(None).fflush(None)


def _within(seconds: float, work: Callable[[], None]) -> bool:
    """Do it beside; say whether it was done in time."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def _prepare_process(job: Job, rank: int, directory: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Jupyter interrupts the whole process group
    sys.stdout = open(1, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    faulthandler.enable(all_threads=False)
    stack = (directory / f"signalled-{rank}").open("w")  # open as long as the rank lives
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
    port, here = (directory / "port").read_text(), job.placements[rank]
    numbers = [str(number) for number in (rank, rank, rank, job.world_size, job.world_size)]
    own = [*numbers, job.placements[0].address, port, here.interface]
    os.environ.clear()
    os.environ.update(job.environment | dict(zip(SET_BY_LAUNCH, own, strict=True)))
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", CALLS_KEPT)
    tempfile.tempdir = None  # the caller's, not the server's
    process: Any = multiprocessing.process.current_process()
    process._config["tempdir"] = str(directory)  # goes with it
    os.chdir(job.cwd)
    sys.path[:], sys.argv = job.path, list(job.argv)


def compare_calls(checks: bool) -> None:
    """Have torch compare the ranks' calls if asked to, here or by TORCH_DISTRIBUTED_DEBUG."""
    import torch.distributed as dist

    if checks:
        dist.set_debug_level(dist.DebugLevel.DETAIL)
    else:
        dist.set_debug_level_from_env()
    if dist.get_debug_level() == dist.DebugLevel.DETAIL:
        # At this level every backend is wrapped in one that compares calls. DDP's constructor casts
        # the wrapper to the gloo backend to note its number of threads, and dies of SIGSEGV
        # (torch/csrc/distributed/c10d/logger.cpp; 2.8 to 2.15). Nothing but those notes is lost.
        logger: Any = dist.Logger
        logger.set_construction_data_and_log = lambda *_: None


def _listen(rank: int, directory: Path, launcher: socket.socket, go: threading.Event) -> None:
    """Answer the launcher while the program runs; end the rank when the launcher is gone."""
    while word := launcher.recv(1):
        if word == GO:
            go.set()
            continue
        with (directory / f"stack-{rank}").open("w") as file:
            faulthandler.dump_traceback(file, all_threads=True)
        unfinished = directory / f"calls-{rank}.part"
        unfinished.write_text(entered_calls())
        unfinished.rename(directory / f"calls-{rank}")  # whole or not at all
        launcher.sendall(DUMPED)
    os.killpg(os.getpid(), signal.SIGKILL)  # this process, and those that it started


def entered_calls() -> str:
    """Return what torch's flight recorder holds, open messages, and who is in which group."""
    import torch
    import torch.distributed as dist

    members, known = dist.get_process_group_ranks, list(dist.distributed_c10d._world.pg_map)
    groups = {group.group_name: members(group) for group in known}
    c10d, entries = torch._C._distributed_c10d, []
    for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json"):  # NCCL's may stand apart
        dumped = json.loads(getattr(c10d, name, lambda: "{}")()).get("entries", [])
        entries += [entry for entry in dumped if entry not in entries]
    entries.sort(key=lambda entry: entry.get("time_created_ns", 0))
    return json.dumps({"entries": entries, "messages": messages.unended(), "groups": groups})


def _packed(value: Any) -> Parcel:
    try:
        return Parcel.of(value)
    except Exception as error:
        raise TypeError(
            f"the program returned a {kind_of(value)} that cannot be sent back: {error}. "
            "Return plain data: numbers, strings, lists, tensors."
        ) from error


def _failure(rank: int, error: BaseException, moment: float) -> Failure:
    chain: list[Raised] = []
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        error = following
        seen.add(id(error))
        direct = error.__cause__ is not None
        following = error.__cause__ if direct or error.__suppress_context__ else error.__context__
        following = following or next(iter(getattr(error, "exceptions", ())), None)  # of a group
        frames = traceback.extract_tb(error.__traceback__)
        lines = (Line(frame.filename, frame.lineno or 0, frame.name) for frame in frames)
        lines = (line for line in lines if Path(line.filename).parent != Path(__file__).parent)
        text, travels = "(its text cannot be had)", None
        with contextlib.suppress(Exception):  # its own __str__ may raise
            text = str(error)
            Parcel.of(error.with_traceback(None)).load()
            # SystemExit stays here, and so does what IPython would end a cell by, in silence.
            if isinstance(error, Exception) and not isinstance(error, bdb.BdbQuit):
                travels = error
        chain.append(Raised(travels, kind_of(error), text, tuple(lines), direct))
    return Failure(rank, tuple(chain), moment)
