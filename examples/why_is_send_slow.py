"""Why is NCCL's send slower than a memory copy between two of your GPUs?

    python examples/why_is_send_slow.py            # GPUs 0 and 1
    python examples/why_is_send_slow.py 0 2        # others: best a pair without NVLink

Sends 64 MiB from one GPU to the other: by copies, and by NCCL under settings that differ from row
to row in one thing, each in fresh processes. Prints how long a transfer takes, which path NCCL says
it took, and what the row decides (notebooks/deeper/05_deeper.ipynb).

Compare what goes the same way. A plain copy uses P2P, or NVLink, where the GPUs can reach each
other; "no P2P" goes through the host's memory. So the yardstick of those rows are the *staged*
copies: down into pinned host memory, then up, by copy engines on both ways. "In pieces" the two
ways overlap, as they do in NCCL.

The row that matters is "no P2P, copy engines": without P2P NCCL's kernels write into host memory;
there, from NCCL 2.13.4 to 2.30.4, copy engines do. Its path must read SHM/CE/CE; if it does not,
this NCCL does not know the setting, and the row says nothing.

We have no two GPUs: this has not been run.
"""

import os
import re
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

NUMBERS, TIMES = 2**24, 10  # float32: 64 MiB
PIECES_OF_A_COPY = 16  # of 4 MiB
NO_P2P = {"NCCL_P2P_DISABLE": "1"}
ENGINES = {"NCCL_SHM_USE_CUDA_MEMCPY": "1", "NCCL_SHM_MEMCPY_MODE": "3"}
ONE_CHANNEL = {"NCCL_MAX_P2P_NCHANNELS": "1"}
PIECES = {"NCCL_P2P_PCI_CHUNKSIZE": "524288"}
ROWS = [
    ("as it is", {}, "what to explain"),
    ("P2P across CPUs", {"NCCL_P2P_LEVEL": "SYS"}, "faster than as it is: NCCL had not used P2P"),
    ("no P2P", NO_P2P, "as it is: P2P had not been used"),
    (
        "no P2P, copy engines",
        NO_P2P | ENGINES,
        "near the staged copy in pieces: the processors were to blame",
    ),
    ("no P2P, 1 channel", NO_P2P | ONE_CHANNEL, "half of no P2P: channels count"),
    ("no P2P, 512 KiB", NO_P2P | PIECES, "faster than no P2P: the pieces were too small"),
]
"""Name, settings, and what it means if the row comes out like this."""


def copies(src, dst):
    """Return the milliseconds of one copy between two GPUs, alone."""
    x, y = (torch.ones(NUMBERS, device=f"cuda:{number}") for number in (src, dst))
    return timed(lambda: y.copy_(x, non_blocking=True), (src, dst))


def staged(src, dst, pieces):
    """Return the milliseconds of a copy by way of pinned host memory, in so many pieces."""
    x, y = (torch.ones(NUMBERS, device=f"cuda:{number}") for number in (src, dst))
    host = torch.empty(NUMBERS, pin_memory=True)
    down, up = torch.cuda.Stream(device=src), torch.cuda.Stream(device=dst)
    parts = list(zip(x.chunk(pieces), host.chunk(pieces), y.chunk(pieces), strict=True))

    def transfer():
        for here, between, there in parts:
            with torch.cuda.stream(down):
                between.copy_(here, non_blocking=True)
            up.wait_event(down.record_event())
            with torch.cuda.stream(up):
                there.copy_(between, non_blocking=True)
        down.wait_event(up.record_event())  # the next transfer writes into the same host memory

    return timed(transfer, (src, dst))


def timed(transfer, devices):
    """Return the milliseconds of one transfer; the first three are not counted."""
    for counted in (3, TIMES):
        for device in devices:
            torch.cuda.synchronize(device)
        begin = time.perf_counter()
        for _ in range(counted):
            transfer()
        for device in devices:
            torch.cuda.synchronize(device)
    return 1e3 * (time.perf_counter() - begin) / TIMES


def rank_main(rank, device, store):
    """Be one of the two ranks of a row."""
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", store=dist.FileStore(store, 2), rank=rank, world_size=2)
    x = torch.ones(NUMBERS, device="cuda")
    ms = timed(lambda: dist.recv(x, 0) if rank else dist.send(x, 1), [device])
    if rank:  # it has the bytes
        print(f"took {ms}")
    dist.destroy_process_group()


def row(settings, devices):
    """Run two ranks with these settings; return milliseconds and NCCL's word for the path."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, "--rank", str(rank), str(device), f"{folder}/store"],
                env=os.environ | {"NCCL_DEBUG": "INFO"} | settings,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank, device in enumerate(devices)
        ]
        return read([process.communicate(timeout=300)[0] for process in ranks])


def read(logs):
    """Find the time and the path in what the ranks printed."""
    together = "\n".join(logs)
    took = re.search(r"^took (\S+)$", together, re.MULTILINE)
    paths = sorted(set(re.findall(r"\bvia (\S+)", together)))
    return float(took[1]) if took else None, ", ".join(paths) or "?"


def main(devices):
    """Print all rows."""
    if torch.cuda.device_count() < 2:
        sys.exit(f"needs two GPUs; this machine has {torch.cuda.device_count()}.")
    src, dst = devices
    gigabytes = 4 * NUMBERS / 1e9
    peer = torch.cuda.can_device_access_peer(dst, src)
    print(f"GPU {src} to {dst}, NCCL {torch.cuda.nccl.version()}, {'P2P' if peer else 'no P2P'}")
    way = "P2P or NVLink" if peer else "host memory"
    rows = [
        ("copy", copies(src, dst), way, f"the yardstick of rows by {way}"),
        ("staged copy", staged(src, dst, 1), "host memory", "one leg after the other"),
        (f"staged, {PIECES_OF_A_COPY} pieces", staged(src, dst, PIECES_OF_A_COPY), "host memory",
         "the yardstick of the rows without P2P"),
    ]  # fmt: skip
    rows += [(name, *row(settings, devices), decides) for name, settings, decides in ROWS]
    for name, ms, path, decides in rows:
        shown = f"{ms:7.2f} ms {1e3 * gigabytes / ms:6.1f} GB/s" if ms else "failed"
        print(f"{name:22} {shown:24} {path:24} {decides}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank_main(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        main([int(number) for number in sys.argv[1:3]] or [0, 1])
