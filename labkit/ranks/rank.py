"""What travels to a rank, and what the rank does with it, from its first instruction to its last.

A rank is a process of its own that `labkit.ranks.server` starts. It talks to the launching process
through its standard output and error, through one socket (``control``), and through files in the
launch's private directory:

- ``job``: what to run, read at the start;
- ``result-R``: what the program returned, or how it failed, written at the end;
- ``imported``: the modules of torch that rank 0 had to import, for the server to have at hand;
- ``stack-R`` and ``calls-R``: the rank's Python stack and the calls that it entered, on demand;
- ``signalled-R``: its stack, if a signal had to ask for it because nobody read the socket.

On the socket the rank says ``F`` (finished) or ``R`` (raised) and then stays until it is killed, so
that no peer ever sees a connection close before the launcher knows why. It hears ``D`` (dump) or,
when the launching side is gone, the end of the stream.

The launching process imports this module too, and does not pay for torch: `main` imports it.
"""

from __future__ import annotations

import contextlib
import ctypes
import dis
import faulthandler
import inspect
import itertools
import json
import os
import pickle
import signal
import socket
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from labkit.ranks.errors import Failure, Line

if TYPE_CHECKING:
    from torch.distributed import Store

FINISHED, RAISED, DUMP, DUMPED = b"F", b"R", b"D", b"K"
_LOADS = {"LOAD_GLOBAL", "LOAD_NAME"}
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one rank runs; without a fabric, on the loopback interface of this machine."""

    namespaces: tuple[str, ...] = ()
    """Namespace files (``/proc/PID/ns/user``, ``/proc/PID/ns/net``), entered in this order."""
    interface: str = LOOPBACK
    """The network interface that gloo binds to."""

    def enter(self) -> None:
        """Move the calling process into the namespaces.

        A user namespace takes single-threaded processes only: call this before any thread starts.

        Raises:
            OSError: If the kernel refuses, with the namespace file that it refused.
        """
        for path in self.namespaces:
            libc = ctypes.CDLL(None, use_errno=True)  # os.setns needs Python 3.12
            with Path(path).open() as namespace:
                if libc.setns(namespace.fileno(), 0) != 0:
                    code = ctypes.get_errno()
                    raise OSError(code, os.strerror(code), path)


@dataclass(frozen=True, slots=True)
class Job:
    """A program and the circumstances in which every rank runs it."""

    program: bytes
    """``(program, args)``, from `pack`."""
    world_size: int
    backend: str
    checks: bool
    """Whether torch compares the ranks' calls (its DETAIL debug level)."""
    threads: int
    """Intra-op threads of torch per rank."""
    placements: tuple[Placement, ...]
    environment: dict[str, str]
    path: tuple[str, ...]
    cwd: str


def pack(program: Callable, args: tuple) -> bytes:
    """Pickle ``(program, args)`` so that another process can call it.

    Functions of a notebook or script travel by value, with the globals that they use.

    Raises:
        TypeError: If something cannot be pickled; names it: the argument, the closed-over variable
            or the global.
    """
    try:
        return cloudpickle.dumps((program, args))
    except Exception as error:
        culprits = itertools.chain(
            (f"argument {n} (a {_kind(type(x))})" for n, x in enumerate(args, 1) if _is_stuck(x)),
            _culprits(program, seen=set()),
        )
        culprit = next(culprits, "the program or its arguments")
        raise TypeError(
            f"launch({_name(program)}): {culprit} cannot be sent to the ranks: {error}. "
            "Create it inside the program, so that every rank makes its own."
        ) from error


def _culprits(function: object, *, seen: set[int]) -> Iterator[str]:
    function = inspect.unwrap(getattr(function, "func", function))
    if not isinstance(function, types.FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    for role, name, value in _used(function):
        if isinstance(value, types.FunctionType):
            yield from _culprits(value, seen=seen)  # the leaf says more than the function
        elif _is_stuck(value):
            yield f"the {role} {name!r} (a {_kind(type(value))}), which {_name(function)} uses,"


def _used(function: types.FunctionType) -> Iterator[tuple[str, str, object]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            yield "closed-over variable", name, cell.cell_contents
    codes = [function.__code__]
    for code in codes:
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
        for instruction in dis.get_instructions(code):
            name = instruction.argval
            if instruction.opname in _LOADS and name in function.__globals__:
                yield "global", name, function.__globals__[name]


def _is_stuck(value: object) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return True
    return False


def _kind(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _name(function: object) -> str:
    return getattr(function, "__qualname__", repr(function)).replace("<locals>.", "")


def main(directory: str, rank: int, control: int) -> None:
    """Run the job of that directory as this rank; never return."""
    folder = Path(directory)
    job: Job = pickle.loads((folder / "job").read_bytes())
    job.placements[rank].enter()  # first of all: torch starts threads
    _prepare_process(job, rank, folder)
    launcher = socket.socket(fileno=control)
    threading.Thread(target=_listen, args=(rank, folder, launcher), daemon=True).start()
    try:
        import torch
        import torch.distributed as dist

        there = set(sys.modules)
        torch.set_num_threads(job.threads)
        if "nccl" in job.backend:
            torch.cuda.set_device(rank % torch.cuda.device_count())  # one for all: `one_gpu`
        # A FileStore, since TCPStore may stall 5 s in a reverse DNS look-up (pytorch issue 159007).
        store = dist.FileStore(str(folder / "store"), job.world_size)
        join(job.backend, store, rank, job.world_size, checks=job.checks)
        program, args = pickle.loads(job.program)
        result, word = _packed(program(*args)), FINISHED
        if rank == 0:
            imported = [name for name in list(sys.modules) if name.startswith("torch.")]
            (folder / "imported").write_text(" ".join(n for n in imported if n not in there))
    except BaseException as error:
        result, word = cloudpickle.dumps(_failure(rank, error)), RAISED
    sys.stdout.flush()
    sys.stderr.flush()
    (folder / f"result-{rank}").write_bytes(result)
    with contextlib.suppress(OSError):
        launcher.sendall(word)
    threading.Event().wait()  # until the launcher has heard everybody


def _prepare_process(job: Job, rank: int, directory: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Jupyter interrupts the whole process group
    sys.stdout = open(1, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    faulthandler.enable(all_threads=False)
    stack = (directory / f"signalled-{rank}").open("w")  # open as long as the rank lives
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "LABKIT_RANK": rank}
    ranks |= {"WORLD_SIZE": job.world_size, "LOCAL_WORLD_SIZE": job.world_size}
    os.environ.clear()
    os.environ.update(job.environment | {name: str(value) for name, value in ranks.items()})
    os.environ["TMPDIR"] = tempfile.tempdir = str(directory)  # what a rank leaves goes with it
    os.environ["GLOO_SOCKET_IFNAME"] = job.placements[rank].interface
    os.chdir(job.cwd)
    sys.path[:] = job.path


def join(backend: str, store: Store, rank: int, world_size: int, *, checks: bool) -> None:
    """Make the default group, with torch comparing the ranks' calls if ``checks``."""
    import torch
    import torch.distributed as dist

    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "256")  # calls that the flight recorder keeps
    if checks:
        dist.set_debug_level(dist.DebugLevel.DETAIL)
    else:
        dist.set_debug_level_from_env()
    if dist.get_debug_level() == dist.DebugLevel.DETAIL:
        # At this level every backend is wrapped in one that compares calls. DDP's constructor casts
        # the wrapper to the gloo backend to note its number of threads, and dies of SIGSEGV
        # (torch/csrc/distributed/c10d/logger.cpp; 2.8 to 2.15). Nothing but those notes is lost.
        dist.Logger.set_construction_data_and_log = lambda *_: None
    with _gloo_unheard() if torch.__version__ < "2.13" else contextlib.nullcontext():
        dist.init_process_group(backend, store=store, rank=rank, world_size=world_size)


@contextlib.contextmanager
def _gloo_unheard() -> Iterator[None]:
    """Drop what gloo says on standard output about its connections."""
    sys.stdout.flush()
    saved, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def _listen(rank: int, directory: Path, launcher: socket.socket) -> None:
    """Answer the launcher while the program runs; end the rank when the launcher is gone."""
    while launcher.recv(1):
        with (directory / f"stack-{rank}").open("w") as file:
            faulthandler.dump_traceback(file, all_threads=True)
        unfinished = directory / f"calls-{rank}.part"
        unfinished.write_text(calls())
        unfinished.rename(directory / f"calls-{rank}")  # whole or not at all
        launcher.sendall(DUMPED)
    os.killpg(os.getpid(), signal.SIGKILL)  # this process, and those that it started


def calls() -> str:
    """Return what torch's flight recorder holds, and who is in which group, as JSON."""
    import torch
    import torch.distributed as dist

    groups = {
        group.group_name: dist.get_process_group_ranks(group)
        for group in list(dist.distributed_c10d._world.pg_map)
    }
    c10d, entries = torch._C._distributed_c10d, []
    for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json"):  # NCCL's may stand apart
        found = json.loads(getattr(c10d, name, lambda: "{}")()).get("entries", [])
        entries += [entry for entry in found if entry not in entries]
    entries.sort(key=lambda entry: entry.get("time_created_ns", 0))
    return json.dumps({"entries": entries, "groups": groups})


def _packed(value: Any) -> bytes:
    try:
        return cloudpickle.dumps(value)
    except Exception as error:
        raise TypeError(
            f"the program returned a {type(value).__qualname__} that cannot be sent back: {error}. "
            "Return plain data: numbers, strings, lists, tensors."
        ) from error


def _failure(rank: int, error: BaseException) -> Failure:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).parent != Path(__file__).parent]
    error.__traceback__ = None
    travels = error if isinstance(error, Exception) else None  # SystemExit stays here
    try:
        pickle.loads(cloudpickle.dumps(error))
    except Exception:
        travels = None
    lines = tuple(Line(frame.filename, frame.lineno or 0, frame.name) for frame in own)
    return Failure(rank, travels, _kind(type(error)), str(error), lines)
