"""Sort the messages of a metered block into rounds: which could have travelled at the same time.

A rank sends at most one message and receives at most one per round, and what it sends after a
receive that it waited for goes in a later round. When an `irecv` is waited for cannot be seen: it
is taken to be after the sends that follow it, before the next receive. What a collective of the
library does inside cannot be seen either.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from labkit.measure.calls import Call
from labkit.measure.wire import Report


@dataclass(frozen=True, slots=True)
class Message:
    """One send that was received."""

    src: int
    dst: int
    nbytes: int


def rounds(reports: Sequence[Report]) -> list[list[Message]]:
    """Return the messages of a block, round by round.

    A message from one rank to another matches the receives in the order of both programs. Messages
    without content (receipts) order the others and are left out.

    Args:
        reports: one `Report` per rank, in the order of the ranks.

    Raises:
        ValueError: a receive has no send, a send has no receive, or the block did something else
            than send and receive.
    """
    lines = [_Line(rank, _sends_and_receives(report)) for rank, report in enumerate(reports)]
    posted: dict[tuple[int, int], deque] = defaultdict(deque)
    found: list[tuple[int, Message]] = []
    while any(line.ahead or line.open for line in lines):
        if not any(_advance(line, posted, found) for line in lines):
            waiting = {line.rank: _awaited(line) for line in lines if line.ahead or line.open}
            raise ValueError(f"these ranks wait for a message that nobody sends: {waiting}")
    if unheard := [pair for pair, queue in posted.items() if queue]:
        raise ValueError(f"nobody received what was sent on {unheard}")
    told = [(number, message) for number, message in found if message.nbytes]
    numbers = sorted({number for number, _ in told})
    return [[message for at, message in told if at == number] for number in numbers]


@dataclass(slots=True)
class _Line:
    """Where one rank is in its program, and since which round it is free for what."""

    rank: int
    ahead: deque[Call]
    sent: int = 0
    received: int = 0
    ready: int = 0
    """Round in which the last thing that it waited for arrived."""
    open: list[int] = field(default_factory=list)
    """The sources of receives that are posted and not yet waited for."""
    sent_since: bool = False
    """Whether it has sent since it opened them."""


def _awaited(line: _Line) -> list[int]:
    return line.open or [line.ahead[0].peer]


def _advance(line: _Line, posted: dict, found: list) -> bool:
    """Play a rank's calls until one must wait; return whether there was progress."""
    moved = False
    while line.ahead or line.open:
        call = line.ahead[0] if line.ahead else None
        if call is None or (call.kind == "recv" and line.sent_since):
            if not all(posted[src, line.rank] for src in line.open):
                return moved
            for src in line.open:
                _receive(line, src, posted, found)
            line.open, line.sent_since = [], False
            moved = True
            continue
        if call.kind == "send":
            line.sent = max(line.sent, line.ready) + 1
            line.sent_since = bool(line.open)
            posted[line.rank, call.peer].append((line.sent, call.nbytes))
        elif not call.blocking:
            line.open.append(call.peer)
        elif posted[call.peer, line.rank]:
            _receive(line, call.peer, posted, found)
        else:
            return moved
        line.ahead.popleft()
        moved = True
    return moved


def _receive(line: _Line, src: int, posted: dict, found: list) -> None:
    number, nbytes = posted[src, line.rank].popleft()
    number = max(number, line.received + 1)
    line.received = number
    line.ready = max(line.ready, number)
    found.append((number, Message(src, line.rank, nbytes)))


def _sends_and_receives(report: Report) -> deque[Call]:
    for call in report.calls:
        if call.kind not in ("send", "recv"):
            raise ValueError(f"rank {report.rank} called {call.kind}, which hides its messages")
    return deque(report.calls)
