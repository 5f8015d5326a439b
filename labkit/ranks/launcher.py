"""Run a program on several ranks, from anywhere, and get back what each rank returned."""

from __future__ import annotations

import contextlib
import inspect
import os
import pickle
import selectors
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.ranks import machine, one_gpu, server, torchrun
from labkit.ranks.errors import CaseFile, LaunchTimeout, RankCase, RankDied, reraise
from labkit.ranks.rank import DUMP, DUMPED, FINISHED, RAISED, Job, Placement, pack

if TYPE_CHECKING:
    from labkit.fabric.fabric import Fabric

_GRACE = 0.3  # seconds between the first failure and the verdict, at most: others may fail alike
_PATIENCE = 5.0  # seconds after which a launch on a crowded machine says why it takes so long
_DUMP_TIME = 1.5  # seconds that ranks get to write down where they stand
_OUTERMOST = "in <module>\n"  # the last line of a whole stack: the main thread's is written last
_STDERR_LINES = 16
_NOISE = ("/labkit/ranks/", 'File "<string>"', "Extension modules:")  # of faulthandler
_one_at_a_time = threading.Lock()


def launch(
    program: Callable[..., Any],
    *args: Any,
    world_size: int | None = None,
    backend: str | None = None,
    fabric: Fabric | None = None,
    timeout: float = 60.0,
    checks: bool = False,
    threads: int = 1,
    share_gpu: bool = False,
) -> list[Any]:
    """Run ``program(*args)`` on ``world_size`` fresh processes; return what each rank returned.

    The program is plain ``torch.distributed`` code: when it starts, the default process group is up
    and RANK, LOCAL_RANK and WORLD_SIZE are set as torchrun sets them. It may be typed in a notebook
    cell and use variables around it. What it prints appears here, prefixed by its rank.

    Under ``torchrun`` the same call uses the ranks that are there: each of them calls `launch`,
    runs the program, and gets the results of all.

    Args:
        program: The function to run. It must not be a generator or a coroutine.
        *args: Its arguments, the same on every rank.
        world_size: How many ranks; 4 if not given, or under torchrun all that are there.
        backend: ``"gloo"`` or ``"nccl"``. If not given: gloo, and where every rank can have a GPU,
            NCCL for what lies on GPUs.
        fabric: Hosts and links to run on (`labkit.fabric.fabric`); none: this machine's loopback.
        timeout: Seconds that the ranks get, from their start.
        checks: Let torch compare the ranks' calls, so that a wrong shape or a swapped collective
            is an immediate error that names the ranks. About 1.8 times slower per small call.
        threads: Intra-op threads of torch per rank.
        share_gpu: Put all ranks on one GPU, with NCCL between them (`labkit.ranks.one_gpu`): order
            and waiting are NCCL's, times are no links' times. Choose a short timeout.

    Returns:
        ``results[r]`` is what rank ``r`` returned.

    Raises:
        TypeError: If the program cannot run on ranks at all, naming what stands in the way.
        ValueError: If an argument makes no sense on this machine.
        RankDied: If a rank's process ended before it returned.
        LaunchTimeout: If ranks had not finished; its ``case`` tells where each one stands.
        Exception: A rank's own exception, with a note that names the rank.

    Example:
        >>> import torch, torch.distributed as dist
        >>> def total():
        ...     x = torch.tensor(dist.get_rank())
        ...     dist.all_reduce(x)
        ...     return x.item()
        >>> launch(total, world_size=3)
        [3, 3, 3]

        Three ranks hold 0, 1 and 2; all_reduce leaves their sum, 3, on every one.
    """
    _check_program(program, args)
    _check_numbers(4 if world_size is None else world_size, timeout, threads)
    if torchrun.is_here():
        _check_backend(backend)
        if share_gpu:
            raise ValueError("share_gpu=True needs ranks of its own; torchrun's have theirs.")
        options = {"timeout": timeout, "checks": checks, "threads": threads}
        where = {"world_size": world_size, "backend": backend, "fabric": fabric}
        return torchrun.run(program, args, **where, **options)
    if "LABKIT_RANK" in os.environ:
        raise RuntimeError(
            f"launch was called on rank {os.environ['LABKIT_RANK']} of a launch. "
            "Ranks cannot start ranks: call launch outside the program."
        )
    torchrun.note_leftovers()
    world_size = 4 if world_size is None else world_size
    job = Job(
        program=pack(program, args),
        world_size=world_size,
        backend=_choose_backend(backend, world_size, fabric, share_gpu=share_gpu),
        checks=checks,
        threads=threads,
        placements=tuple(
            fabric.placement(rank, world_size) if fabric else Placement()
            for rank in range(world_size)
        ),
        environment=dict(os.environ) | (one_gpu.variables() if share_gpu else {}),
        path=tuple(sys.path),
        cwd=str(Path.cwd()),
    )
    with _one_at_a_time:
        return _run(job, server.shared(), timeout)


def default_backend(world_size: int) -> str:
    """Return what `launch` takes if no backend is given: gloo, and NCCL beside it for GPUs."""
    if torchrun.is_here():
        return torchrun.default_backend()
    return _choose_backend(None, world_size, None)


def _run(job: Job, link: server.Server, timeout: float) -> list[Any]:
    supervisor = _Supervisor(link, job.world_size)
    try:
        supervisor.start(job)
        return supervisor.watch(timeout)
    finally:
        try:
            link.end_launch()
        except BaseException:  # interrupted a second time, or the server is gone
            link.stop()
            raise
        finally:
            supervisor.close()


@dataclass(slots=True)
class _Stream:
    """One rank's stdout or stderr on its way to the cell, line by line."""

    rank: int
    name: str
    descriptor: int
    partial: bytes = b""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_STDERR_LINES))

    def pump(self) -> bool:
        """Pass on what is there; say whether there may be more."""
        data = os.read(self.descriptor, 65536)
        *lines, self.partial = (self.partial + data).split(b"\n")
        if not data and self.partial:
            lines, self.partial = [self.partial], b""
        for line in lines:
            text = line.decode(errors="replace")
            if text.startswith("[Gloo] Rank "):  # before torch 2.13, of every new group
                continue
            self.tail.append(text)
            print(f"[rank {self.rank}] {text}", file=getattr(sys, self.name), flush=True)
        return bool(data)


@dataclass(slots=True)
class _Rank:
    number: int
    control: socket.socket
    streams: tuple[_Stream, _Stream]
    pid: int | None = None
    state: str = "running"
    status: int | None = None
    dumped: bool = False


class _Supervisor:
    """The ranks of one launch: passes on what they print, and learns how each of them ends."""

    def __init__(self, link: server.Server, world_size: int) -> None:
        self.link = link
        self.world_size = world_size
        self.ranks: list[_Rank] = []
        self.raised: list[int] = []  # ranks in order of arrival
        self.selector = selectors.DefaultSelector()
        self.selector.register(link, selectors.EVENT_READ)

    def start(self, job: Job) -> None:
        """Start all ranks."""
        self.directory = self.link.begin_launch()
        (self.directory / "job").write_bytes(pickle.dumps(job))
        for number in range(self.world_size):
            control, theirs = socket.socketpair()
            out, their_out = os.pipe()
            err, their_err = os.pipe()
            streams = (_Stream(number, "stdout", out), _Stream(number, "stderr", err))
            rank = _Rank(number, control, streams)
            self.ranks.append(rank)
            for stream in streams:
                os.set_blocking(stream.descriptor, False)
                self.selector.register(stream.descriptor, selectors.EVENT_READ, stream)
            self.selector.register(control, selectors.EVENT_READ, rank)
            try:
                rank.pid = self.link.start_rank(number, [their_out, their_err, theirs.fileno()])
            finally:
                theirs.close()
                os.close(their_out)
                os.close(their_err)

    def watch(self, timeout: float) -> list[object]:
        """Wait until every rank has returned; return their results by rank.

        Raises:
            Exception: A rank's own exception.
            RankDied: If a rank's process ended.
            LaunchTimeout: If ranks had not finished after ``timeout`` seconds.
        """
        start = time.monotonic()
        deadline, patience = start + timeout, start + _PATIENCE
        self._note_exits()  # while others were being started
        while self._running() and not self._failed():
            now = time.monotonic()
            if now >= deadline:
                raise LaunchTimeout(timeout, self._case_file())
            if now >= patience:
                self._say_if_crowded()
                patience = deadline
            self._step(min(deadline, patience) - now)
        if self._failed():
            self._step_until(time.monotonic() + _GRACE, lambda: not self._running())
            self._raise()
        return [self._result(rank) for rank in self.ranks]

    def close(self) -> None:
        """Pass on the last output and close everything; the ranks must be gone."""
        for rank in self.ranks:
            for stream in rank.streams:
                with contextlib.suppress(BlockingIOError):  # somebody still holds the other end
                    while stream.pump():
                        pass
                os.close(stream.descriptor)
            rank.control.close()
        self.selector.close()

    def _say_if_crowded(self) -> None:
        ours = [os.getpid(), *(rank.pid for rank in self.ranks)]
        cpus, others = machine.usable_cpus(), machine.runnable() - machine.runnable(ours)
        if others > cpus:
            print(
                f"labkit: {self.world_size} ranks have run for {_PATIENCE:g} s now. They share "
                f"{cpus} CPUs with about {others} threads of other programs, which takes longer.",
                file=sys.stderr,
            )

    def _running(self) -> bool:
        return any(rank.state == "running" for rank in self.ranks)

    def _failed(self) -> bool:
        return any(rank.state in {"raised", "died"} for rank in self.ranks)

    def _step(self, seconds: float) -> None:
        for key, _ in self.selector.select(seconds):
            if isinstance(key.data, _Stream):
                if not key.data.pump():
                    self.selector.unregister(key.fileobj)
            elif isinstance(key.data, _Rank):
                self._hear(key.data)
            else:
                self._note_exits()

    def _step_until(self, moment: float, done: Callable[[], bool], every: float = 60.0) -> None:
        """Step until that moment or until it is done, asking at least every so many seconds."""
        while (left := moment - time.monotonic()) > 0 and not done():
            self._step(min(left, every))

    def _hear(self, rank: _Rank) -> None:
        try:
            words = rank.control.recv(16)
        except OSError:
            words = b""
        if not words:
            self.selector.unregister(rank.control)
        if FINISHED in words:
            rank.state = "finished"
        elif RAISED in words:
            rank.state = "raised"
            self.raised.append(rank.number)
        if DUMPED in words:
            rank.dumped = True

    def _note_exits(self) -> None:
        exits = self.link.exits()
        for rank in self.ranks:
            if rank.pid in exits:
                rank.status = exits[rank.pid]
                if rank.state == "running":
                    rank.state = "died"

    def _result(self, rank: _Rank) -> Any:
        return pickle.loads((self.directory / f"result-{rank.number}").read_bytes())

    def _raise(self) -> None:
        died = next((rank for rank in self.ranks if rank.state == "died"), None)
        if died is not None:  # what others raised is its consequence
            tail = [
                line
                for line in died.streams[1].tail
                if line.strip() and not any(noise in line for noise in _NOISE)
            ]
            raise RankDied(died.number, self.world_size, died.status, tail)
        reraise([self._result(self.ranks[number]) for number in self.raised], self.world_size)

    def _case_file(self) -> CaseFile:
        states = [rank.state for rank in self.ranks]  # now: a signal may end what a rank waits for
        for rank in self.ranks:
            try:
                rank.control.send(DUMP)
            except OSError:
                rank.dumped = True  # gone: nothing to wait for
        self._step_until(
            time.monotonic() + _DUMP_TIME, lambda: all(rank.dumped for rank in self.ranks)
        )
        silent = [rank for rank in self.ranks if not rank.dumped]
        for rank in silent:  # native code holds the interpreter: a signal still gets the stack
            with contextlib.suppress(OSError):
                os.kill(rank.pid, signal.SIGUSR1)
        self._step_until(
            time.monotonic() + _DUMP_TIME,
            lambda: all(self._stack(rank).endswith(_OUTERMOST) for rank in silent),
            every=0.02,  # a signal's handler cannot say when it is done
        )
        return CaseFile(tuple(map(self._case, self.ranks, states)))

    def _stack(self, rank: _Rank) -> str:
        """Return the rank's stack: the one that a signal asked for, if any, since it is earlier."""
        return self._read(f"signalled-{rank.number}") or self._read(f"stack-{rank.number}")

    def _case(self, rank: _Rank, state: str) -> RankCase:
        calls = self._read(f"calls-{rank.number}")
        return RankCase.read(rank.number, state, self._stack(rank), calls)

    def _read(self, name: str) -> str:
        path = self.directory / name
        return path.read_text() if path.exists() else ""


def _check_program(program: object, args: tuple) -> None:
    name = getattr(program, "__qualname__", repr(program))
    if not callable(program):
        raise TypeError(f"launch needs a function to run on the ranks, got {program!r}.")
    if inspect.isgeneratorfunction(program) or inspect.iscoroutinefunction(program):
        kind = "generator" if inspect.isgeneratorfunction(program) else "coroutine"
        raise TypeError(
            f"launch({name}): it is a {kind} function, so calling it would run nothing. "
            "Write a plain function that returns its result."
        )
    try:
        inspect.signature(program).bind(*args)
    except ValueError:
        return  # a builtin without a signature
    except TypeError as error:
        raise TypeError(f"launch({name}) with {len(args)} argument(s): {error}.") from None


def _check_numbers(world_size: object, timeout: object, threads: object) -> None:
    for name, value in (("world_size", world_size), ("threads", threads)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}.")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise ValueError(f"timeout must be a number of seconds above 0, got {timeout!r}.")


def _check_backend(backend: str | None) -> None:
    if backend not in {None, "gloo", "nccl", "cpu:gloo,cuda:nccl"}:
        raise ValueError(f'backend must be "gloo" or "nccl", got {backend!r}.')


def _choose_backend(
    backend: str | None, world_size: int, fabric: object, *, share_gpu: bool = False
) -> str:
    _check_backend(backend)
    if share_gpu:
        if fabric is not None or backend == "gloo":
            raise ValueError('share_gpu=True is for NCCL: not for backend="gloo", nor a fabric.')
        if reason := one_gpu.why_not():
            raise ValueError(f"share_gpu=True: {reason}")
        return "cpu:gloo,cuda:nccl"
    if fabric is not None and backend is None:
        return "gloo"
    if backend == "gloo":
        return backend
    gpus = machine.gpu_count()
    if backend is None:
        return "cpu:gloo,cuda:nccl" if gpus >= world_size else "gloo"
    if gpus < world_size:
        remedy = f"world_size={gpus}" if gpus else "a machine with GPUs"
        raise ValueError(
            f'world_size={world_size} with backend="{backend}" needs {world_size} GPUs; '
            f'this machine has {gpus}. Use backend="gloo" or {remedy}.'
        )
    return backend
