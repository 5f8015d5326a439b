"""Run a program on several ranks, from anywhere, and get back what each rank returned."""

from __future__ import annotations

import contextlib
import inspect
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.launch import serverlink, spawner, torchrun
from labkit.launch.job import Job
from labkit.launch.machine import gpu_count
from labkit.launch.packing import pack
from labkit.launch.placement import Placement
from labkit.launch.supervisor import Supervisor

if TYPE_CHECKING:
    from labkit.fabric.fabric import Fabric

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
    if torchrun.is_here():
        return torchrun.run(program, args, world_size=world_size, backend=backend, fabric=fabric)
    if "LABKIT_RANK" in os.environ:
        raise RuntimeError(
            f"launch was called on rank {os.environ['LABKIT_RANK']} of a launch. "
            "Ranks cannot start ranks: call launch outside the program."
        )
    world_size = 4 if world_size is None else world_size
    _check_numbers(world_size, timeout, threads)
    job = Job.here(
        program=pack(program, args),
        world_size=world_size,
        backend=_choose_backend(backend, world_size, fabric),
        checks=checks,
        threads=threads,
        placements=tuple(
            fabric.placement(rank, world_size) if fabric else Placement()
            for rank in range(world_size)
        ),
    )
    with _one_at_a_time:
        starter = spawner if spawner.is_needed() else serverlink
        server = starter.shared()  # may take seconds: before there is anything to leave behind
        with _private_directory() as directory:
            job.save(directory)
            return _supervise(server, directory, world_size, timeout)


def default_backend(world_size: int) -> str:
    """Return what `launch` takes if no backend is given: gloo, and NCCL beside it for GPUs."""
    return (
        torchrun.default_backend()
        if torchrun.is_here()
        else _choose_backend(None, world_size, None)
    )


def _supervise(
    server: serverlink.ServerLink | spawner.Spawner,
    directory: Path,
    world_size: int,
    timeout: float,
) -> list[Any]:
    supervisor = Supervisor(server, directory, world_size)
    try:
        supervisor.start()
        return supervisor.watch(timeout)
    finally:
        try:
            server.end_launch()
        except BaseException:  # interrupted a second time, or the server is gone
            server.stop()
            raise
        finally:
            supervisor.close()


@contextlib.contextmanager
def _private_directory() -> Iterator[Path]:
    """Make a folder in memory where that is possible; the ranks' rendezvous must be fast."""
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(
        prefix=f"labkit-{os.getpid()}-", dir=parent, ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


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


def _choose_backend(backend: str | None, world_size: int, fabric: object) -> str:
    if backend not in {None, "gloo", "nccl", "cpu:gloo,cuda:nccl"}:
        raise ValueError(f'backend must be "gloo" or "nccl", got {backend!r}.')
    if fabric is not None and backend is None:
        return "gloo"
    if backend == "gloo":
        return backend
    gpus = gpu_count()
    if backend is None:
        return "cpu:gloo,cuda:nccl" if gpus >= world_size else "gloo"
    if gpus < world_size:
        remedy = f"world_size={gpus}" if gpus else "a machine with GPUs"
        raise ValueError(
            f'world_size={world_size} with backend="{backend}" needs {world_size} GPUs; '
            f'this machine has {gpus}. Use backend="gloo" or {remedy}.'
        )
    return backend
