"""Checks of lesson 04: the relay without room, and four short forms."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist

from course.checks import checking
from course.checks.checking import CheckFailed, hold
from course.checks.trial import Case, Ran, trials
from course.lessons.p2p_topology.topology import ORDER
from course.place import launch
from labkit.fabric.errors import FabricUnavailable
from labkit.fabric.fabric import Fabric
from labkit.measure import timing


def check_best_ways(answer: Callable[[], Sequence[float]]) -> None:
    """Judge 4.1: relay and milliseconds in one piece, then relay and milliseconds in chunks."""
    relay = "write down the time of both relays: the best one need not be the same twice"
    whole = "in one piece the second hop starts when the first has ended: add their times"
    small = "in small chunks the hops overlap: the slower of the two rates alone decides"
    asked: list[checking.Asked] = [
        ("the relay in one piece", 3, {f"{whole}. That one wins in small chunks": 1}, relay),
        ("its ms in one piece", 7.5, {"that is the other relay": 8.0}, whole),
        ("the relay in small chunks", 1, {f"{small}. That one wins in one piece": 3}, relay),
        ("its ms in small chunks", 4.0, {"that is the other relay": 6.0}, small),
    ]
    with checking.exercise("4.1", answer, par="both relays, both times"):
        checking.figures(checking.ask(answer), asked, within=5e-3)


FAST, SLOW = 160e6, 20e6  # bits per second: to and from the shared neighbour, and directly
NBYTES = 4_000_000
CHUNK = 200_000  # elements; far more bytes than a link lets through in one burst
FASTER = 5.0
WAYS = (
    (7, 2, [3, 1, 4, 0, 2], torch.float64),
    (5, 9, [1, 2, 0], torch.int32),
    (6, 2, [4, 2], torch.float32),
    (2**19, 2**16, [0, 2, 1], torch.float32),  # large, and its last rank is late
)
"""Elements, chunk, way and dtype of each case, on five ranks."""


def check_relay(relay: Callable[..., None]) -> None:
    """Judge exercise 4.2: `relay(tensor, way, chunk, length)`, with two slots on each relay.

    First the cases of `WAYS`, then the time, on three hosts.
    """
    par = f"{FASTER:g} times as fast as the direct link, with two slots"
    with checking.exercise("4.2", relay, par=par) as verdict:
        for length, chunk, way, dtype in WAYS:
            setting = f"{length} elements in chunks of {chunk} along {way}"

            def given(case: Case, rank: int, way=way, chunk=chunk) -> tuple:
                slots = torch.full((2 * chunk,), rank).to(case.dtype)
                tensor = slots if rank in way[1:-1] else case.data(rank)
                return tensor, list(way), chunk, case.numel

            case = Case(5, (length,), dtype, make=given, late=0.3 if length > 1000 else 0.0)
            try:  # in a launch of its own: what one case leaves cannot meet the next
                [(_, ranks)] = trials(relay, [case], by_hand=True, timeout=6.0)
            except CheckFailed as failure:
                failure.expected = f"{setting}: {failure.expected}"
                raise
            for rank, ran in enumerate(ranks):
                _hold_rank(rank, ran, case, way, chunk, f"{setting}: rank {rank}")
        try:
            verdict.reached = f"{_hold_speed(relay):.1f} times the direct link"
        except FabricUnavailable as refusal:
            verdict.reached = f"all values; the speed was not judged: {refusal.cause}"


def _hold_rank(rank: int, ran: Ran, case: Case, way: list[int], chunk: int, what: str) -> None:
    """Hold which bytes one rank passed on, what its tensor holds, and what room it took."""
    width = case.dtype.itemsize
    sizes = [min(chunk, case.numel - start) * width for start in range(0, case.numel, chunk)]
    due = _due_calls(rank, way, sizes)
    calls = sorted((call.kind, call.peer, call.nbytes) for call in ran.calls)
    every = """each rank on the way sends every chunk, by itself, to way[here + 1], and nothing to
        others; only the last chunk may be shorter: cut with min(chunk, length - start) on every
        rank. Ranks that are not on the way return at once"""
    hold(calls == due, f"{what}: its calls, as (kind, rank, bytes): {due}", calls, every)
    tensor, is_relay = ran.given[0], rank in way[1:-1]
    if not is_relay:
        data = case.data(way[0] if rank == way[-1] else rank)
        usual = "only the last rank's tensor is filled: chunk k, from slot k % 2, at k * chunk"
        checking.same_values(tensor, data, what=f"{what}, its tensor", meaning=usual)
    if is_relay and case.late:
        sends, receives = ([c for c in ran.calls if c.kind == kind] for kind in ("send", "recv"))
        pairs = zip(sends, receives[1:], strict=False)
        both = sum(send.waited > r.at and send.at < r.waited for send, r in pairs)
        least = len(sizes) // 2
        overlap = f"{what} receives chunk k + 1 while chunk k is being sent, {least} times"
        turns = """the hops take turns. `isend` returns at once: receive into the other slot, and
            wait for the send only when its slot is needed again"""
        hold(both >= least, overlap, f"{both} times", turns)
    if case.late and rank in way:
        own = 2 * chunk * width if is_relay else case.nbytes
        taken = ran.peak + tensor.untyped_storage().nbytes() - own
        most, new = chunk * width - 1, f"{what}, new tensors"
        room = """a copy of the tensor or a third slot was made: a relay has its two slots, the ends
            send from and receive into their tensor"""
        checking.at_most(taken, most, what=new, unit="bytes", meaning=room)


def _due_calls(rank: int, way: list[int], sizes: Sequence[int]) -> list[tuple[str, int, int]]:
    """Return a rank's calls, (kind, rank, bytes): each chunk from before it, and to after it."""
    if rank not in way:
        return []
    here = way.index(rank)
    calls = []
    if here > 0:
        calls += [("recv", way[here - 1], size) for size in sizes]
    if rank != way[-1]:
        calls += [("send", way[here + 1], size) for size in sizes]
    return sorted(calls)


def _hold_speed(relay: Callable[..., None]) -> float:
    """Time it on three hosts like GPUs 0, 5 and 2; the best of three tries counts."""
    length = NBYTES // 4

    def seconds() -> list[float]:
        tensor = torch.ones(2 * CHUNK if dist.get_rank() == 1 else length)
        return timing.time_calls(lambda: relay(tensor, [0, 1, 2], CHUNK, length), warmup=1, iters=2)

    with Fabric([[0, FAST, SLOW], [FAST, 0, FAST], [SLOW, FAST, 0]]) as fabric:
        direct, best = NBYTES / fabric.payload_rate(0, 2), 0.0
        for _ in range(3):
            results = launch(seconds, world_size=3, fabric=fabric)
            best = max(best, direct / min(timing.slowest(results)))
            if best >= FASTER:
                break
    par = f"at least {FASTER:g} times as fast as the direct link"
    in_turn = FAST / SLOW / 2
    times = f"{best:.1f} times; one after the other, the two hops would be {in_turn:g} times"
    early = "the hops overlap too little: is something waited for too early? "
    hold(best >= FASTER, par, times, f"{early}Or is the machine busy?", timed=True)
    return best


DESIGNS = {"4 MB": 4e6, "400 MB": 400e6}
WAY_RATES, DELAYS = (46.6e9, 46.6e9, 7.5e9), (1e-3, 1e-3, 0.0)
EARLIEST = {"4 MB": 4e6 / 7.5e9, "400 MB": (400e6 + 2 * 46.6e6) / 100.7e9}
"""Seconds: the direct link alone; all three ways, which end together."""
LATE = {
    "4 MB": "a relay that starts after the direct link could be done is of no use",
    "400 MB": "one way ends before another: what could it have carried meanwhile? Let all ways end "
    "at the same T, with the delay in it",
}


def finish(shares: Sequence[float]) -> float:
    """Return when the last byte has arrived, in seconds; a way without a share costs nothing."""
    ways = zip(shares, WAY_RATES, DELAYS, strict=True)
    return max((delay + share / rate for share, rate, delay in ways if share > 0), default=0.0)


def check_shares(design: Callable[[], Mapping]) -> None:
    """Judge 4.3: two sizes, each with the bytes for each of three ways; when is the last there?"""
    with checking.exercise("4.3", design, par="within 1 % of the earliest finish") as verdict:
        answer = checking.answer(checking.ask(design), dict, what="size -> shares")
        late = []
        hold({*DESIGNS} <= {*answer}, f"the keys {list(DESIGNS)}", f"the keys {list(answer)}")
        for name, nbytes in DESIGNS.items():
            what = f"{name!r}: three shares of {nbytes:.3g} bytes in all, none below 0"
            shares = checking.answer(answer[name], (list, tuple), what=what)
            shares = [checking.number(share, what=what) for share in shares]
            units = {"shares are in bytes, and this is MB": nbytes / 1e6}
            every = "one for each way, 0 where a way gains nothing; their sum is the size"
            usual = checking.diagnose(sum(shares), units, otherwise=every, within=1e-6)
            is_all = math.isclose(sum(shares), nbytes, rel_tol=1e-6)
            hold(is_all and len(shares) == 3 and min(shares) >= 0, what, shares, usual)
            ends, earliest = 1e3 * finish(shares), 1e3 * EARLIEST[name]
            last = f"{name}: when the last byte is there"
            checking.at_most(ends, 1.01 * earliest, what=last, unit="ms", meaning=LATE[name])
            late.append(ends / earliest - 1)
        verdict.reached = f"{max(late):.1%} above the earliest at worst"


def check_reading(reading: Callable[[], tuple]) -> None:
    """Judge 4.4: the pairs that share a NUMA node, and whether P2P was on."""
    right = {frozenset((ORDER.index(gpu), ORDER.index(gpu + 1))) for gpu in range(0, 8, 2)}
    with checking.exercise("4.4", reading, par="four pairs, and the switch"):
        answer = checking.answer(checking.ask(reading), (tuple, list), what="pairs, p2p")
        in_one_tuple = len(answer) == 5  # four pairs, and the switch
        two = "two things: the pairs, and whether P2P was on"
        hold(in_one_tuple or len(answer) == 2, two, answer)
        given, switch = (answer[:4], answer[4]) if in_one_tuple else answer
        form = "a sequence of pairs is asked; each is two GPUs, from 0 to 7"
        try:
            pairs = {frozenset(map(int, pair)) for pair in given}
        except (TypeError, ValueError):
            pairs = set()
        are_pairs = pairs and all(len(pair) == 2 and pair <= {*range(8)} for pair in pairs)
        hold(are_pairs, "four pairs of GPUs: [(0, 1), (2, 3), ...]", given, form)
        wrong = sorted(" and ".join(map(str, sorted(pair))) for pair in pairs - right)
        if wrong:
            usual = f"""{wrong[0]} have an ordinary rate. Each GPU has exactly one other to which,
                and from which, all figures are lower"""
        else:
            usual = "all of these are right, and some are missing: every GPU is in a pair"
        what = "four pairs that share a NUMA node"
        hold(pairs == right, what, sorted(map(sorted, pairs)), usual)
        ours = "with P2P this server's pairs differ twelvefold; here all are nearly alike"
        is_off = str(switch).lower() in ("false", "0", "off")
        hold(is_off, "P2P off: False", switch, ours)


def check_contention(answer: Callable[[], Sequence[float]]) -> None:
    """Judge 4.5: when P, Q and R are done, in ms, when they start together."""
    regrow = """when a transfer ends, the others share anew; and over two links a transfer is as
        fast as the smaller of its two shares"""
    alone = "that is its time alone; here two transfers share each link"
    first = "until one of them ends, two transfers share each link, half and half"
    asked: list[checking.Asked] = [
        ("P's end in ms", 4.0, {alone: 2.0}, first),
        ("Q's end in ms", 11.0, {alone: 6.0, f"half a link to the end? {regrow}": 12.0}, regrow),
        ("R's end in ms", 10.0, {alone: 5.0}, regrow),
    ]
    with checking.exercise("4.5", answer, par="three times within 1 %"):
        checking.figures(checking.ask(answer), asked, within=0.01)
