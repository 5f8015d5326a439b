"""The same `launch` on ranks that torchrun has started already, on one node or several.

A rank that fails raises its own exception. What ends the others is torchrun, as in any job of it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import os
import pickle
import re
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import cloudpickle

from labkit.ranks.devices import claim, usual
from labkit.ranks.errors import CaseFile, LaunchError, RankCase
from labkit.ranks.rank import CALLS_KEPT, call, compare_calls, entered_calls

if TYPE_CHECKING:
    from torch.distributed import Store

    from labkit.ranks.options import Options

_MARKS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_START = 300.0  # seconds in which all ranks must come
_PATIENCE = 5.0  # seconds after which a rank says for whom it waits
_GRACE = 10.0  # seconds that a rank which is done waits for late ones, which write their stacks
_FOREVER = 1e8  # seconds
_LEFTOVER = re.compile("TORCHELASTIC_|(GROUP|ROLE)_(RANK|WORLD_SIZE|NAME)$")
_numbers = itertools.count(1)
_noted = False
_store: Store | None = None
_nodes: tuple[tuple[int, ...], ...] = ()
_gpus_and_ranks = (0, 1)
"""How many GPUs there are for how many ranks, on the node that has the fewest for its ranks."""


def is_here() -> bool:
    """Say whether this process is a rank that torchrun (or a launcher like it) started.

    A notebook is none, though its kernel may have inherited torchrun's variables.
    """
    ipython = sys.modules.get("IPython")
    notebook = ipython is not None and hasattr(ipython.get_ipython(), "kernel")
    return os.environ.keys() >= set(_MARKS) and "LABKIT_RANK" not in os.environ and not notebook


def without_leftovers() -> dict[str, str]:
    """Return this process's variables without those of torchrun's that other ranks must not have.

    TORCHELASTIC_USE_AGENT_STORE is one: with it every rank waits for a store that nobody serves.
    """
    _note_what_is_ignored()
    return {name: text for name, text in os.environ.items() if not _LEFTOVER.match(name)}


def _note_what_is_ignored() -> None:
    """Say once that some variables of a job are set, and others not: base images do that."""
    global _noted
    there = [name for name in _MARKS if name in os.environ]
    if there and len(there) < len(_MARKS) and not _noted:
        _noted = True
        missing = " and ".join(name for name in _MARKS if name not in there)
        print(
            f"labkit: {', '.join(there)} of the environment is ignored: without {missing} it is no "
            "job of torchrun's, so launch starts ranks of its own.",
            file=sys.stderr,
        )


def run_on_ranks(program: Callable[[], Any], options: Options) -> list[Any]:
    """Run the program on the first ``world_size`` ranks; every rank gets all results.

    Each call makes a fresh default group. The processes stay the same, unlike in a plain `launch`:
    a rank that is late cannot be taken out of what it hangs in. On its standard error it says where
    it waits, with its stacks; it ends with status 1, which makes torchrun end the job.

    Raises:
        LaunchError: On a rank that did not fail itself: names one that did.
        Exception: This rank's own; on its peers, that the connection to it is lost.
    """
    import torch
    import torch.distributed as dist

    rank, there = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    world_size = there if options.world_size is None else options.world_size
    if dist.is_initialized():
        raise RuntimeError(
            "This job has made its default group already, and launch would need one of its own. "
            "Call your function directly: time_calls, wire.meter, sched, CallLog and Tracer work "
            "inside any job. Or call launch before init_process_group."
        )
    if options.fabric is not None:
        raise ValueError("a fabric needs ranks of its own; it cannot hold those of torchrun.")
    if world_size > there:
        raise ValueError(f"world_size={world_size}, but {there} ranks were started.")
    store = dist.PrefixStore(f"labkit-{next(_numbers)}", _shared_store(rank, there))
    put: Any = store.set  # declared to take texts only; bytes are taken as well
    keys = [f"result-{other}" for other in range(world_size)]
    saved, limit = torch.get_num_threads(), min(options.timeout, _FOREVER)
    try:
        if rank < world_size:
            os.environ |= {"WORLD_SIZE": str(world_size), "LABKIT_RANK": str(rank)}
            torch.set_num_threads(options.threads)
            compare_calls(options.checks)
            os.environ.setdefault("TORCH_FR_BUFFER_SIZE", CALLS_KEPT)
            with _no_later_than(limit, rank, world_size):
                if options.init:
                    local_rank = int(os.environ.get("LOCAL_RANK", rank))
                    backend = claim(options.backend or usual(*_gpus_and_ranks), local_rank)
                    group = dist.PrefixStore("group", store)
                    dist.init_process_group(backend, store=group, rank=rank, world_size=world_size)
                    _gather(group, rank, world_size)  # or one destroys it while others still join
                put(keys[rank], cloudpickle.dumps(("", call(program))))
        store.wait(keys, timedelta(seconds=limit + _GRACE))
    except BaseException as error:
        if rank < world_size:
            put(keys[rank], pickle.dumps((f"{type(error).__name__}: {error}", None)))
        _leave(_GRACE, rank, world_size, error)
        raise
    finally:
        os.environ["WORLD_SIZE"] = str(there)
        os.environ.pop("LABKIT_RANK", None)
        torch.set_num_threads(saved)
        dist.set_debug_level_from_env()
    results = [pickle.loads(store.get(key)) for key in keys]
    raised = [(other, text) for other, (text, _) in enumerate(results) if text]
    failures = [
        LaunchError(f"rank {other} of {world_size} raised {text}") for other, text in raised
    ]
    _leave(limit, rank, world_size, *failures[:1])
    if failures:
        raise failures[0]
    put(f"read-{rank}", b"")
    if rank == 0:  # the store may live in this process: outlast the others' reading
        store.wait([f"read-{other}" for other in range(there)])
    return [value for _, value in results]


def _leave(seconds: float, rank: int, world_size: int, error: BaseException | None = None) -> None:
    """Leave the default group, if there is one; after an error others may still wait in it.

    Gloo closes its connections, and those that wait fail at once. Where NCCL leaves, it "will wait
    for all NCCL kernels to finish" (torch's ProcessGroupNCCL.cpp), and what was raised might never
    be seen: so it is told first, and the group is aborted, which ends them at once. The others wait
    on until torchrun ends them, or until their own time is over.
    """
    import torch.distributed as dist

    if not dist.is_initialized():
        return
    with _no_later_than(seconds, rank, world_size):
        if error is None or "nccl" not in dist.get_backend_config():
            dist.destroy_process_group()
            return
        print(f"labkit: on rank {rank} of {world_size}:", file=sys.stderr)
        traceback.print_exception(error)
        sys.stderr.flush()
        dist.distributed_c10d._abort_process_group()


@contextlib.contextmanager
def _no_later_than(seconds: float, rank: int, world_size: int) -> Iterator[None]:
    """End this process if the block has not ended by then."""
    wait, given = min(seconds, threading.TIMEOUT_MAX), [rank, world_size, seconds]
    late = threading.Timer(wait, _end_late, given)
    late.daemon = True
    late.start()
    faulthandler.dump_traceback_later(seconds + _PATIENCE, exit=True)  # nothing else can run
    try:
        yield
    finally:
        late.cancel()
        faulthandler.cancel_dump_traceback_later()


def _end_late(rank: int, world_size: int, seconds: float) -> None:
    """End this process, which is late: say in a line where it waits, then where its threads are."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        stacks = file.read()
    case = CaseFile((RankCase.read(rank, "running", stacks, entered_calls()),))
    _, _, where = str(case).splitlines()[0].partition("running")
    late = f"labkit: rank {rank} of {world_size} was late after {seconds:g} s{where}"
    print(late, stacks, sep="\n", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(1)


def _gather(store: Store, rank: int, world_size: int, value: str = "") -> list[str]:
    """Wait for all ranks; return the value of each."""
    store.set(f"here-{rank}", value)
    return [store.get(f"here-{other}").decode() for other in range(world_size)]


def _shared_store(rank: int, world_size: int) -> Store:
    """Connect to the store of all ranks; the first time, wait for them and learn the nodes."""
    global _store, _nodes, _gpus_and_ranks
    if _store is not None:
        return _store
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    remedy = f"Did torchrun not start this process? Unset {', '.join(_MARKS)}."
    text = f"labkit: launch waits {_START:g} s for the {world_size} ranks of a job. {remedy}"
    note = threading.Timer(_PATIENCE, print, [text], {"file": sys.stderr})
    note.start()
    node = os.environ.get("GROUP_RANK") or os.environ.get("SLURM_NODEID") or socket.gethostname()
    try:
        store, *_ = next(rendezvous("env://", rank, world_size, timeout=timedelta(seconds=_START)))
        common, mine = dist.PrefixStore("labkit", store), f"{torch.cuda.device_count()} {node}"
        facts = [fact.split(" ", 1) for fact in _gather(common, rank, world_size, mine)]
    except RuntimeError as error:  # torch's DistStoreError and DistNetworkError
        raise LaunchError(
            f"{world_size} ranks were announced, but not all came in {_START:g} s "
            f"({str(error).splitlines()[0]}). Is every node started, with the same address and "
            f"port, and can it reach them? {remedy}"
        ) from None
    finally:
        note.cancel()
    ranks, names = range(world_size), [name for _, name in facts]
    _nodes = tuple(tuple(r for r in ranks if names[r] == name) for name in dict.fromkeys(names))
    there = [(min(int(facts[r][0]) for r in node), len(node)) for node in _nodes]
    _gpus_and_ranks = min(there, key=lambda node: node[0] - node[1])
    _store = store
    return store


def nodes() -> tuple[tuple[int, ...], ...]:
    """Return the ranks of each node; nothing before the first launch, or without torchrun.

    A node is what torchrun or Slurm calls so; without them, a host.
    """
    return _nodes
