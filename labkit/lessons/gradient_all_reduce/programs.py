"""A VGG11 to train, small enough for a laptop, and an input pipeline that can be slow.

The network has VGG11's 22 tensors in VGG11's proportions: most bytes are in the classifier, most
computing is in the convolutions. ``width`` scales all layers; 1.0 is the real one.
"""

import queue
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from labkit.comm.shapes import VGG11_LAYERS


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

    def delay_of(self, rank: int) -> float:
        """Return the seconds that storage adds on this rank."""
        return self.delay if rank == self.slow_rank else 0.0


def vgg11(workload: Workload, *, seed: int = 0) -> nn.Sequential:
    """Build the network, the same on every rank for the same seed.

    The average pooling in front of the classifier gives 7 x 7 features for any picture, so that
    the classifier keeps its shape.
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


class Storage:
    """Compressed pictures in memory: reading one costs real CPU time, and a delay if asked for.

    A picture is its class's pattern of 4 x 4 patches plus noise: there is something to learn.

    Args:
        workload: sizes.
        rank: whose samples; every rank has its own.
        count: how many different samples.
    """

    def __init__(self, workload: Workload, rank: int, *, count: int = 64):
        self._workload, self._delay = workload, workload.delay_of(rank)
        shared, own = torch.Generator().manual_seed(1), torch.Generator().manual_seed(100 + rank)
        shape = (3, workload.picture, workload.picture)
        coarse = torch.randint(40, 216, (workload.classes, 3, 4, 4), generator=shared)
        patterns = nn.functional.interpolate(coarse.float(), size=shape[1:])
        self._labels = torch.randint(workload.classes, (count,), generator=own)
        noise = torch.randint(-40, 40, (count, *shape), generator=own)
        pictures = (patterns[self._labels] + noise).to(torch.uint8)
        self._files = [zlib.compress(picture.numpy().tobytes(), 1) for picture in pictures]

    def batch(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Read, decompress and normalise batch ``number``: pictures and labels."""
        time.sleep(self._delay)  # a slow disk, a busy file server, a cold cache
        size, side = self._workload.batch, self._workload.picture
        places = [(number * size + i) % len(self._files) for i in range(size)]
        raw = b"".join(zlib.decompress(self._files[place]) for place in places)
        pictures = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
        return (pictures.view(size, 3, side, side).float() / 127.5 - 1, self._labels[places])

    def batches(self, count: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Read ``count`` batches, each when it is asked for."""
        return (self.batch(number) for number in range(count))


def prefetched(batches: Iterator, *, ahead: int = 2) -> Iterator:
    """Read batches in a thread, up to ``ahead`` of the consumer.

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
