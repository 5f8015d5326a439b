"""Sort the messages of a metered block into rounds: which could have travelled at the same time.

A rank sends at most one message and receives at most one per round. What it posts after a wait
travels in a later round than what it waited for, be that a receive or a send: whoever waits for all
pieces before passing on the first, or for a send before the next receive, needs more rounds. What a
collective of the library does inside cannot be seen.
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

    A message from one rank to another matches the receives of the same tag in the order of both
    programs. Messages without content (receipts) order the others and are left out. The reports
    are in the order of the ranks.

    Raises:
        ValueError: a receive has no send, a send has no receive, or the block did something else
            than send and receive.
    """
    lines = [_Line(rank, _events(report)) for rank, report in enumerate(reports)]
    posted: dict[tuple, deque[_Post]] = defaultdict(deque)
    delivered: list[tuple[int, Message]] = []
    while any(line.ahead for line in lines):
        if not [line for line in lines if _advance(line, lines, posted, delivered)]:
            waiting = {line.rank: line.ahead[0][0].call.peer for line in lines if line.ahead}
            raise ValueError(f"these ranks wait for a message that nobody sends: {waiting}")
    for (kind, src, dst, _), queue in posted.items():
        if queue:
            raise ValueError(
                f"nobody received what rank {src} sent to rank {dst}"
                if kind == "send"
                else f"rank {dst} posted a receive for which rank {src} sent nothing"
            )
    with_content = [(number, message) for number, message in delivered if message.nbytes]
    numbers = sorted({number for number, _ in with_content})
    return [[message for at, message in with_content if at == number] for number in numbers]


@dataclass(slots=True)
class _Post:
    """A send or receive, and the round in which its message travels, once both sides are there."""

    call: Call
    after: int = 0
    """The round that its rank had waited for when it posted this."""
    number: int | None = None


@dataclass(slots=True)
class _Line:
    """Where one rank is in its program."""

    rank: int
    ahead: deque[tuple[_Post, bool]]
    """What is posted, and (True) what is waited for."""
    now: int = 0
    """The last round that it has waited for."""
    sent: set[int] = field(default_factory=set)
    received: set[int] = field(default_factory=set)
    """The rounds in which it sends and receives."""


def _advance(line: _Line, lines: list[_Line], posted: dict, delivered: list) -> bool:
    """Play a rank's events until one must wait; return whether there was progress."""
    moved = False
    while line.ahead:
        post, waits = line.ahead[0]
        if not waits:
            _post(post, line, lines, posted, delivered)
        elif post.number is None:
            return moved
        else:
            line.now = max(line.now, post.number)
        line.ahead.popleft()
        moved = True
    return moved


def _post(post: _Post, line: _Line, lines: list[_Line], posted: dict, delivered: list) -> None:
    """Post a send or receive; if the other side is there, find the first round that is free."""
    call, post.after = post.call, line.now
    sends = call.kind == "send"
    src, dst = (line.rank, call.peer) if sends else (call.peer, line.rank)
    partners = posted["recv" if sends else "send", src, dst, call.tag]
    if not partners:
        posted[call.kind, src, dst, call.tag].append(post)
        return
    partner = partners.popleft()
    number = max(post.after, partner.after) + 1
    while number in lines[src].sent or number in lines[dst].received:
        number += 1
    lines[src].sent.add(number)
    lines[dst].received.add(number)
    post.number = partner.number = number
    nbytes = (post if sends else partner).call.nbytes
    delivered.append((number, Message(src, dst, nbytes)))


def _events(report: Report) -> deque[tuple[_Post, bool]]:
    """Return each send and receive where it was made, and where it was waited for."""
    events = []
    for call in report.calls:
        if call.kind not in ("send", "recv"):
            raise ValueError(f"rank {report.rank} called {call.kind}, which hides its messages")
        post = _Post(call)
        events.append((call.at, post, False))
        if call.waited is not None:
            events.append((call.waited, post, True))
    return deque((post, waits) for _, post, waits in sorted(events, key=lambda event: event[0]))
