"""Three other worlds, in each of which another suspect of lesson 3 is guilty; run for real.

The experiments and their tests are the lesson's. What differs is the program or its surroundings:

    a   the packer checks all that it has packed so far, again after every third tensor
    b   the packer takes a fingerprint of each tensor, and the wire between two hosts is slow
    d   the library sends messages above 32 MB in pieces of 64 kB, each waited for

(New memory, c, is guilty in the lesson's own world.)
"""

from collections.abc import Callable
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from course.comm import buckets
from course.comm.buckets import MB
from course.lessons.coalesced_broadcast import experiment as problem
from course.lessons.coalesced_broadcast import programs
from labkit.measure.records import Record

LONG, PIECE = 32 * MB, 2**16  # bytes from which on world d cuts a message, and the pieces


def _changed(module: ModuleType, name: str, changed: Callable) -> Callable:
    """Return the lesson's broadcast with ``changed(usual, ...)`` in place of a function."""

    def send(tensors: list[torch.Tensor], cap: int | None, **options: Any) -> None:
        with mock.patch.object(module, name, partial(changed, getattr(module, name))):
            programs.broadcast(tensors, cap, **options)

    return send


def packed(work: Callable, usual: Callable, members: list[torch.Tensor], **kept: Any) -> Any:
    """Pack tensors, and do more with what was packed."""
    flat = usual(members, **kept)
    if flat.data_ptr() != members[0].data_ptr():  # it was packed
        work(flat, members)
    return flat


def check_again(flat: torch.Tensor, members: list[torch.Tensor]) -> None:
    """Read all that was packed so far, after every third tensor: work by the bucket's square."""
    for end in torch.tensor([member.numel() for member in members]).cumsum(0)[::3].tolist():
        flat[:end].max()


def fingerprint(flat: torch.Tensor, members: list[torch.Tensor]) -> None:
    """Compute figures of each tensor: work by the bytes, whatever the buckets."""
    for member in members:
        for power in (2, 3, 4):
            member.double().pow(power).mean()


def in_pieces(usual: Callable, flat: torch.Tensor, src: int, async_op: bool = False) -> Any:
    """Broadcast as a library does that cuts long messages."""
    if flat.nbytes <= LONG:
        return usual(flat, src, async_op=async_op)
    for piece in flat.split(PIECE // flat.element_size()):
        usual(piece, src)
    return SimpleNamespace(wait=lambda: None)


WORLDS = {
    "a": (_changed(buckets, "flatten", partial(packed, check_again)), None),
    "b": (_changed(buckets, "flatten", partial(packed, fingerprint)), problem.LINK),
    "d": (_changed(dist, "broadcast", in_pieces), None),
}
"""By the letter of who is guilty: the program, and the rate of the hosts' links."""


def measure(letter: str) -> list[Record]:
    """Make all experiments in a world; return their records."""
    send, rate = WORLDS[letter]
    measured = []
    for name, pair in programs.EXPERIMENTS.items():
        ways, params = programs.GAP | pair, {"asks": name}
        options = {"rate": rate, "iters": problem.in_a_round(name) * problem.ROUNDS, "width": 1.0}
        measured += problem.compare(send, ways, params=params, **options)
    return measured
