"""A box with BOX_GPUS GPUs, played on CPUs: for tests, which put this folder into PYTHONPATH.

Nothing of the project knows of it: Python imports this file at its start, in every process, and it
patches torch once that is imported. What lies "on a GPU" is a CPU tensor whose storage says on which
one; NCCL's groups are carried by gloo, but are asked for, made, told and destroyed as NCCL's. Each
rule that it plays has a number here, its source beside it, and a test of its own in `test_rules`.

Settings: BOX_CONNECT, seconds that it takes to make a communicator; BOX_PEER, to enable access to a
peer; BOX_MEMORY, bytes of each GPU; BOX_FILLED, those that others fill; BOX_WAIT, how long what hangs
for ever hangs here; BOX_KINDS, the names of its GPUs; BOX_HOST, its own; BOX_LOG, a file that gets a line for each start of CUDA and each group asked for.

Not played: what runs when (each call has ended when it returns), rates, CUDA graphs, IPC, NCCL's
algorithms and logs, DDP's own buckets on a GPU.
"""

import importlib.abc
import importlib.machinery
import os
import pathlib
import sys
import threading
import time
import types
import warnings

_pid_of_cuda = 0


def setting(name, usual):
    return float(os.environ.get(f"BOX_{name}", usual))


def memory():
    return int(setting("MEMORY", 8 * 2**30) - setting("FILLED", 0))


def log(*words):
    if path := os.environ.get("BOX_LOG"):
        with open(path, "a") as file:
            file.write(" ".join(map(str, words)) + "\n")


def visible():
    """Return the GPUs that this process may see.

    Rule 1, CUDA_VISIBLE_DEVICES: "If the variable is set to an empty string, no GPU devices are
    visible." "If an invalid index is encountered, only devices with indices that appear before the
    invalid index in the list are visible" (CUDA Programming Guide, 5.2, CUDA Environment Variables).
    torch counts them without starting CUDA (torch/cuda/__init__.py, `device_count`).
    """
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    there = int(setting("GPUS", 0))
    if wanted is None:
        return list(range(there))
    indices = []
    for text in wanted.split(","):
        if not text.strip().isdigit() or int(text) >= there:
            break
        indices.append(int(text))
    return indices


def start():
    """Start CUDA in this process.

    Rule 2: it starts when somebody first uses it (torch/cuda/__init__.py, `_lazy_init`), and takes
    its time: of cuInit alone a user says that it "should be about 500ms for a normal GPU" (NVIDIA's
    nvtrust, issue 113, 2025-08-09; theirs took 6.6 s). Rule 3: a process that was forked from one
    with CUDA cannot use it (`_lazy_init`: "Cannot re-initialize CUDA in forked subprocess").
    """
    global _pid_of_cuda
    if _pid_of_cuda and _pid_of_cuda != os.getpid():
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess (played)")
    if not _pid_of_cuda:
        if not visible():
            raise RuntimeError("No CUDA GPUs are available")
        _pid_of_cuda = os.getpid()
        time.sleep(0.2)
        log("cuda", os.getpid())


class Threads(threading.local):
    """Rule 4: the current device is the host thread's ("sets device as the current device for the
    calling host thread", CUDA runtime, cudaSetDevice); a new thread's is 0."""

    device = 0

    def __init__(self):
        self.streams = {}


here = Threads()


def number(device):
    """Return the GPU that is meant; None for the CPU."""
    import torch

    if device is None:
        return here.device
    if isinstance(device, int):
        return device
    device = torch.device(device)
    return None if device.type != "cuda" else here.device if device.index is None else device.index


def valid(gpu):
    start()
    if not 0 <= gpu < len(visible()):
        raise RuntimeError("CUDA error: invalid device ordinal")
    return gpu


class Current:
    """`torch.cuda.device(...)`: another current device for a while."""

    def __init__(self, device):
        self.device = valid(number(device))

    def __enter__(self):
        self.before, here.device = here.device, self.device

    def __exit__(self, *_):
        here.device = self.before


class Stream:
    """A queue of one device's work; everything in it has been done."""

    def __init__(self, device=None, priority=0, **_):
        import torch

        self.device = torch.device("cuda", valid(number(device)))
        self.device_index = self.device.index

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self, *_):
        pass

    wait_event = wait_stream = synchronize

    def __enter__(self):
        gpu = self.device_index
        self.before = here.device, here.streams.get(gpu)
        here.device, here.streams[gpu] = gpu, self

    def __exit__(self, *_):
        here.device, here.streams[self.device_index] = self.before


def current_stream(device=None):
    gpu = valid(number(device))
    here.streams[gpu] = here.streams.get(gpu) or Stream(gpu)
    return here.streams[gpu]


class Event:
    """Rule 5: an event belongs to the device of the stream that first recorded it; another's is refused
    (c10/cuda/CUDAEvent.h, `record`: "does not match recording stream's device"), and "cudaEventElapsedTime() will fail if the two input events
    are associated to different devices" (CUDA C++ Programming Guide, Stream and Event Behavior)."""

    def __init__(self, enable_timing=False, **_):
        self.timed, self.device_index = enable_timing, None

    def record(self, stream=None):
        gpu = (stream or current_stream()).device_index
        if self.device_index not in (None, gpu):
            raise RuntimeError(f"Event device {self.device_index} does not match {gpu}.")
        self.device_index, self.at = gpu, time.perf_counter()

    def elapsed_time(self, other):
        if not (self.timed and other.timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if None in (self.device_index, other.device_index):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if self.device_index != other.device_index:
            devices = f"cuda:{self.device_index} and cuda:{other.device_index}"
            raise RuntimeError(f"CUDA error: invalid resource handle (events on {devices})")
        return 1e3 * (other.at - self.at)

    def synchronize(self):
        pass

    def wait(self, stream=None):
        pass


used_bytes = {}  # by GPU


class Memory:
    """What lies on one GPU. Rule 6: it ends (c10/cuda/CUDACachingAllocator.cpp raises OutOfMemoryError,
    "CUDA out of memory. Tried to allocate ...", once its kept blocks are given back).

    Each process counts its own: ranks that share a GPU do not see each other's here.
    """

    def __init__(self, gpu, nbytes):
        import torch

        held = used_bytes.get(gpu, 0) + nbytes
        self.gpu, self.nbytes = gpu, 0
        if held > memory():
            said = f"CUDA out of memory. Tried to allocate {nbytes / 2**20:.2f} MiB. GPU {gpu} (played)"
            raise torch.OutOfMemoryError(said)
        self.nbytes, used_bytes[gpu] = nbytes, held

    def __del__(self):
        used_bytes[self.gpu] = used_bytes.get(self.gpu, 0) - self.nbytes


def properties(device=None):
    gpu = visible()[valid(number(device))]
    names = os.environ.get("BOX_KINDS", "played GPU").split(", ")  # of GPU 0, 1, ... in turn
    return types.SimpleNamespace(
        name=names[gpu % len(names)],
        total_memory=memory() + int(setting("FILLED", 0)),
        multi_processor_count=132,
    )


def gpu_of(tensor):
    return getattr(tensor.untyped_storage(), "box", types.SimpleNamespace(gpu=None)).gpu


def put(tensor, gpu):
    if gpu is not None and gpu_of(tensor) is None:
        storage = tensor.untyped_storage()
        storage.box = Memory(gpu, storage.nbytes())


def leaves(value, kind):
    """Return the values of that kind in nested lists, tuples and dictionaries."""
    if isinstance(value, kind):
        return [value]
    inside = value.values() if isinstance(value, dict) else value
    if inside is value and not isinstance(value, (list, tuple)):
        return []
    return [leaf for part in inside for leaf in leaves(part, kind)]


def reach(source, target):
    """Rule 7: the first copy from a GPU to another enables access between them, and takes its time
    (ATen/native/cuda/Copy.cu, `copy_kernel_cuda`: "Enable p2p access between devices"; it calls
    cuda/PeerToPeerAccess.cpp, which keeps by ordered pair whether cudaDeviceEnablePeerAccess was
    called). That it takes time was seen elsewhere: some 400 µs (alpaka, pull request 602)."""
    if None not in (source, target) and source != target and (source, target) not in reach.enabled:
        reach.enabled.add((source, target))
        time.sleep(setting("PEER", 0.01))


reach.enabled = set()
BESIDE = "copy_ set_ __getitem__ __setitem__ __set__ __deepcopy__ "
BESIDE += "_has_compatible_shallow_copy_type"
"""What takes tensors of several devices."""


def played(func, args, kwargs):
    """Call a function of torch's as on a machine with GPUs."""
    import torch

    name, owner = getattr(func, "__name__", ""), getattr(func, "__self__", None)
    if func is torch.device:
        return func(*args, **kwargs)
    if isinstance(owner, types.GetSetDescriptorType) and name == "__get__":
        gpu, attribute = gpu_of(args[0]), owner.__name__
        if gpu is None or attribute not in ("device", "is_cuda", "is_cpu"):
            value = func(*args)
            if isinstance(value, torch.Tensor):  # grad, data: made where nobody looks
                put(value, gpu)
            return value
        return torch.device("cuda", gpu) if attribute == "device" else attribute == "is_cuda"
    if name == "untyped_storage":
        return func(*args, **kwargs)
    tensors = leaves([args, kwargs], torch.Tensor)
    places = {gpu_of(t) for t in tensors if gpu_of(t) is not None or t.dim()}
    if name == "numpy" and places > {None}:
        raise TypeError("can't convert cuda device type tensor to numpy.")
    if name in ("to", "cuda", "cpu") and isinstance(args[0], torch.Tensor):
        return moved(name, *args, **kwargs)
    if len(places) > 1 and name not in BESIDE.split():
        devices = " and ".join(sorted("cpu" if p is None else f"cuda:{p}" for p in places))
        raise RuntimeError(f"Expected all tensors to be on the same device, but found {devices}!")
    if name == "copy_":
        reach(gpu_of(args[1]), gpu_of(args[0]))
    target = next((p for p in places if p is not None), None)
    if kwargs.get("device") is not None:
        target = number(kwargs["device"])
        if target is not None:
            target, kwargs["device"] = valid(target), torch.device("cpu")
    result = func(*args, **kwargs)
    if target is not None:
        for tensor in leaves(result, torch.Tensor):
            put(tensor, target)
    return result


def moved(way, tensor, *args, **kwargs):
    """Move a tensor, or change its type: `to`, `cuda` and `cpu`."""
    import torch

    source = target = gpu_of(tensor)
    types = [arg for arg in args if isinstance(arg, torch.dtype)]
    devices = [kwargs.pop("device", None), *(a for a in args if isinstance(a, (str, torch.device)))]
    if way == "cpu":
        target = None
    elif way == "cuda":
        target = number(args[0] if args else devices[0])
    elif device := next(filter(None, devices), None):
        target = number(device)
    known = "dtype", "copy", "memory_format"
    kwargs = {key: value for key, value in kwargs.items() if key in known}
    if target != source:
        kwargs["copy"] = True
        reach(source, target if target is None else valid(target))
    result = tensor.to(*types, **kwargs) if types or kwargs else tensor
    put(result, target)
    return result


class Pending:
    """A call that NCCL carries. Rule 8: a peer that is gone is not noticed: the kernel waits for it.

    That NCCL's kernels wait so is assumed: the watchdog, which ends a job in the end, is not played.
    Its future is complete at once, and what is added to it runs in the thread that adds it, on a
    stream that waits for the work (ATen/core/ivalue_inl.h: `addCallback` calls `invokeCallback`).
    """

    def __init__(self, work):
        self.work = work

    def __getattr__(self, name):
        return getattr(self.work, name)

    def wait(self, *args):
        try:
            return self.work.wait(*args)
        except RuntimeError:
            hang()
            raise

    def get_future(self):
        import torch

        self.wait()
        future = torch.futures.Future()
        future.set_result(self.work.get_future().value())
        return future


def hang():
    time.sleep(setting("WAIT", 60))


CALLS = "allreduce allreduce_coalesced broadcast reduce allgather _allgather_base gather scatter "
CALLS += "reduce_scatter _reduce_scatter_base alltoall alltoall_base send recv barrier "
CALLS += "reduce_scatter_single all_gather_single all_to_all_single"  # their names from 2.13 on


def play_groups():
    """Have groups asked for, made, told and destroyed as NCCL's."""
    import torch
    import torch.distributed as dist

    c10d, world = dist.distributed_c10d, dist.distributed_c10d._world
    communicators = {}  # of a group: those that were made
    carried = []  # moments of calls that NCCL carried, for the flight recorder
    is_batch = threading.local()

    class Nccl(dist.ProcessGroupGloo):
        """Rule 9: what a launch asks for is what `get_backend_config` returns; torch's own books say so."""

        class Options:
            is_high_priority_stream = False

        def __init__(self, store, rank, size, options):
            if not visible():
                raise ValueError("ProcessGroupNCCL is only supported with GPUs, no GPUs found!")
            super().__init__(store, rank, size, options._timeout)

    plain_default = c10d._get_default_timeout
    c10d._get_default_timeout = lambda backend: plain_default("gloo")  # this build has no NCCL's
    c10d._NCCL_AVAILABLE, c10d.ProcessGroupNCCL, dist.ProcessGroupNCCL = True, Nccl, Nccl
    plain_init, plain_helper = dist.init_process_group, c10d._new_process_group_helper
    plain_destroy, plain_abort = dist.destroy_process_group, c10d._abort_process_group
    plain_batch, plain_barrier = dist.batch_isend_irecv, dist.barrier

    def init_process_group(backend=None, *args, **kwargs):
        log("asks", backend or "cpu:gloo,cuda:nccl")
        kwargs.pop("device_id", None)
        return plain_init(backend or "cpu:gloo,cuda:nccl", *args, **kwargs)

    def helper(*args, **kwargs):
        pg, store = plain_helper(*args, **kwargs)
        if pg is not None and not isinstance(pg, int) and "cpu" not in world.pg_backend_config[pg]:
            nccl, kind = pg._get_backend(torch.device("cuda")), dist.ProcessGroup.BackendType.NCCL
            pg._register_backend(torch.device("cpu"), kind, nccl)  # its tensors are the CPU's
        return pg, store

    def connect(pg, name, ranks, gpu):
        """Rule 10: a group's first call makes its communicator, and all its ranks must come; a pair's
        first message outside a batch makes the pair's (ProcessGroupNCCL.cpp, `initNCCLComm` and
        `pointToPoint`). Two ranks on one GPU are refused (NCCL, init.cc: "Duplicate GPU detected", and
        since ranks may share one: "Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this")."""
        if name in communicators.setdefault(pg, set()):
            return
        communicators[pg].add(name)
        store, me = world.pg_map[pg][1], pg.rank()
        host = os.environ.get("BOX_HOST", "box")
        store.set(f"box-{name}-{me}", f"{host} {visible()[gpu]}")
        taken = [store.get(f"box-{name}-{rank}") for rank in ranks]
        if len({*taken}) < len(taken) and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") != "1":
            raise dist.DistBackendError("NCCL error: Duplicate GPU detected (played)")
        time.sleep(setting("CONNECT", 0.05))

    def through(name):
        plain = getattr(dist.ProcessGroup, name)

        def call(pg, *args, **kwargs):
            with torch._C.DisableTorchFunction():
                tensors = leaves([args, kwargs], torch.Tensor)
                gpus = {gpu_of(tensor) for tensor in tensors}
            config = str(world.pg_backend_config.get(pg, ""))
            if name == "barrier":
                options = leaves([args, kwargs], dist.BarrierOptions)
                wanted = list(options[0].device_ids or []) if options else []
                gpus = {wanted[0] if wanted else here.device if "cpu" not in config else None}
            if None in gpus and "cpu" not in config:
                raise RuntimeError("No backend type associated with device type cpu")
            if len(gpus) > 1:
                raise RuntimeError(f"Tensors of one call lie on several devices: {gpus}")
            gpu = next(iter(gpus), None)
            if gpu is None or "nccl" not in config:
                return plain(pg, *args, **kwargs)
            valid(gpu)
            if name in ("send", "recv") and not getattr(is_batch, "on", False):
                pair = sorted((pg.rank(), args[1]))
                connect(pg, f"pair {pair[0]}:{pair[1]}", pair, gpu)
            else:
                connect(pg, "all", range(pg.size()), gpu)
            begin = time.time_ns()
            work = plain(pg, *args, **kwargs)
            peer = args[1] if name in ("send", "recv") else None
            carried.append((begin, time.time_ns(), name, peer, pg))
            return Pending(work)

        setattr(dist.ProcessGroup, name, call)

    def leave(group):
        """Rule 11: to destroy a group waits for its peers, to abort it does not. ProcessGroupNCCL.cpp:
        "`abort()` will signal communicators to terminate all NCCL kernels immediately. `shutdown()`
        will wait for all NCCL kernels to finish before destroying communicators." ncclCommDestroy "is
        an intra-node collective call, which all ranks on the same node should call to avoid a hang"
        (NCCL's guide). `abort()` waits at most as long as the group's timeout for its own side."""
        pg = group or c10d.GroupMember.WORLD
        gone = list(communicators) if group is None else [pg]
        for member in [member for member in gone if communicators.pop(member, None)]:
            store, size = world.pg_map[member][1], member.size()
            store.add("box-left", 1)
            end = time.monotonic() + setting("WAIT", 60)
            while store.add("box-left", 0) < size and time.monotonic() < end:
                time.sleep(0.02)
            if size == store.add("box-left", 0):
                store.add("box-seen", 1)
            while member.rank() == 0 and store.add("box-seen", 0) < size and time.monotonic() < end:
                time.sleep(0.02)  # the store may live in this process

    def destroy_process_group(group=None):
        leave(group)
        return plain_destroy(group)

    def abort_process_group(group=None):
        communicators.clear()
        return plain_abort(group)

    def batch_isend_irecv(operations):
        is_batch.on = True
        try:
            return plain_batch(operations)
        finally:
            is_batch.on = False

    def barrier(group=None, async_op=False, device_ids=None, **kwargs):
        """Rule 12: NCCL's barrier without a device guesses one, and says so (distributed_c10d.py)."""
        config = str(dist.get_backend_config(group))
        if device_ids is None and "cpu" not in config and dist.get_rank(group) == 0:
            warnings.warn("barrier(): using the device under current context.", stacklevel=2)
        return plain_barrier(group, async_op, device_ids, **kwargs)

    for name in CALLS.split():
        if hasattr(dist.ProcessGroup, name):
            through(name)
    c10d._new_process_group_helper, c10d._abort_process_group = helper, abort_process_group
    for function in (init_process_group, destroy_process_group, batch_isend_irecv, barrier):
        setattr(dist, function.__name__, function)
        setattr(c10d, function.__name__, function)
    play_recorder(carried)


def play_recorder(carried):
    """Let the flight recorder name NCCL as the one that carried a call, messages too: gloo's are not
    recorded, NCCL's are as "nccl:send 0->1" (ProcessGroupNCCL.cpp, `send` and `pointToPoint`).
    """
    import json

    import torch

    kept, plain = torch._C._distributed_c10d, torch._C._distributed_c10d._dump_fr_trace_json

    def dump(*args, **kwargs):
        recording = json.loads(plain(*args, **kwargs))
        for entry in recording.get("entries", []):
            if any(begin <= entry["time_created_ns"] <= end for begin, end, *_ in carried):
                entry["profiling_name"] = entry["profiling_name"].replace("gloo:", "nccl:")
        messages = [call for call in carried if call[3] is not None]
        for number, (begin, _, name, peer, pg) in enumerate(messages, 1):
            pair = (pg.rank(), peer) if name == "send" else (peer, pg.rank())
            entry = {"profiling_name": "nccl:{} {}->{}".format(name, *pair), "is_p2p": True}
            entry |= {"time_created_ns": begin, "process_group": [pg.group_name, "default_pg"]}
            entry |= {"p2p_seq_id": number, "collective_seq_id": 0, "retired": True}
            recording.setdefault("entries", []).append(entry)
        return json.dumps(recording).encode()

    kept._dump_fr_trace_json = dump


def play():
    """Patch torch, which has just been imported."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Box(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return played(func, args, dict(kwargs or {}))

    plain_thread = threading.Thread._bootstrap_inner

    def in_thread(thread):
        with Box():
            plain_thread(thread)

    threading.Thread._bootstrap_inner = in_thread
    Box().__enter__()  # for this thread, and for those that are forked from it
    torch.version.cuda, torch.cuda.nccl.version = "13.0", lambda: (2, 30, 4)
    torch.cuda.Event, torch.cuda.Stream, torch.cuda.device = Event, Stream, Current
    torch.cuda.stream, torch.cuda.current_stream = lambda stream: stream, current_stream
    torch.cuda.is_available = lambda: bool(visible())
    torch.cuda.device_count = lambda: len(visible())
    torch.cuda.init = torch.cuda._lazy_init = start
    torch.cuda.is_initialized = lambda: _pid_of_cuda == os.getpid()
    torch.cuda.current_device = lambda: (start(), here.device)[1]
    torch.cuda.set_device = lambda device: setattr(here, "device", valid(number(device)))
    torch.cuda.synchronize = lambda device=None: start()
    torch.cuda.get_device_properties = properties
    torch.cuda.get_device_name = lambda device=None: properties(device).name
    torch.cuda.can_device_access_peer = lambda a, b: valid(a) != valid(b)
    torch.cuda.mem_get_info = lambda device=None: (
        memory() - used_bytes.get(valid(number(device)), 0),
        memory() + int(setting("FILLED", 0)),
    )
    torch.cuda.empty_cache = lambda: None
    play_groups()


class Hook(importlib.abc.MetaPathFinder):
    """Plays once torch has been imported."""

    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (execute(module), play())
        return spec


if "BOX_GPUS" in os.environ:
    exists = pathlib.Path.exists
    driver = "/dev/nvidiactl"  # by which labkit knows, without torch, that GPUs may be there
    pathlib.Path.exists = lambda path, **options: (
        setting("GPUS", 0) > 0 if str(path) == driver else exists(path, **options)
    )
    sys.meta_path.insert(0, Hook())
