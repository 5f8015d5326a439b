"""The played box enforces the rules that bite where there are several GPUs, each by its number."""

import pytest

pytestmark = pytest.mark.exhaustive  # what is played changes seldom

ALONE = [
    ("1: a mask hides GPUs, an invalid entry ends it", {"CUDA_VISIBLE_DEVICES": "2,0,9,1"}, """
print(torch.cuda.device_count())
""", "2"),
    ("1: an empty mask hides all", {"CUDA_VISIBLE_DEVICES": ""}, """
print(torch.cuda.is_available(), torch.cuda.device_count())
""", "False 0"),
    ("2: CUDA starts when somebody uses it", {}, """
before = torch.cuda.is_initialized()
torch.ones(1, device="cuda")
print(before, torch.cuda.is_initialized())
""", "False True"),
    ("3: not in a process forked from one that has it", {}, """
torch.ones(1, device="cuda")
pid = os.fork()
if pid == 0:
    try:
        torch.ones(1, device="cuda")
    except RuntimeError as error:
        print("forked" in str(error), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
""", "True"),
    ("4: the current device is a thread's", {}, """
torch.cuda.set_device(2)
seen = []
thread = threading.Thread(target=lambda: seen.append(torch.cuda.current_device()))
thread.start(); thread.join()
print(torch.cuda.current_device(), seen)
""", "2 [0]"),
    ("5: events of two devices cannot be compared", {}, """
begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
begin.record()
with torch.cuda.device(1):
    end.record()
try:
    begin.elapsed_time(end)
except RuntimeError as error:
    print("invalid resource handle" in str(error))
""", "True"),
    ("6: memory ends", {"BOX_MEMORY": "1e6"}, """
kept = torch.ones(200_000, device="cuda:1")
try:
    torch.ones(200_000, device="cuda:1")
except torch.OutOfMemoryError as error:
    print("out of memory" in str(error), torch.cuda.mem_get_info(1)[0])
""", "True 200000"),
    ("7: the first copy to a peer opens the way", {"BOX_PEER": "0.2"}, """
a, b = torch.ones(4, device="cuda:0"), torch.ones(4, device="cuda:1")
times = []
for _ in range(2):
    start = time.perf_counter(); b.copy_(a); times.append(time.perf_counter() - start)
print(times[0] > 0.2 > times[1])
""", "True"),
    ("tensors of two devices do not add", {}, """
try:
    torch.ones(4, device="cuda:0") + torch.ones(4)
except RuntimeError as error:
    print("same device" in str(error))
""", "True"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "source", "says"), [row[1:] for row in ALONE], ids=[row[0] for row in ALONE]
)
def test_a_process_keeps_to_the_rule(more, source, says, box):
    imports = "import os, threading, time, torch\n"
    done = box.run(4, imports + source, more=more)
    assert done.stdout.strip() == says, done.stderr


JOB = """
import os, time, warnings, torch, torch.distributed as dist
from labkit import device, launch

def show(program, *args, **options):
    results = launch(program, *args, **options)
    if os.environ["RANK"] == "0":
        print(results)
"""


ENDS = """
def program():
    dist.all_reduce(torch.ones(1, device=device()))
    time.sleep(1.0 if dist.get_rank() else 0)
    start = time.perf_counter()
    dist.distributed_c10d.{}_process_group()
    return time.perf_counter() - start > 0.5
show(program)
"""
JOBS = [
    ("8: who waits for a peer that is gone waits on", {"BOX_WAIT": "1"}, """
def program():
    x = torch.ones(1, device=device())
    dist.all_reduce(x)
    if dist.get_rank():
        os._exit(0)
    start = time.perf_counter()
    try:
        dist.all_reduce(x)
    except RuntimeError:
        print(time.perf_counter() - start > 1, flush=True)
        os._exit(0)
launch(program)
""", ["True"]),
    ("9: what is asked for is what the group says and where tensors lie", {}, """
def program():
    return dist.get_backend(), str(torch.ones(1, device=device()).device)
show(program)
show(program, backend="gloo")
""", [
        "[('cpu:gloo,cuda:nccl', 'cuda:0'), ('cpu:gloo,cuda:nccl', 'cuda:1')]",
        "[('gloo', 'cpu'), ('gloo', 'cpu')]",
    ]),
    ("10: a group's first call makes its communicator", {"BOX_CONNECT": "0.3"}, """
def program():
    x, group, times = torch.ones(1, device=device()), dist.new_group([0, 1]), []
    dist.all_reduce(x)
    for _ in range(2):
        start = time.perf_counter()
        dist.all_reduce(x, group=group)
        times.append(time.perf_counter() - start)
    return times[0] > 0.3 > times[1]
show(program)
""", ["[True, True]"]),
    ("10: two ranks on one GPU are refused", {}, """
def program():
    try:
        dist.all_reduce(torch.ones(1, device="cuda:0"))
    except dist.DistBackendError as error:
        return "Duplicate GPU" in str(error)
show(program)
""", ["[True, True]"]),
    ("11: to destroy a group waits for its peers", {}, ENDS.format("destroy"), ["[True, False]"]),
    ("11: to abort it does not", {}, ENDS.format("_abort"), ["[False, False]"]),
    ("12: a barrier of NCCL's guesses its GPU and says so", {}, """
def program():
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        dist.barrier()
        guessed = len(warned)
        dist.barrier(device_ids=[dist.get_rank()])
    return guessed, len(warned)
show(program, backend="nccl")
""", ["[(1, 1), (0, 0)]"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "source", "says"), [row[1:] for row in JOBS], ids=[row[0] for row in JOBS]
)
def test_a_job_of_two_ranks_keeps_to_the_rule(more, source, says, box):
    done = box.run(2, JOB + source, ranks=2, more=more)
    assert done.stdout.splitlines() == says, done.stderr
