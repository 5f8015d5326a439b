"""What the ranks of lesson 2 run: a small VGG11, the thread's loop, a fault, ways to average.

The network has VGG11's 22 tensors in VGG11's order: most bytes are in the classifier, most
computing is in the convolutions. The loops stand in the lesson's cells, too, line by line, so that
what is recorded is what is read there.
"""

import os
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

from course.comm import buckets
from course.comm.buckets import MB
from course.comm.collectives import event, synchronize
from labkit.measure.timing import time_calls
from labkit.measure.trace import Kind, Tracer
from labkit.ranks.devices import device

VGG11_LAYERS = (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M")
"""Output channels of the 3x3 convolutions; "M" is a max pooling that halves the picture.

Source: K. Simonyan, A. Zisserman, arXiv:1409.1556 (configuration A, with biases).
"""


def vgg11(*, width: float = 1 / 8, classes: int = 10) -> nn.Sequential:
    """Build the network, the same on every rank, with parameters named as in the forum thread.

    Pooling gives 7 x 7 features for any picture, so that the classifier keeps its shape.
    """
    torch.manual_seed(0)
    features: list[nn.Module] = []
    inputs, hidden = 3, round(4096 * width)
    for layer in VGG11_LAYERS:
        if layer == "M":
            features.append(nn.MaxPool2d(2))
        else:
            features += [nn.Conv2d(inputs, round(layer * width), 3, padding=1), nn.ReLU()]
            inputs = round(layer * width)
    classifier = [nn.Linear(inputs * 49, hidden), nn.ReLU(), nn.Dropout(0)]
    classifier += [nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(0), nn.Linear(hidden, classes)]
    parts = OrderedDict(features=nn.Sequential(*features), pool=nn.AdaptiveAvgPool2d(7))
    parts |= OrderedDict(flat=nn.Flatten(), classifier=nn.Sequential(*classifier))
    return nn.Sequential(parts)


def vgg11_buckets(width: float, cap: int | None) -> list[buckets.Bucket]:
    """Put VGG11's 22 gradients into buckets of at most so many bytes, the last ones first.

    The network has a thousand classes, as in the thread.
    """
    with torch.device("meta"):
        parameters = list(vgg11(width=width, classes=1000).parameters())
    return buckets.plan(parameters, cap=cap, reverse=True)


def vgg11_bytes(width: float) -> int:
    """Return how many bytes the parameters of that network have."""
    return sum(bucket.nbytes for bucket in vgg11_buckets(width, cap=None))


def loss_of(model: nn.Module, step: int, *, picture: int = 32, batch: int = 2) -> torch.Tensor:
    """Zero the gradients, run forward on other random pictures on each rank; return the loss."""
    model.zero_grad(set_to_none=False)  # in place: gradients may live in buckets
    place = next(model.parameters()).device
    draw = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    samples = torch.rand(batch, 3, picture, picture, generator=draw).to(place)
    return nn.functional.cross_entropy(model(samples), torch.arange(batch, device=place) % 10)


def as_posted(make=vgg11, iterations=5):
    """Time the thread's loop, and then its benchmark: as many bytes in one call; ms, by step."""
    net = make().to(device())
    timer = [event() for _ in range(2 * 22 + 2)]
    last = [param for name, param in net.named_parameters() if name.startswith("classifier")]
    flat = torch.ones(sum(param.numel() for param in last), device=device())
    steps = []
    for batch_idx in range(iterations):
        loss_of(net, batch_idx).backward()
        for i, param in enumerate(net.parameters()):
            timer[i].record()
            dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
            timer[22 + i].record()
        dist.barrier()
        timer[44].record()
        dist.all_reduce(flat)
        timer[45].record()
        synchronize()
        steps.append([timer[i].elapsed_time(timer[22 + i]) for i in range(22)])
        steps[-1].append(timer[44].elapsed_time(timer[45]))
    return steps


CARD = "eth1"  # the second network card of each host, whose link is thinner


def second_card(wanted: bool = True, ranks: list[int] | None = None) -> dist.ProcessGroup | None:
    """Return a group of all ranks, or these, through the hosts' second card; all ranks call this.

    None, torch's word for the usual group, if it is not wanted.
    """
    if not wanted:
        return None
    with mock.patch.dict(os.environ, GLOO_SOCKET_IFNAME=CARD):  # gloo reads it for each new group
        return dist.new_group(ranks)


LATE = {"nobody late": {}, "rank 2 late by 300 ms": {"late": 2}}
BACKWARDS = {name: arm | {"backwards": True} for name, arm in LATE.items()}
CARDS = {"the usual card": {}, "the thin card": {"thin": True}}
"""Arms of an experiment: what is different in a step."""


def train(arms, rounds=5):
    """Time each call of the thread's loop; the arms take turns, a step each."""
    model, tracer = vgg11(), Tracer.aligned()
    thin_card = second_card(any(arm.get("thin") for arm in arms.values()))
    for arm in list(arms.values()) * rounds:
        loss_of(model, tracer.step).backward()
        if dist.get_rank() == arm.get("late"):
            time.sleep(0.3)  # late after backward
        named = list(model.named_parameters())
        if arm.get("backwards"):
            named.reverse()
        for name, parameter in named:
            with tracer.collective(name):
                dist.all_reduce(parameter.grad, group=thin_card if arm.get("thin") else None)
        tracer.next_step()
    return tracer.trace()


PAUSE = 0.06  # seconds by which a `Fault` delays its rank, in every step


class Fault:
    """A secret, drawn at random: which rank of `world_size` pauses, and before which call.

    Never before call 0, in which ranks that share CPUs wait for each other anyway.
    """

    def __init__(self, world_size: int, calls: int):
        self._rank, self._call = random.randrange(world_size), random.randrange(1, calls)
        self._tries = 0

    def __repr__(self) -> str:
        return "a fault on one rank, before one call; .reveal(rank, call) judges your answer"

    def strike(self, call: int) -> None:
        """Pause, if this rank is the one and this call is the one; before every call."""
        if (dist.get_rank(), call) == (self._rank, self._call):
            time.sleep(PAUSE)

    def reveal(self, rank: int | None, call: int | None) -> str:
        """Say what is right in an answer, and tell nothing of the rest; none asks for one."""
        if rank is None or call is None:
            return "Still sealed. Put your answer into my_rank and my_call, and run this again."
        self._tries += 1
        hits = {f"the rank, {rank}": rank == self._rank, f"the call, {call}": call == self._call}
        if all(hits.values()):
            return f"It was rank {rank}, before call {call}. You found it at try {self._tries}."
        says = "; ".join(f"{what}: {'right' if hit else 'no'}" for what, hit in hits.items())
        return f"{says[:1].upper()}{says[1:]}. The rest stays sealed: look again and correct it."


def after_backward(gradients, tracer, cap):
    """Average when backward is over, in buckets of at most `cap` bytes (0: one call for each)."""
    for number, bucket in enumerate(buckets.plan(gradients, cap=cap, reverse=True)):
        members = [gradients[place] for place in bucket.members]
        with tracer.span("pack", Kind.PACK):
            flat = buckets.flatten(members)
        with tracer.collective(f"bucket {number}"):
            dist.all_reduce(flat)
        with tracer.span("unpack", Kind.PACK):
            buckets.unpack(flat / dist.get_world_size(), members)


class Buckets:
    """Gradients that live in flat buckets; what to do when one is ready is left to the heirs.

    Each parameter's `grad` is a view of its bucket's buffer, so nothing is packed or unpacked: zero
    it in place. Backward calls `gradient_is_ready(number)` for each gradient that is complete, with
    its bucket's number. Heirs find `flats`, `missing` (gradients by bucket), `works` and `tracer`.
    """

    def __init__(self, model: nn.Module, tracer: Tracer, *, cap: int | None):
        parameters = list(model.parameters())
        self.tracer, self.flats = tracer, []
        self.plan = buckets.plan(parameters, cap=cap, reverse=True)
        for number, bucket in enumerate(self.plan):
            members = [parameters[place] for place in bucket.members]
            for parameter in members:
                parameter.grad = torch.zeros_like(parameter)
                parameter.register_post_accumulate_grad_hook(
                    lambda _, number=number: self.gradient_is_ready(number)
                )
            self.flats.append(buckets.as_one_buffer([p.grad for p in members]))
        self.begin()

    def begin(self) -> None:
        """Forget the last step."""
        self.missing = [len(bucket.members) for bucket in self.plan]
        self.works = []

    def gradient_is_ready(self, number: int) -> None:
        """Take note that one more gradient of that bucket is complete."""
        raise NotImplementedError


class DuringBackward(Buckets):
    """Start each bucket's all_reduce while backward still runs."""

    def gradient_is_ready(self, number):
        """Start every bucket that is complete, in the order of the plan on all ranks."""
        self.missing[number] -= 1
        for k in range(len(self.works), len(self.flats)):
            if self.missing[k] > 0:
                break
            start = partial(dist.all_reduce, self.flats[k], async_op=True)
            self.works.append(self.tracer.launch(f"bucket {k}", start))

    def finish(self):
        """Wait for all buckets, when backward is over, and divide."""
        for work, flat in zip(self.works, self.flats, strict=True):
            work.wait()
            flat /= dist.get_world_size()
        self.begin()


class AllAtOnce(DuringBackward):
    """The same buckets, views and works; but nothing starts before backward is over."""

    def gradient_is_ready(self, number):
        """Wait for `finish`."""

    def finish(self):
        """Start all buckets at once, then wait for them and divide."""
        for number in range(len(self.flats)):
            for _ in range(self.missing[number]):
                super().gradient_is_ready(number)
        super().finish()


CAP = 2 * MB  # bytes per bucket: the largest tensor has 6.4 MB, all others together 1.6 MB
RUNGS = (
    "1: a call per tensor",
    "2: one flat tensor",
    "3: buckets, after backward",
    "3b: all at once, after backward",
    "4: during backward",
)


def climb(overlapped=DuringBackward, cap=CAP, rounds=5, picture=64, batch=48, nap=0.0):
    """Take the five rungs in turn, a step each, `rounds` times; compare the gradients.

    With a `nap` each convolution sleeps so many seconds in its backward: computing that needs no
    CPU, as a GPU's does. The first round warms up: two pictures are enough for it, and no sleep.
    """
    models, tracer = [vgg11() for _ in range(3)], Tracer.aligned()

    def sleep_in_backward(layer, inputs, output):
        if tracer.step >= len(RUNGS):
            output.register_hook(lambda _: time.sleep(nap))

    for layer in (layer for model in models for layer in model.features):
        if nap and isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(sleep_in_backward)
    plain, *hooked = models
    kinds = zip((AllAtOnce, overlapped), hooked, strict=True)
    in_buckets = [kind(model, tracer, cap=cap) for kind, model in kinds]

    def gradients_of(model, step):
        with tracer.span("backward", Kind.COMPUTE):
            loss_of(model, step, picture=picture, batch=batch if step else 2).backward()
        return [parameter.grad for parameter in model.parameters()]

    for step in range(rounds):
        for limit in (0, None, cap):
            gradients = gradients_of(plain, step)
            after_backward(gradients, tracer, limit)
            tracer.next_step()
        for model, averaged in zip(hooked, in_buckets, strict=True):
            overlapping = gradients_of(model, step)
            averaged.finish()
            tracer.next_step()
            _compare(gradients, overlapping)
    return tracer.trace()


class WrongGradients(ArithmeticError):
    """A rung's gradients are not those of the rung before."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def _compare(right: Sequence[torch.Tensor], got: Sequence[torch.Tensor]) -> None:
    off = max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(right, got, strict=True))
    if off > 1e-4:
        differ = f"they differ from rung 3's by up to {off:.0%}"
        meaning = "Its time is the time of something else."
        raise WrongGradients(f"WRONG GRADIENTS on rung 4: {differ}. {meaning}")


def time_in_a_row(nbytes: int, group: dist.ProcessGroup | None = None) -> list[float]:
    """Return the seconds of one of twenty all_reduces in a row, as the loop makes them; by round.

    Nobody is late, and the first round warms up. Ranks that are not in the group look on.
    """
    tensor = torch.ones(nbytes // 4, device=device())
    calls = 0 if group is dist.GroupMember.NON_GROUP_MEMBER else 20

    def twenty() -> None:
        for _ in range(calls):
            dist.all_reduce(tensor, group=group)

    return [seconds / 20 for seconds in time_calls(twenty, warmup=1, iters=5)]


CURE = {
    (order, batch, copied): {
        "backwards": order == "DDP's order",
        "late": batch == "late",
        "aside": copied == "aside",
    }
    for order in ("the loop's order", "DDP's order")
    for batch in ("in time", "late")
    for copied in ("in the step", "aside")
}
"""Eight arms: which call comes first, whether the last rank's batch is late, where it is copied."""
COMPUTING = 0.1  # seconds for which a step computes without a CPU, as a GPU does


class PostedStep:
    """The thread's step on a batch that is there: backward, and then a timed call per tensor."""

    def __init__(self) -> None:
        self._model = vgg11().to(device())
        self._marks = [(event(), event()) for _ in self._model.parameters()]

    def __call__(self, batch: torch.Tensor, *, backwards: bool = False) -> list[float]:
        """Return the ms of each call, in the order of the tensors, in whichever they were made."""
        self._model.zero_grad()
        labels = torch.arange(len(batch), device=batch.device)
        nn.functional.cross_entropy(self._model(batch), labels).backward()
        time.sleep(COMPUTING)
        calls = list(zip(self._model.parameters(), self._marks, strict=True))
        for parameter, (begin, end) in reversed(calls) if backwards else calls:
            begin.record()
            dist.all_reduce(parameter.grad)
            end.record()
        synchronize()
        return [begin.elapsed_time(end) for begin, end in self._marks]


class Aside:
    """Runs something in a thread while its rank trains; what that puts on a GPU has a stream.

    Where there is no GPU the thread is all that there is.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._stream = torch.cuda.Stream() if device().type == "cuda" else None

    def begin(self, fetch: Callable[..., torch.Tensor], *args: Any) -> Future[torch.Tensor]:
        """Begin to fetch a batch; `result` of what is returned waits for it."""

        def on_own_stream() -> torch.Tensor:
            with torch.cuda.stream(self._stream):  # None, on a CPU, changes nothing
                return fetch(*args)

        return self._thread.submit(on_own_stream)


def fetch(late):
    """Return a batch on this rank's device; a late one holds the last rank for 200 ms."""
    if late and dist.get_rank() == dist.get_world_size() - 1:
        time.sleep(0.2)
    return torch.rand(2, 3, 32, 32).to(device())


def with_copies(arms, rounds=3):
    """Take a step in each arm, in turn; return the ms of its calls, and of the whole step."""
    step, aside, coming, times = PostedStep(), Aside(), None, []
    step(fetch(late=False))  # warms up
    turns = list(arms.values()) * rounds
    for arm, following in zip(turns, turns[1:] + turns[:1], strict=True):
        dist.barrier()
        begin = time.perf_counter()
        batch = coming.result() if arm["aside"] else fetch(arm["late"])
        if following["aside"]:
            coming = aside.begin(fetch, following["late"])
        calls = step(batch, backwards=arm["backwards"])
        times.append([*calls, 1e3 * (time.perf_counter() - begin)])
    return times
