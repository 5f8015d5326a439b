"""Which messages a rank has posted and not seen the end of: for the report of a hang.

torch's flight recorder holds gloo's collectives, but no send or receive of it. So a rank notes each
message when it is posted, for whom, and a weak reference to its Work: the note keeps nothing alive.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

NOTED = 64  # so many messages are remembered; a rank seldom has more on their way
_posted: deque[tuple[weakref.ref[Any], str, Any, int]] = deque(maxlen=NOTED)


def note_all() -> None:
    """From now on note every message of this process."""
    from torch._C import _distributed_c10d

    group_class: Any = _distributed_c10d.ProcessGroup
    for name, words in (("send", "send to"), ("recv", "recv from")):
        setattr(group_class, name, _noting(getattr(group_class, name), words))


def _noting(post: Any, words: str) -> Any:
    def noted(group: Any, tensors: Any, peer: int, *args: Any, **kwargs: Any) -> Any:
        work = post(group, tensors, peer, *args, **kwargs)
        _posted.append((weakref.ref(work), words, group, peer))
        return work

    return noted


def unended() -> list[str]:
    """Return the messages that were posted and not waited for to their end, oldest first.

    Ranks are those of the default group: ``"recv from rank 2"``.
    """
    import torch.distributed as dist

    there = []
    for reference, words, group, peer in list(_posted):
        work = reference()
        if work is not None and not work.is_completed():
            there.append(f"{words} rank {dist.get_global_rank(group, peer)}")
    return there
