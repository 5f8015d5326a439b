"""Checks of lesson 06: three collectives by hand, and two predictions.

A function is tried on data that differ by rank and place, on shapes that do not divide, on other
dtypes, on several numbers of ranks, and on a tensor so large that a race shows. How it was done
comes first: no collectives, every handle waited for, no buffer used before. Then the values: which
ranks' shares are in a wrong sum names the mistake. Then the costs, in every run and on every rank.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from statistics import median

import torch

from course.checks import checking
from course.checks.checking import hold
from course.checks.trial import Case, Ran, Trial, sent_elements
from course.comm.costs import AlphaBeta
from course.comm.rounds import count_rounds
from course.lessons.equivalent_collectives import experiment, programs
from labkit.measure.records import bus_factor
from labkit.measure.tables import Table
from labkit.ranks.launcher import launch

BIG = 2**18
"""Elements of a tensor whose messages do not fit into the kernel's buffers."""
LATE = 0.05
"""Seconds by which odd ranks start later with a big tensor."""
SHAPES = ((3,), (), (12, 7), (1, 640))


LEAN = (
    "the values are right, but in a ring a rank sends to its right neighbour only, one chunk of "
    "S/n in each of 2(n-1) rounds: neither whole tensors, nor a round more"
)
NEXT_ONLY = (
    "in a chain each rank sends to the next one only, and the last to nobody; a root that serves "
    "several shares its link between them"
)
PIECES = "cut the tensor into `chunks` pieces, and take their number from the argument"
FORWARD = (
    "a rank waits for more than the piece that it passes on: it collects all pieces first (store "
    "and forward), or waits for a send before it receives the next piece"
)
WHOLE = (
    "a ring or a tree in disguise, or two exchanges where one will do: in round k every rank swaps "
    "its whole sum with the rank 2**k away"
)
PLACES = (
    "every rank ends with rank src's tensor: count ranks from src, modulo n, and leave out those "
    "that do not exist"
)
SHARED = "two sends at once share the link, and both arrive late: wait in between"
DOUBLES = (
    "whoever has the tensor passes it on in every round, so their number doubles: a chain, or a "
    "root that serves all, takes n - 1"
)


def check_ring_all_reduce(ring_all_reduce: Callable[[torch.Tensor], None]) -> None:
    """Judge 6.1: the sum in place, 2(n-1)/n S sent by a rank in 2(n-1) messages, 0.5 S of scratch.

    On 1, 2, 4, 5 and 7 ranks, with lengths that divide, that do not, and that are below n.
    """
    par = "1.5 S sent per rank, 6 messages and 0.5 S of scratch on 4 ranks"
    with checking.exercise("6.1", ring_all_reduce, par=par) as verdict:
        cases = [Case(4, (4000,)), Case(4, (4001,)), *(Case(4, shape) for shape in SHAPES)]
        cases += [Case(4, (4000,), torch.int64), Case(4, (BIG,), late=LATE)]
        cases += [Case(n, (length,)) for n in (2, 1, 5, 7) for length in (60 * n, 60 * n + 1)]
        for case, runs in _tried(ring_all_reduce, cases):
            n, sent = case.world_size, sent_elements(case, runs)
            messages = max(len(run.messages) for run in runs)
            told = f"{case}: elements sent by the busiest rank, in {messages} messages"
            _hold_cost(told, sent, 2 * (case.numel - case.numel // n), LEAN)
            _hold_cost(f"{case}: messages of the busiest rank", messages, 2 * (n - 1), LEAN)
            if n == 4 and case.numel in (4000, BIG):
                _hold_scratch(case, runs, 2 / 4, "one chunk to receive into is enough")
                verdict.reached = f"{sent / case.numel:.4g} S and {messages} messages on 4 ranks"


def check_pipelined_broadcast(pipelined_broadcast: Callable[..., None]) -> None:
    """Judge 6.2: the chain src, src + 1, ..., S on each link in `chunks` pieces, rounds, scratch.

    On 1 to 5 ranks, with other roots, other numbers of chunks, and fewer elements than chunks.
    """
    par = "chunks + n - 2 rounds, S per link, no scratch"
    with checking.exercise("6.2", pipelined_broadcast, par=par) as verdict:
        settings = [
            (4, (803,), 0, 8), (4, (803,), 2, 5), (4, (3,), 0, 8), (4, (), 0, 8),
            (4, (2, 320), 1, 8), (4, (BIG,), 0, 8), (3, (803,), 1, 8), (5, (24, 7), 3, 8),
            (2, (803,), 1, 3), (1, (803,), 0, 8),
        ]  # fmt: skip
        cases = [
            Case(n, shape, options={"src": src, "chunks": chunks}, late=LATE * (shape == (BIG,)))
            for n, shape, src, chunks in settings
        ]
        for case, runs in _tried(pipelined_broadcast, cases, hang=TO_THE_ROOT):
            n, src, chunks = case.world_size, case.options["src"], case.options["chunks"]
            piece = math.ceil(case.numel / chunks)
            for rank, run in enumerate(runs):
                peers = {call.peer for call in run.messages}
                told = f"rank {rank} sends to ranks {sorted(peers)}"
                chain = f"{case}: the chain src, src + 1, ... (modulo n)"
                hold(peers <= {(rank + 1) % n} - {src}, chain, told, NEXT_ONLY)
                sizes = [call.nbytes // case.dtype.itemsize for call in run.messages]
                fits = max(sizes, default=0) <= piece and len(sizes) <= chunks
                once = f"{case}: each element once, in {chunks} pieces of at most {piece}"
                told = f"rank {rank} sends pieces of {sizes}"
                hold(fits and sum(sizes) <= case.numel, once, told, PIECES)
            rounds = count_rounds([run.report for run in runs])
            fewest = min(chunks, case.numel) + n - 2 if n > 1 else 0
            _hold_cost(f"{case}: rounds", rounds, fewest, FORWARD)
            if case.numel == BIG:
                _hold_scratch(case, runs, 0.5 / chunks, "a piece can be received where it belongs")
                verdict.reached = f"{rounds} rounds for {chunks} chunks on {n} ranks"


def check_recursive_doubling(recursive_doubling: Callable[[torch.Tensor], None]) -> None:
    """Judge 6.3: the sum in place, in log2(n) rounds, two more off the powers of two; 2 S scratch.

    On 1 to 7 ranks, and on 9, for whoever wrote the small ones by hand.
    """
    par = "2 rounds on 4 ranks, 4 rounds on 6, 2 S of scratch"
    with checking.exercise("6.3", recursive_doubling, par=par) as verdict:
        cases = [Case(4, (64,)), Case(4, (64,), torch.int64), Case(4, (4 * BIG,), late=LATE)]
        cases += [Case(n, shape) for n in (2, 3, 6, 5, 7, 1) for shape in ((64,), (3, 5), ())]
        reached = {}
        for case, runs in _tried(recursive_doubling, [*cases, Case(9, (64,))]):
            n = case.world_size
            reached[n] = count_rounds([run.report for run in runs])
            fewest = math.floor(math.log2(n)) + (2 if n & (n - 1) else 0)
            _hold_cost(f"{case}: rounds", reached[n], fewest, WHOLE)
            if case.numel > BIG:
                _hold_scratch(case, runs, 2, "one tensor to receive into is enough")
        verdict.reached = f"{reached[4]} rounds on 4 ranks, {reached[6]} on 6"


def check_broadcast_in_turn(broadcast_in_turn: Callable[..., None]) -> None:
    """Judge 6.6: values on 1 to 8 ranks, log2(n) rounds (rounded up), one send at a time."""
    par = "2 rounds on 4 ranks, 3 on 5 to 8, one send at a time"
    with checking.exercise("6.6", broadcast_in_turn, par=par) as verdict:
        settings = [(4, (BIG,), 0), (4, (12, 7), 2), (1, (803,), 0), (5, (803,), 3), (8, (), 1)]
        cases = [Case(n, shape, options={"src": src}) for n, shape, src in settings]
        reached = {}
        for case, runs in Trial(broadcast_in_turn, by_hand=True, timeout=5.0).runs(cases):
            n, src = case.world_size, case.options["src"]
            for rank, run in enumerate(runs):
                what, expected = f"{case}, rank {rank}", case.data(src)
                checking.same_values(run.given[0], expected, what=what, meaning=PLACES)
                pairs = itertools.pairwise(run.messages)
                in_turn = all(a.waited and a.waited <= b.at for a, b in pairs)
                one = f"{case}: a send ends before the next one begins"
                hold(in_turn, one, f"rank {rank} starts one while another is under way", SHARED)
            reached[n] = count_rounds([run.report for run in runs])
            _hold_cost(f"{case}: rounds", reached[n], math.ceil(math.log2(n)), DOUBLES)
        verdict.reached = f"{reached[4]} rounds on 4 ranks, {reached[8]} on 8"


NOTHING = (
    "nothing arrived in this rank's tensor: the chain ends at the rank before src, modulo n; or "
    "pieces were received into copies (tensor_split gives views, clone does not)"
)
TO_THE_ROOT = (
    "in a chain the root receives nothing, and the last rank, the one before src, sends to nobody: "
    "does somebody send to the root? Who waits in which call stands above"
)
FROM_0 = "that is rank 0's tensor: the chain starts at src, counted modulo n"


def _tried(
    way: Callable[..., None], cases: Sequence[Case], hang: str = ""
) -> Iterator[tuple[Case, list[Ran]]]:
    """Try the cases, the first one apart, and hold the values."""
    trial = Trial(way, by_hand=True, hint=_hint, timeout=5.0, apart=1, hang=hang)
    for case, ranks in trial.runs(cases):
        src = case.options.get("src")
        expected = case.total() if src is None else case.data(src)
        for rank, ran in enumerate(ranks):
            copied = {} if src is None else {FROM_0: case.data(0), NOTHING: case.data(rank)}
            meaning = _hint(case) if copied else _usual_sum(ran, case, rank, expected)
            found, what = ran.given[0], f"{case}, rank {rank}"
            checking.same_values(found, expected, what=what, meaning=meaning, mistakes=copied)
        yield case, ranks


def _hint(case: Case) -> str:
    """Say what is special about a case, for somebody whose function fails in it."""
    if case.world_size == 1:
        return "one rank is alone: there is nobody to send to, and nothing to do"
    if case.dtype != torch.float32:
        return "keep the tensor's dtype, also in scratch: float32 has 24 bits; and divide nothing"
    if len(case.shape) != 1:
        return "a tensor may have any number of dimensions: cut a flat view of it, tensor.view(-1)"
    if case.numel >= BIG:
        race = "right on small tensors and wrong on large ones: a race. A buffer is changed while "
        return race + "it is still being sent (through numpy, perhaps): wait for both, then add"
    if case.numel % case.world_size or "src" in case.options:
        uneven = "pieces differ in length where it does not divide, and some are empty: cut with "
        uneven += "tensor_split, and receive into a buffer as long as what arrives"
        return uneven + (
            "; n is no power of two" if case.world_size & (case.world_size - 1) else ""
        )
    return (
        "in every round the chunk that a rank receives is the one that its left neighbour sends: "
        "write both down for n = 3, modulo the number of ranks that there are"
    )


def _usual_sum(ran: Ran, case: Case, rank: int, expected: torch.Tensor) -> str:
    """Say what a wrong sum usually means, by which of its chunks are whole, or one rank's alone."""
    n, data = case.world_size, [case.data(one) for one in range(case.world_size)]
    cut = (t.reshape(-1).tensor_split(n) for t in (ran.given[0], expected, *data))
    by_chunk = list(zip(*cut, strict=True))
    whole = sum(torch.equal(chunk, summed) for chunk, summed, *_ in by_chunk)
    alone = all(any(torch.equal(chunk, one) for one in each) for chunk, _, *each in by_chunk)
    result = ran.returned.flatten() if isinstance(ran.returned, torch.Tensor) else torch.empty(0)
    usual = {
        "what is returned is right, but the tensor itself is asked: write the result into it, "
        "tensor.copy_(result), or work on views of it": torch.equal(result, expected.flatten()),
        "these are still this rank's own numbers: nothing was added to them in place (tensor = "
        "tensor + x makes a new tensor; tensor += x adds)": torch.equal(ran.given[0], data[rank]),
        "what arrives overwrites this rank's own numbers instead of being added: receive into a "
        "buffer of its own. Or the second turn begins with a chunk that lacks shares: which one "
        "has all on rank r after n-1 rounds?": alone,
        f"{whole} of {n} chunks have every share, and others do not: a turn of the ring is "
        "missing, or a round, or the second turn begins with the wrong chunk: the complete one "
        "goes first": whole > 0,
    }
    return next((text for text, fits in usual.items() if fits), _hint(case))


def _hold_cost(what: str, value: float, par: float, meaning: str) -> None:
    checking.at_most(value, par, what=what, unit="", meaning=meaning)


def _hold_scratch(case: Case, runs: Sequence[Ran], par: float, enough: str) -> None:
    peak = max(run.peak for run in runs) / case.nbytes
    meaning = f"copies of the tensor; {enough}, and tensor_split gives views"
    _hold_cost(f"{case}: scratch memory, in S", peak, par, meaning)


VERDICTS = ("possible", "needs a switch that adds", "impossible")
CLAIMS = {
    "a": ("all_reduce", 16 * 2**30, 8, 81.9e-3, 450e9),  # 8x H200, Ring
    "b": ("all_reduce", 16 * 2**30, 8, 62.6e-3, 450e9),  # the same, the switch adds
    "c": ("broadcast", 10**9, 16, 0.8e-3, 450e9),  # the puzzle's table as labelled
    "d": ("all_gather", 16 * 2**30, 8, 30e-3, 450e9),  # above the wire, and nothing adds
    "e": ("all_reduce", 16 * 2**30, 8, 41e-3, 450e9),  # S / t fits, (n+1)/n S / t does not
    "f": ("broadcast", 10**9, 4, 1.0, 1e9),  # just possible
}
"""Claims to audit: collective, S, ranks, seconds, bytes per second of a rank's link one way."""


def claims() -> Table:
    """Lay out what exercise 6.4 asks to judge."""
    rows = [
        [letter, name, nbytes / 1e9, n, seconds * 1e3, link / 1e9]
        for letter, (name, nbytes, n, seconds, link) in CLAIMS.items()
    ]
    return Table(["", "collective", "S (GB)", "ranks", "ms", "link of each rank (GB/s)"], rows)


def check_audit(verdicts: dict[str, str]) -> None:
    """Judge 6.4: one of `VERDICTS` for each of `CLAIMS`; say what refutes a wrong one."""
    with checking.exercise("6.4", par="6 of 6 verdicts") as verdict:
        letters = {*verdicts} if isinstance(verdicts, dict) else {}
        form = "keep the form of the cell above: a dict, with an answer for each letter"
        asked = f"a dict with {', '.join(CLAIMS)}"
        hold(letters == {*CLAIMS}, asked, repr(verdicts)[:200], form)
        if all(value is ... for value in verdicts.values()):
            raise NotImplementedError
        for letter, (name, nbytes, n, seconds, link) in CLAIMS.items():
            given = "nothing" if verdicts[letter] is ... else verdicts[letter]
            named = checking.word(given, VERDICTS, what=letter)
            rate, busbw = nbytes / seconds, nbytes / seconds * bus_factor(name, n)
            helped = name == "all_reduce" and rate * (n + 1) / n <= link
            right = VERDICTS[0 if busbw <= link else 1 if helped else 2]
            only = "only an all_reduce whose busbw is above the link, and (n+1)/n S / t is not"
            figures = f"busbw is {busbw / 1e9:.4g} GB/s, the link {link / 1e9:.4g}"
            why = only if named == VERDICTS[1] else f"{figures}: which is larger, what helps"
            hold(named == right, f"{letter}: another answer", repr(given), why)
        verdict.reached = f"{len(CLAIMS)} of {len(CLAIMS)}"


SETTINGS = ((200e-6, 4e-8, 8), (200e-6, 4e-8, 4), (5e-6, 1e-10, 16), (1e-3, 1e-9, 64))
"""Alpha, beta and ranks at which exercise 6.5 is judged; then two ranks, where nothing crosses."""


def check_crossing(crossing: Callable[[float, float, int], float]) -> None:
    """Judge 6.5: the bytes at which ring and doubling take the same time, in five settings."""
    with checking.exercise("6.5", crossing, par="five settings within 1 %") as verdict:
        for alpha, beta, n in SETTINGS:
            logs = math.log2(n)  # rounds of S; the ring has 2(n-1) rounds of S/n
            right = (2 * (n - 1) - logs) * alpha / ((logs - 2 * (n - 1) / n) * beta)
            once = (n - 1 - logs) * alpha / ((logs - (n - 1) / n) * beta)
            mistakes = {
                "that is the bytes of one of the ring's messages, S/n: S is asked": right / n,
                "the ring goes around twice: 2(n-1) rounds": once,
                "that is alpha / beta, where latency and bytes of *one* message cost the same": (
                    alpha / beta
                ),
                "the sign: the ring has more rounds, the doubling more bytes": -right,
            }
            what = f"S for alpha={alpha:g}, beta={beta:g}, n={n}"
            value = checking.ask(crossing, alpha, beta, n, case=what)
            equate = "equate 2(n-1) (alpha + beta S/n) and log2(n) (alpha + beta S)"
            checking.figures([value], [(what, right, mistakes, equate)], within=0.01)
        try:
            value = checking.ask(crossing, 1e-4, 1e-8, 2)
        except ArithmeticError as error:
            value = error
        never = "two ranks: one round of S against two of S/2. The bytes are equal, the rounds are "
        never += "not, so the ring is never ahead: return math.inf"
        hold(value == math.inf, "math.inf on 2 ranks", repr(value), never)
        verdict.reached = f"{len(SETTINGS) + 1} of {len(SETTINGS) + 1}"


def race(
    crossing: Callable[[float, float, int], float],
    ring: Callable[[torch.Tensor], None],
    doubling: Callable[[torch.Tensor], None],
) -> Table | None:
    """Predict the crossing by one's own link, and time both ways around it, in turn; four hosts.

    Nothing is judged. Where the rounds of a size disagree, the crossing may lie there: no more can
    be said. None, and why, while one of the three is not written yet.
    """
    try:
        crossing(1e-4, 1e-8, 4)
        for way in (ring, doubling):
            launch(way, torch.zeros(1), world_size=1)
    except NotImplementedError as left:
        print(f"{left}: come back when 6.1, 6.3 and 6.5 are written.")
        return None
    tier, swaps = experiment.in_turns([programs.swap], experiment.SWAPPED, iters=9)
    link = AlphaBeta.fit([*swaps], [min(seconds) for (seconds,) in swaps.values()])
    rate = f"{1e9 * link.beta:.3g} ns a byte ({1e-6 / link.beta:.3g} MB/s)"
    print(f"{tier}: alpha is {1e6 * link.alpha:.0f} µs, beta {rate}")
    nbytes = crossing(link.alpha, link.beta, experiment.FOUR.hosts)
    sizes = [4 * max(1, round(nbytes * factor / 4)) for factor in (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)]
    rows = []
    _, raced = experiment.in_turns([ring, doubling], sizes)
    for size, (ring_s, doubling_s) in raced.items():
        won = sum(a < b for a, b in zip(ring_s, doubling_s, strict=True))
        times = [1e3 * median(seconds) for seconds in (ring_s, doubling_s)]
        rows.append([size / 1e3, *times, f"{won} of {len(ring_s)}"])
    print(f"predicted: the two cross at {nbytes / 1e3:.0f} kB. Measured: see the last column")
    return Table(["S (kB)", "ring (ms)", "doubling (ms)", "rounds in which the ring won"], rows)
