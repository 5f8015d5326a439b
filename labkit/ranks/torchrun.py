"""The same `launch` on ranks that torchrun has started already, on one node or several.

Before the first program, every rank answers a roll call: all must be there, with the same versions.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import json
import os
import pickle
import platform
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from importlib import metadata
from typing import TYPE_CHECKING, Any

import cloudpickle

from labkit.ranks.errors import CaseFile, LaunchError, LaunchTimeout, RankCase
from labkit.ranks.machine import Machine
from labkit.ranks.rank import calls, join

if TYPE_CHECKING:
    from torch.distributed import Store

JOIN_TIMEOUT = "LABKIT_JOIN_TIMEOUT"
"""Environment variable: seconds that ranks wait for each other at the start."""
_MARKS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_ALIKE = ("labkit", "torch", "python", "backend")
_GRACE = 10.0  # seconds that a rank which is done waits for the others, which may be dead
_BUSY = 7200.0  # seconds that a rank without a part in a program waits for those that have one
_DUMP_TIME = 1.0  # seconds that ranks get to write down, or to read, where each one stands
_numbers = itertools.count(1)
_store: Store | None = None
_present: list[dict[str, Any]] = []
_noted = False


def is_here() -> bool:
    """Say whether this process is a rank that torchrun (or a launcher like it) started."""
    return _is_marked() and "LABKIT_RANK" not in os.environ and not _in_a_notebook()


def note_leftovers() -> None:
    """Say once that a notebook kernel has inherited torchrun's variables, if it has."""
    global _noted
    if _is_marked() and _in_a_notebook() and not _noted:
        _noted = True
        print(
            f"labkit: {', '.join(_MARKS)} are set, but a notebook is no rank of torchrun: "
            "launch starts ranks of its own.",
            file=sys.stderr,
        )


def _is_marked() -> bool:
    return os.environ.keys() >= set(_MARKS)


def _in_a_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def default_backend() -> str:
    """Return what carries tensors: gloo, and where this rank has a GPU, NCCL beside it."""
    import torch

    local_rank = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
    return "cpu:gloo,cuda:nccl" if torch.cuda.device_count() > local_rank else "gloo"


def run(
    program: Callable[..., Any],
    args: tuple,
    *,
    world_size: int | None,
    backend: str | None,
    fabric: object,
    timeout: float,
    checks: bool,
    threads: int,
) -> list[Any]:
    """Run the program on the first ``world_size`` ranks; every rank gets all results.

    Each call makes a fresh default group. The processes stay the same, unlike in a plain `launch`.

    Raises:
        ValueError: If more ranks are asked for than torchrun started, or a fabric is.
        LaunchError: On the ranks that did not fail, or only because another one did: names it.
        LaunchTimeout: On ranks that had finished when others had not in time. Those cannot be taken
            out of what they hang in: one prints the case file, and they end with status 1, which
            makes torchrun end the job.
    """
    import torch.distributed as dist

    rank, there = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    world_size = there if world_size is None else world_size
    if fabric is not None:
        raise ValueError("a fabric needs ranks of its own; it cannot hold those of torchrun.")
    if world_size > there:
        raise ValueError(f"world_size={world_size}, but {there} ranks were started.")
    name = f"labkit-{next(_numbers)}"
    store = dist.PrefixStore(name, _shared_store(rank, there))
    one = _Run(name, store, rank, world_size, timeout)
    failure, patience = None, _BUSY
    if rank < world_size:
        failure = one.run(program, args, backend, checks=checks, threads=threads)
        patience = _GRACE + (0 if failure else timeout)
    with contextlib.suppress(RuntimeError):  # torch's DistStoreError: they are named below
        store.wait(["over"], timedelta(seconds=patience))
    results = one.results()
    case = one.case() if store.check(["late"]) else None
    if dist.is_initialized() and case is None:  # those who hang go on hanging until they are told
        dist.destroy_process_group()
    store.add("read", 1)
    if rank == 0:  # the store may live in this process: outlast the others' reading
        _poll(lambda: store.add("read", 0) >= there - world_size + len(results))
    failed = [(order, other) for other, (order, _) in results.items() if order]
    if failed:
        _, first = min(failed)
        _, what = results[first]
        if failure is None or what != results[rank][1]:
            raise LaunchError(f"rank {first} of {world_size} raised {what}") from failure
        raise failure
    if case is not None:
        raise LaunchTimeout(timeout, case)
    if missing := sorted(set(range(world_size)) - set(results)):
        raise LaunchError(f"ranks {missing} of {world_size} left no result: did their node die?")
    return [value for _, value in results.values()]


@dataclass(frozen=True, slots=True)
class _Run:
    """One call of `launch`, as one rank sees it."""

    name: str
    store: Store
    rank: int
    world_size: int
    timeout: float

    def run(
        self, program: Callable, args: tuple, backend: str | None, *, checks: bool, threads: int
    ) -> BaseException | None:
        """Run the program; leave (0, its value) or (place among the failures, text) to all."""
        import torch
        import torch.distributed as dist

        store, backend = self.store, backend or default_backend()
        if "nccl" in backend:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", self.rank)))
        saved = os.environ["WORLD_SIZE"], torch.get_num_threads()
        os.environ["WORLD_SIZE"] = str(self.world_size)
        torch.set_num_threads(threads)
        alarm = threading.Timer(self.timeout, self.give_up)
        alarm.daemon = True
        try:
            group_store = dist.PrefixStore("group", store)
            join(backend, group_store, self.rank, self.world_size, checks=checks)
            store.add("joined", 1)
            alarm.start()
            blob, failure = cloudpickle.dumps((0, program(*args))), None
        except Exception as error:
            order = store.add("failures", 1)  # before the others lose their connection and fail too
            if dist.is_initialized():
                _poll(lambda: store.add("joined", 0) == self.world_size)  # none still connects
                dist.destroy_process_group()  # so that those who wait for this rank fail
            blob = cloudpickle.dumps((order, f"{type(error).__name__}: {error}"))
            failure = error
        finally:
            alarm.cancel()
            os.environ["WORLD_SIZE"] = saved[0]
            torch.set_num_threads(saved[1])
            dist.set_debug_level_from_env()
        store.set(f"result-{self.rank}", blob)
        if store.add("done", 1) == self.world_size:
            store.set("over", "done")
        return failure

    def results(self) -> dict[int, tuple[int, Any]]:
        """Return what each rank has left so far, by rank."""
        keys = {rank: f"result-{rank}" for rank in range(self.world_size)}
        check, get = self.store.check, self.store.get
        return {rank: pickle.loads(get(key)) for rank, key in keys.items() if check([key])}

    def give_up(self) -> None:
        """End this rank, which is late. The first that is late tells where every rank stands."""
        import torch.distributed as dist

        with tempfile.TemporaryFile("w+") as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            stack = file.read()
        # A connection of its own: the other one is locked while the program waits for an answer.
        store = _connect(self.world_size, time.monotonic() + _GRACE)
        store = dist.PrefixStore(self.name, store)
        store.set(f"case-{self.rank}", json.dumps([stack, calls()]))
        if store.add("late", 1) == 1:
            time.sleep(_DUMP_TIME)
            told = LaunchTimeout(self.timeout, replace(self, store=store).case())
            print(f"labkit.ranks.errors.LaunchTimeout: {told}", file=sys.stderr, flush=True)
            store.set("over", "late")
        else:
            _poll(lambda: store.check(["over"]))
        time.sleep(_DUMP_TIME)  # torchrun ends the others as soon as one has ended
        os._exit(1)

    def case(self) -> CaseFile:
        """Return where every rank stands, from what they left."""
        cases, results = [], self.results()
        for rank in range(self.world_size):
            order, _ = results.get(rank, (None, None))
            state = {None: "running", 0: "finished"}.get(order, "raised")
            there = self.store.check([f"case-{rank}"])
            written = json.loads(self.store.get(f"case-{rank}")) if there else ()
            cases.append(RankCase.read(rank, state, *written))
        return CaseFile(tuple(cases))


def _poll(done: Callable[[], bool], seconds: float = _GRACE) -> bool:
    """Wait until it is done, at most so long; say whether it is. A store's own wait logs C++."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _shared_store(rank: int, world_size: int) -> Store:
    """Connect to the store that all ranks share; the first time, call the roll."""
    global _store, _present
    if _store is None:
        import torch.distributed as dist

        deadline = time.monotonic() + _join_timeout()
        # Rank 0 makes the store, unless torchrun's agent has.
        agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        store = _connect(world_size, deadline, make=rank == 0 and not agent)
        answers = dist.PrefixStore("labkit-roll-call", store)
        me = _describe(rank, default_backend())
        _present = _roll_call(answers, me, world_size=world_size, deadline=deadline)
        _store = store
    return _store


def _connect(world_size: int, deadline: float, *, make: bool = False) -> Store:
    import torch.distributed as dist

    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    while not make:  # torch's own attempts log a C++ stack when nobody answers
        try:
            socket.create_connection(address, max(deadline - time.monotonic(), 0.1)).close()
            break
        except OSError as error:
            if time.monotonic() > deadline:
                found = f"nobody answers at {address} ({error.strerror or error})"
                raise _too_few(found, world_size) from None
            time.sleep(0.1)
    return dist.TCPStore(*address, is_master=make, multi_tenant=True, wait_for_workers=False)


def _join_timeout() -> float:
    """Return the seconds to wait for the other ranks: LABKIT_JOIN_TIMEOUT, or 120."""
    return float(os.environ.get(JOIN_TIMEOUT, "120"))


def _describe(rank: int, backend: str = "gloo") -> dict[str, Any]:
    """Return this rank's answer to the roll call.

    The backend is in it because a rank that sees no GPU of its own cannot join NCCL.
    """
    try:
        version = metadata.version("labkit")
    except metadata.PackageNotFoundError:
        version = "not installed"
    host = socket.gethostname()
    return {
        "rank": rank,
        "node": os.environ.get("GROUP_RANK") or os.environ.get("SLURM_NODEID") or host,
        "host": host,
        "labkit": version,
        "torch": metadata.version("torch"),
        "python": ".".join(platform.python_version_tuple()[:2]),  # pickles travel between ranks
        "backend": backend,
        "machine": asdict(Machine.here()),
    }


def _roll_call(store: Store, me: dict, *, world_size: int, deadline: float) -> list[dict[str, Any]]:
    """Answer with `me`, from `_describe`; return everybody's answers, by rank.

    The store is shared by all ranks and used by nothing else; the deadline is on the monotonic
    clock.

    Raises:
        LaunchError: Ranks did not answer in time, or run other versions; names them.
    """
    store.set(str(me["rank"]), json.dumps(me))
    keys = [str(rank) for rank in range(world_size)]
    if not _poll(lambda: store.check(keys), deadline - time.monotonic()):
        missing = [rank for rank, key in enumerate(keys) if not store.check([key])]
        raise _too_few(f"ranks {missing} are missing", world_size)
    answers = [json.loads(store.get(key)) for key in keys]
    for name in _ALIKE:
        versions = _grouped(answers, name)
        if len(versions) > 1:
            found = "; ".join(
                f"{version} on ranks {ranks} ({answers[ranks[0]]['host']})"
                for version, ranks in versions.items()
            )
            raise LaunchError(f"all ranks need the same {name}: {found}.")
    return answers


def _too_few(found: str, world_size: int) -> LaunchError:
    return LaunchError(
        f"{world_size} ranks were announced, but {found} after {_join_timeout():g} s. "
        "Is every node started, with the same address and port, and can it reach them? "
        f"{JOIN_TIMEOUT}=600 waits longer. "
        f"If torchrun did not start this process: unset {', '.join(_MARKS)}."
    )


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of several, and which ranks ran there. It has no name: records are passed on."""

    ranks: tuple[int, ...]
    machine: Machine

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Node:
        """Rebuild it from `dataclasses.asdict`."""
        return cls(tuple(fields["ranks"]), Machine.from_dict(fields["machine"]))


def nodes() -> tuple[Node, ...]:
    """Return the nodes by their first rank; none before the first `run`, or without torchrun.

    A node is what torchrun or Slurm calls so; without them, a host.
    """
    return tuple(
        Node(tuple(ranks), Machine.from_dict(_present[ranks[0]]["machine"]))
        for ranks in _grouped(_present, "node").values()
    )


def _grouped(answers: list[dict[str, Any]], name: str) -> dict[str, list[int]]:
    """Return the ranks that gave the same answer, by that answer."""
    ranks: dict[str, list[int]] = {}
    for rank, answer in enumerate(answers):
        ranks.setdefault(answer[name], []).append(rank)
    return ranks
