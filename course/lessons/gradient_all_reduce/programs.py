"""What the ranks of lesson 2 run: a VGG11 that trains, an input that may be slow, and all cases.

The network has VGG11's 22 tensors in VGG11's proportions: most bytes are in the classifier, most
computing is in the convolutions. `width` scales all layers; 1.0 is the real one.
"""

import math
import queue
import random
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
import torch.distributed as dist
from torch import nn

from course.comm.buckets import MB
from course.comm.shapes import VGG11_LAYERS
from course.lessons.gradient_all_reduce import sync
from labkit.measure import wire
from labkit.measure.timing import time_calls
from labkit.measure.trace import Kind, RankTrace, Tracer


@dataclass(frozen=True, slots=True)
class Workload:
    """What every rank trains on. The defaults suit four ranks on two cores."""

    width: float = 1 / 8
    classes: int = 10
    picture: int = 128
    """Pixels on a side; the real one takes 224."""
    batch: int = 16
    """Samples per rank and step."""
    delay: float = 0.0
    """Seconds that the slow rank's storage adds to each batch."""
    slow_rank: int = 2


def vgg11(workload: Workload, *, seed: int = 0) -> nn.Sequential:
    """Build the network, the same on every rank for the same seed.

    The average pooling in front of the classifier gives 7 x 7 features for any picture, so that the
    classifier keeps its shape.
    """
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    inputs = 3
    for layer in VGG11_LAYERS:
        if layer == "M":
            layers.append(nn.MaxPool2d(2))
            continue
        outputs = max(1, round(layer * workload.width))
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
        inputs = outputs
    hidden = max(1, round(4096 * workload.width))
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
    layers += [nn.Linear(inputs * 49, hidden), nn.ReLU()]
    layers += [nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, workload.classes)]
    model = nn.Sequential(*layers)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.kaiming_normal_(parameter, nonlinearity="relu")
        else:
            nn.init.zeros_(parameter)
    return model


@cache  # the same for each way of averaging
def _samples(side: int, classes: int, rank: int, count: int) -> tuple[list[bytes], torch.Tensor]:
    shared, own = torch.Generator().manual_seed(1), torch.Generator().manual_seed(100 + rank)
    shape = (3, side, side)
    coarse = torch.randint(40, 216, (classes, 3, 4, 4), generator=shared)
    patterns = nn.functional.interpolate(coarse.float(), size=shape[1:])
    labels = torch.randint(classes, (count,), generator=own)
    noise = torch.randint(-40, 40, (count, *shape), generator=own)
    pictures = (patterns[labels] + noise).to(torch.uint8)
    return [zlib.compress(picture.numpy().tobytes(), 1) for picture in pictures], labels


class Storage:
    """Compressed pictures in memory: reading one costs real CPU time, and a delay if asked for.

    A picture is its class's pattern of 4 x 4 patches plus noise: there is something to learn. Every
    rank has `count` samples of its own.
    """

    def __init__(self, workload: Workload, rank: int, *, count: int = 64):
        self._workload = workload
        self.delay = workload.delay if rank == workload.slow_rank else 0.0
        self._files, self._labels = _samples(workload.picture, workload.classes, rank, count)

    def batch(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Read, decompress and normalise batch `number`: pictures and labels."""
        time.sleep(self.delay)  # a slow disk, a busy file server, a cold cache
        size, side = self._workload.batch, self._workload.picture
        places = [(number * size + i) % len(self._files) for i in range(size)]
        raw = b"".join(zlib.decompress(self._files[place]) for place in places)
        pictures = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
        return (pictures.view(size, 3, side, side).float() / 127.5 - 1, self._labels[places])

    def batches(self, count: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Read `count` batches, each when it is asked for."""
        return (self.batch(number) for number in range(count))


def prefetched(batches: Iterator, *, ahead: int = 2) -> Iterator:
    """Read batches in a thread, up to `ahead` of the consumer.

    An error in the reading thread is raised where the batch would have been.
    """
    ready: queue.Queue = queue.Queue(maxsize=ahead)

    def read() -> None:
        try:
            for batch in batches:
                ready.put((batch, None))
            ready.put((None, StopIteration()))
        except Exception as error:
            ready.put((None, error))

    threading.Thread(target=read, daemon=True, name="prefetch").start()
    while True:
        batch, error = ready.get()
        if isinstance(error, StopIteration):
            return
        if error is not None:
            raise error
        yield batch


@dataclass(frozen=True, slots=True)
class Setup:
    """One way to average gradients, and the circumstances."""

    way: Callable
    """``way(model, tracer)`` makes one of the ways in `sync`."""
    prefetch: bool = False
    straggler: bool = True
    """Whether one rank's storage is slow."""
    micro_batches: int = 1
    warmup: int = 1


CAP = 2 * MB
"""Bytes per bucket: the largest tensor has 6.4 MB, all others together 1.9 MB."""
CAPS = {"0": 0, "0.2 MB": MB // 5, "2 MB": 2 * MB, "7 MB": 7 * MB, "no limit": None}
THREAD = "one call per parameter"
BARRIER = "one call per parameter, barrier first"
NOBODY_LATE = "one call per parameter, nobody late"
FINAL = "and the input prefetched"
_OURS = partial(sync.DuringBackward, cap=CAP)
_DDP = partial(sync.DDP, bucket_cap_mb=CAP / MB)
_FP16 = partial(_DDP, hook=sync.send_float16)
_POWER_SGD = partial(sync.DDP, hook=sync.send_power_sgd, bucket_cap_mb=1000)
_calm = partial(Setup, prefetch=True, straggler=False)
LADDER = {
    THREAD: Setup(sync.AfterBackward),
    "one flat tensor": Setup(partial(sync.AfterBackward, cap=None)),
    "buckets after backward": Setup(partial(sync.AfterBackward, cap=CAP)),
    "buckets during backward": Setup(_OURS),
    FINAL: Setup(_OURS, prefetch=True),
    "DDP, input prefetched": Setup(_DDP, prefetch=True),
}
SWEEP = {f"cap {name}": _calm(partial(_OURS, cap=cap)) for name, cap in CAPS.items()}
COMPRESSED = {
    "float32": _calm(_DDP, warmup=2),
    "float16, DDP's hook": _calm(_FP16, warmup=2),
    "bfloat16, our hooks": _calm(partial(_OURS, compress=torch.bfloat16), warmup=2),
    "PowerSGD of rank 2": _calm(_POWER_SGD, warmup=3),
    "every second step": _calm(partial(_OURS, micro_batches=2), micro_batches=2),
}
CONTROL = {
    THREAD: LADDER[THREAD],
    BARRIER: Setup(partial(sync.AfterBackward, barrier=True)),
    NOBODY_LATE: Setup(sync.AfterBackward, straggler=False),
}
CASES = LADDER | CONTROL | SWEEP | COMPRESSED


@dataclass(frozen=True, slots=True)
class Trained:
    """What one rank brings back from one case."""

    trace: RankTrace
    """Step 0 is the warm-up."""
    losses: tuple[float, ...]
    wire: wire.Report


def train(setup: Setup, workload: Workload, steps: int) -> Trained:
    """Train in one way and write down where the time goes; runs on every rank."""
    rank = dist.get_rank()
    workload = workload if setup.straggler else replace(workload, delay=0.0)
    tracer = Tracer.aligned()
    way = setup.way(vgg11(workload), tracer)
    optimizer = torch.optim.SGD(way.model.parameters(), lr=0.003)
    batches = Storage(workload, rank).batches((setup.warmup + steps) * setup.micro_batches)
    batches = prefetched(batches) if setup.prefetch else batches

    def step() -> float:
        ready = False
        while not ready:
            with tracer.span("input", Kind.INPUT):
                pictures, labels = next(batches)
            with tracer.span("forward", Kind.COMPUTE):
                loss = nn.functional.cross_entropy(way.model(pictures), labels)
            ready = way.backward(loss)
        with tracer.span("optimizer", Kind.COMPUTE):
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)  # in place: gradients may live in buckets
        return float(loss.detach())

    losses = [step() for _ in range(setup.warmup)]
    with wire.meter() as meter:
        for _ in range(steps):
            tracer.next_step()
            losses.append(step())
    return Trained(tracer.trace(), tuple(losses), meter.report)


def train_all(setups: Sequence[Setup], workload: Workload, steps: int) -> list[Trained]:
    """Train in one way after the other; runs on every rank."""
    return [train(setup, workload, steps) for setup in setups]


def time_all_reduce(sizes: Sequence[int], iters: int) -> list[list[float]]:
    """Time all_reduce of some bytes with nobody late: the "benchmark"; runs on every rank."""
    tensors = [torch.ones(nbytes // 4) for nbytes in sizes]
    return [time_calls(partial(dist.all_reduce, t), warmup=2, iters=iters) for t in tensors]


DELAYS = {
    "often, a little": [-0.003 * math.log(1 - (place + 0.5) / 40) for place in range(40)],
    "rarely, but much": [0.060 if place % 20 == 0 else 0.0 for place in range(40)],
}
"""Seconds by which a rank is late in its steps, 3 ms on average both times: exponential jitter, and
a stall in one step of twenty."""


def wait_for_latest(delays: Sequence[float], calm: int = 10) -> list[float]:
    """Be late by each delay once, in an order of one's own, and meet in an all_reduce each time.

    Runs on every rank. Sleeping needs no CPU, so sixteen ranks fit on two.

    Returns:
        Seconds of each round; the first `calm` ones are without delay.
    """
    order, flag, seconds = list(delays), torch.zeros(1), []
    random.Random(dist.get_rank()).shuffle(order)
    for delay in [0.0] * calm + order:
        begin = time.perf_counter()
        time.sleep(delay)
        dist.all_reduce(flag)
        seconds.append(time.perf_counter() - begin)
    return seconds
