"""Run a program on several ranks, from anywhere, and get back what each rank returned."""

from __future__ import annotations

import contextlib
import inspect
import os
import pickle
import re
import selectors
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.ranks import machine, server, torchrun
from labkit.ranks.errors import CaseFile, Failure, LaunchTimeout, RankCase, RankDied, reraise
from labkit.ranks.parcel import Parcel, name_of, pack
from labkit.ranks.rank import (
    DUMP,
    DUMPED,
    END_OF_FAILED,
    ENDED,
    FINISHED,
    GO,
    JOINED,
    RAISED,
    Job,
    Placement,
)

if TYPE_CHECKING:
    from labkit.fabric.fabric import Fabric

_GRACE = 0.3  # seconds between the first failure and the verdict, at most: others may fail alike
_LONGER = 2.0  # seconds, where all that failed only follow from a failure of another rank
_DUMP_TIME = 1.5  # seconds that ranks get to write down where they stand
_OUTERMOST = "in <module>\n"  # the last line of a whole stack: the main thread's is written last
_STDERR_LINES = 16
_NOISE = ("/labkit/ranks/", 'File "<string>"', "Extension modules:")  # of faulthandler
_one_at_a_time = threading.Lock()


def launch(
    program: Callable[..., Any],
    /,
    *args: Any,
    world_size: int | None = None,
    backend: str | None = None,
    fabric: Fabric | None = None,
    timeout: float = 60.0,
    init: bool = True,
    checks: bool = False,
    threads: int = 1,
    **kwargs: Any,
) -> list[Any]:
    """Run a program on ``world_size`` fresh processes; return what each rank returned.

    The program is plain ``torch.distributed`` code: when it starts, the default process group is up
    and RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set as torchrun sets them. It
    may be typed in a notebook cell and use variables around it. What it prints appears here,
    prefixed by its rank.

    Under ``torchrun`` the same call uses the ranks that are there: each of them calls `launch`,
    runs the program, and gets the results of all.

    Args:
        program: The function to run. It must not be a generator or a coroutine. It gets no rank:
            ``dist.get_rank()`` tells.
        *args: Its arguments, the same on every rank.
        world_size: How many ranks; 4 if not given, or under torchrun all that are there.
        backend: ``"gloo"`` or ``"nccl"``. If not given: gloo, and where every rank can have a GPU,
            NCCL for what lies on GPUs.
        fabric: Hosts and links to run on (`labkit.fabric.fabric`); none: this machine's loopback.
        timeout: Seconds that the ranks get, from their start; ``float("inf")`` for no limit.
        init: Whether the default group is up when the program starts. False is for programs that
            call ``init_process_group`` or ``init_rpc`` themselves.
        checks: Let torch compare the ranks' calls, so that a wrong shape or a swapped collective
            is an immediate error that names the ranks. About 1.8 times slower per small call.
        threads: Intra-op threads of torch per rank.
        **kwargs: More arguments of the program, by name.

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
    __tracebackhide__ = True  # as in all that follows: a notebook leaves these frames out
    _check_program(program, args, kwargs)
    _check_options(4 if world_size is None else world_size, timeout, threads, backend)
    if torchrun.is_here():
        options = {"timeout": timeout, "checks": checks, "threads": threads, "init": init}
        placed = {"world_size": world_size, "backend": backend, "fabric": fabric}
        return torchrun.run_on_ranks(partial(program, *args, **kwargs), **placed, **options)
    if "LABKIT_RANK" in os.environ:
        raise RuntimeError(
            f"launch was called on rank {os.environ['LABKIT_RANK']} of a launch. "
            "Ranks cannot start ranks: call launch outside the program. In a script whose ranks "
            'start processes of their own by spawning, call it below `if __name__ == "__main__":`.'
        )
    world_size = 4 if world_size is None else world_size
    parcel = pack(program, args, kwargs)
    main = sys.modules["__main__"]
    job = Job(
        world_size=world_size,
        backend=_choose_backend(backend, world_size, fabric),
        init=init,
        checks=checks,
        threads=threads,
        placements=tuple(
            fabric.placement(rank, world_size) if fabric else Placement()
            for rank in range(world_size)
        ),
        environment=dict(os.environ),
        path=tuple(sys.path),
        argv=tuple(sys.argv[:1] if "kernel_launcher" in str(sys.argv[:1]) else sys.argv),
        cwd=str(Path.cwd()),
        main=(
            getattr(main, "__file__", None),
            getattr(getattr(main, "__spec__", None), "name", None),
        ),
    )
    with _one_at_a_time:
        return _run(job, parcel, server.shared(), timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """A setting for `launch` that is used again and again; the fields are its options.

    Example:
        >>> on_two = Launcher(world_size=2, timeout=20)
        >>> on_two(pow, 3, 2)
        [9, 9]

        Each of two ranks computed 3 squared.
    """

    world_size: int | None = None
    backend: str | None = None
    fabric: Fabric | None = None
    timeout: float = 60.0
    init: bool = True
    checks: bool = False
    threads: int = 1

    def __call__(self, program: Callable[..., Any], /, *args: Any, **kwargs: Any) -> list[Any]:
        """Run ``program(*args, **kwargs)`` as `launch` does."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        return launch(program, *args, **options, **kwargs)


def default_backend(world_size: int) -> str:
    """Return what `launch` takes if no backend is given: gloo, and NCCL beside it for GPUs."""
    if torchrun.is_here():
        return torchrun.default_backend()
    return _choose_backend(None, world_size, None)


def _run(job: Job, program: Parcel, link: server.Server, timeout: float) -> list[Any]:
    __tracebackhide__ = True
    supervisor = _Supervisor(link, job.world_size)
    try:
        supervisor.start(job, program)
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
    drawn: bool = False
    """Whether its last line is on the screen and not ended."""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_STDERR_LINES))

    def pump(self) -> bool:
        """Pass on what is there; say whether there may be more."""
        data = os.read(self.descriptor, 65536)
        *lines, self.partial = (self.partial + data).split(b"\n")
        if not data and self.partial:
            lines, self.partial = [self.partial], b""
        for line in lines:
            text = _last_state(line)
            if text.startswith("[Gloo] Rank "):  # before torch 2.13, of every new group
                continue
            self.tail.append(text)
            self._print(text, "\n")
        if b"\r" in self.partial:  # a progress bar, which draws over its line
            self.partial = b"\r" + _last_state(self.partial).encode()
            self._print(self.partial[1:].decode(), "")
        return bool(data)

    def _print(self, text: str, end: str) -> None:
        start, self.drawn = "\r" * self.drawn, not end
        print(
            f"{start}[rank {self.rank}] {text}", end=end, file=getattr(sys, self.name), flush=True
        )


def _last_state(line: bytes) -> str:
    """Return what is seen of a line that was drawn over."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")


@dataclass(slots=True)
class _Rank:
    number: int
    control: socket.socket
    streams: tuple[_Stream, _Stream]
    pid: int | None = None
    state: str = "running"
    status: int | None = None
    joined: bool = False
    ended: bool = False
    dumped: bool = False


class _Supervisor:
    """The ranks of one launch: passes on what they print, and learns how each of them ends."""

    def __init__(self, link: server.Server, world_size: int) -> None:
        self.link = link
        self.world_size = world_size
        self.ranks: list[_Rank] = []
        self.port = socket.socket()
        self.raised: list[int] = []  # ranks in order of arrival
        self.selector = selectors.DefaultSelector()
        self.selector.register(link, selectors.EVENT_READ)

    def start(self, job: Job, program: Parcel) -> None:
        """Start all ranks."""
        self.directory = self.link.begin_launch()
        program.write(self.directory / "program")
        # Rank 0's stores get this port: bound without listening, it is free for SO_REUSEADDR only.
        self.port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.port.bind(("127.0.0.1", 0))
        (self.directory / "port").write_text(str(self.port.getsockname()[1]))
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
        __tracebackhide__ = True
        deadline = time.monotonic() + timeout
        self._note_exits()  # while others were being started
        while self._running() and not self._failed():
            if (left := deadline - time.monotonic()) <= 0:
                raise LaunchTimeout(timeout, self._case_file())
            self._step(left)
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
        self.port.close()
        self.selector.close()

    def _running(self) -> bool:
        return any(rank.state == "running" for rank in self.ranks)

    def _failed(self) -> bool:
        return any(rank.state in {"raised", "died"} for rank in self.ranks)

    def _step(self, seconds: float) -> None:
        for key, _ in self.selector.select(min(seconds, 3600.0)):
            if isinstance(key.data, _Stream):
                if not key.data.pump():
                    self.selector.unregister(key.fileobj)
            elif isinstance(key.data, _Rank):
                self._on_message(key.data)
            else:
                self._note_exits()

    def _step_until(self, moment: float, done: Callable[[], bool], every: float = 60.0) -> None:
        """Step until that moment or until it is done, asking at least every so many seconds."""
        while (left := moment - time.monotonic()) > 0 and not done():
            self._step(min(left, every))

    def _on_message(self, rank: _Rank) -> None:
        try:
            words = rank.control.recv(16)
        except OSError:
            words = b""
        if not words:
            self.selector.unregister(rank.control)
        if JOINED in words:
            rank.joined = True
            if all(other.joined for other in self.ranks):
                for other in self.ranks:
                    with contextlib.suppress(OSError):  # it has just died
                        other.control.send(GO)
        rank.ended |= ENDED in words
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
        parcel = Parcel.read(self.directory / f"result-{rank.number}")
        try:
            return parcel.load()
        except Exception as error:
            raise TypeError(
                f"rank {rank.number} returned a {parcel.kind} that cannot be rebuilt here: {error} "
                "Return plain data: numbers, strings, lists, tensors, a model's state_dict()."
            ) from error

    def _raise(self) -> None:
        died = next((rank for rank in self.ranks if rank.state == "died"), None)
        if died is not None:  # what others raised is its consequence
            tail = [
                line
                for line in died.streams[1].tail
                if line.strip() and not any(noise in line for noise in _NOISE)
            ]
            raise RankDied(died.number, self.world_size, died.status, tail)
        failures = self._failures()
        if all(failure.follows for failure in failures):
            known = len(self.raised)
            deadline = time.monotonic() + _LONGER
            self._step_until(deadline, lambda: len(self.raised) > known or not self._running())
            failures = self._failures()
        raised = [self.ranks[number] for number in self.raised]
        self._step_until(
            time.monotonic() + 2 * END_OF_FAILED, lambda: all(rank.ended for rank in raised)
        )
        reraise(failures, self.world_size)

    def _failures(self) -> list[Failure]:
        return [self._result(self.ranks[number]) for number in self.raised]

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


def _check_program(program: object, args: tuple, kwargs: dict[str, Any]) -> None:
    name = name_of(program)
    if not callable(program):
        raise TypeError(f"launch needs a function to run on the ranks, got {program!r}.")
    if inspect.isgeneratorfunction(program) or inspect.iscoroutinefunction(program):
        kind = "generator" if inspect.isgeneratorfunction(program) else "coroutine"
        raise TypeError(
            f"launch({name}): it is a {kind} function, so calling it would run nothing. "
            "Write a plain function that returns its result."
        )
    try:
        inspect.signature(program).bind(*args, **kwargs)
    except ValueError:
        return  # a builtin without a signature
    except TypeError as error:
        missing = re.search("missing a required .*argument: '(.*)'", str(error))
        hint = ""
        if missing and missing[1] in {field.name for field in fields(Launcher)}:
            hint = f" launch keeps {missing[1]}= for itself: pass it by position, or in a partial."
        elif missing:
            hint = " launch passes no rank: a program asks dist.get_rank() and get_world_size()."
        count = len(args) + len(kwargs)
        raise TypeError(f"launch({name}) with {count} argument(s): {error}.{hint}") from None


def _check_options(world_size: object, timeout: object, threads: object, backend: object) -> None:
    for name, value in (("world_size", world_size), ("threads", threads)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}.")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise ValueError(
            f"timeout must be a number of seconds above 0, got {timeout!r}. "
            'No limit: timeout=float("inf").'
        )
    if backend not in {None, "gloo", "nccl", "cpu:gloo,cuda:nccl"}:
        raise ValueError(f'backend must be "gloo" or "nccl", got {backend!r}.')


def _choose_backend(backend: str | None, world_size: int, fabric: object) -> str:
    if fabric is not None and backend is None:
        return "gloo"
    if backend == "gloo":
        return backend
    gpus = machine.gpu_count()
    if backend is None:
        return "cpu:gloo,cuda:nccl" if gpus >= world_size else "gloo"
    may_share = gpus and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"  # NCCL 2.30; not run
    if gpus < world_size and not may_share:
        remedy = f"world_size={gpus}" if gpus else "a machine with GPUs"
        raise ValueError(
            f'world_size={world_size} with backend="{backend}" needs {world_size} GPUs; '
            f'this machine has {gpus}. Use backend="gloo" or {remedy}.'
        )
    return backend
