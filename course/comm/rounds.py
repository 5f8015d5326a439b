"""Count the rounds of a metered block: messages of one round could have travelled at the same time.

A rank sends at most one message and receives at most one per round. What it posts after a wait
travels in a later round than what it waited for, be that a receive or a send: whoever waits for all
pieces before passing on the first, or for a send before the next receive, needs more rounds. What a
collective of the library does inside cannot be seen.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache

from labkit.measure.calls import Call
from labkit.measure.wire import Report

_Ends = tuple[tuple[int, Call], tuple[int, Call]]
"""The two ends of a message: the rank that sends and its call, the rank that receives and its."""


def count_rounds(reports: Sequence[Report]) -> int:
    """Return in how many rounds the messages of a block travelled.

    A message from one rank to another matches the receives of the same tag in the order of both
    programs. Messages without content (receipts) order the others and are not counted.

    Raises:
        ValueError: a receive has no send, a send has no receive, or the block did something else
            than send and receive.
    """
    messages = _matched(reports)
    taken: set[tuple[str, int, int]] = set()

    @cache
    def round_of(message: int) -> int:
        """Return the first round in which both ends are free, after all that they waited for."""
        (src, _), (dst, _) = messages[message]
        before = [k for k, ends in enumerate(messages) if _comes_before(ends, messages[message])]
        number = 1 + max(map(round_of, before), default=0)
        while taken & {("out", src, number), ("in", dst, number)}:
            number += 1
        taken.update({("out", src, number), ("in", dst, number)})
        return number

    numbers = [round_of(message) for message in range(len(messages))]
    return len({k for k, ((_, sent), _) in zip(numbers, messages, strict=True) if sent.nbytes})


def _comes_before(earlier: _Ends, later: _Ends) -> bool:
    """Whether a rank waited for the earlier message before it posted its end of the later."""
    return any(
        rank == at and call.waited is not None and call.waited < posted.at
        for rank, call in earlier
        for at, posted in later
    )


def _matched(reports: Sequence[Report]) -> list[_Ends]:
    """Return the messages: each send with its receive."""
    sends, receives = defaultdict(list), defaultdict(list)
    for report in reports:
        for call in report.calls:
            if call.kind == "send":
                sends[report.rank, call.peer, call.tag].append(call)
            elif call.kind == "recv":
                receives[call.peer, report.rank, call.tag].append(call)
            else:
                raise ValueError(f"rank {report.rank} called {call.kind}, which hides its messages")
    messages = []
    for src, dst, tag in sends | receives:
        sent, received = sends[src, dst, tag], receives[src, dst, tag]
        if len(sent) != len(received):
            raise ValueError(
                f"rank {src} sends {len(sent)} messages of tag {tag} to rank {dst}, which posts "
                f"{len(received)} receives"
            )
        messages += [((src, s), (dst, r)) for s, r in zip(sent, received, strict=True)]
    return messages
