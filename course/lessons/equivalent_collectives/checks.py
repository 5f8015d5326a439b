"""Checks of lesson 6: collectives by hand, judged on values and every cost; claims.

A function is tried on data that differ by rank and place, on world sizes and lengths that do not
divide, on two dimensions and other dtypes, and on tensors so large that a race shows. How it was
done comes first: collectives inside, handles dropped, buffers used too early. Then the values: what
a wrong sum lacks or has twice is found out, so that the message can name the mistake. Then the
costs, in every run and on every rank.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from statistics import median

import torch

from course.checks import boards, checking
from course.checks.checking import CheckFailed
from course.checks.trial import Case, Ran, Trial, sent_elements
from course.comm.costs import AlphaBeta
from course.comm.rounds import count_rounds
from course.lessons.equivalent_collectives import evidence, experiment
from labkit.measure.records import bus_factor
from labkit.measure.tables import Table
from labkit.ranks.launcher import launch

BIG = 2**18
"""Elements of a tensor whose messages do not fit into the kernel's buffers."""
LATE = 0.05
"""Seconds by which odd ranks start later with a big tensor."""
PARS = {
    "6.1": "1.5 S sent per rank, 6 messages and 0.5 S of scratch on 4 ranks",
    "6.2": "chunks + n - 2 rounds, S per link, no scratch",
    "6.3": "2 rounds on 4 ranks, 4 rounds on 6, 2 S of scratch",
    "6.4": "6 of 6 verdicts",
    "6.5": "five settings within 1 %",
    "6.6": "all culprits",
}
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


OTHER_CHUNK = (
    "chunks differ by an element where the length does not divide, and here a rank sends another "
    "chunk than its right neighbour receives. If rank r sends chunk r - step, its right neighbour "
    "receives chunk (r + 1) - 1 - step, modulo the number of ranks that there are"
)
"""What it usually means in a ring that a message and its receive differ a little in length."""


def _hint(case: Case) -> str:
    """Say what is special about a case, for somebody whose function fails in it."""
    if case.world_size == 1:
        return "one rank is alone: there is nobody to send to, and nothing to do"
    if case.dtype != torch.float32:
        return (
            "scratch must have the tensor's dtype (torch.empty_like, or tensor.new_empty), and a "
            "sum of whole numbers is whole: nothing is divided"
        )
    if len(case.shape) != 1:
        return "a tensor may have any number of dimensions: cut a flat view of it, tensor.view(-1)"
    if case.world_size & (case.world_size - 1):
        return "a number of ranks that is no power of two"
    return "a length that does not divide: pieces differ, and some may be empty"


def check_ring_all_reduce(ring_all_reduce: Callable[[torch.Tensor], None]) -> None:
    """Judge exercise 6.1: `ring_all_reduce(tensor)` sums in place over all ranks."""
    with checking.exercise("6.1", ring_all_reduce, par=PARS["6.1"]) as verdict:
        shapes = ((4000,), (4001,), (3,), (1,), (), (12, 7), (1, 640), (2, 320))
        cases = [*(Case(4, shape) for shape in shapes), Case(4, (BIG,), late=LATE)]
        cases += [Case(4, (4000,), torch.int64), Case(5, (15, 7), torch.float64)]
        cases += [Case(n, (length,)) for n in (2, 1, 3, 5, 7) for length in (60 * n, 60 * n + 1)]
        for case, runs in _tried(ring_all_reduce, cases, wrong=_wrong_ring, sizes=OTHER_CHUNK):
            sent, messages = sent_elements(case, runs), max(len(run.messages) for run in runs)
            peers = max(len({call.peer for call in run.messages}) for run in runs)
            _hold(
                case,
                "sent by the busiest rank, elements",
                sent,
                2 * (case.numel - case.numel // case.world_size),
                "the values are right, but a rank sends to several others; in a ring it sends to "
                "its right neighbour only, one chunk in a round"
                if peers > 1
                else f"the values are right, after {messages} messages of a rank: 2(n-1) do, one a "
                "round, so a round is made too often"
                if messages > 2 * (case.world_size - 1)
                else "the values are right, but a ring sends 2(n-1)/n S: here whole tensors go "
                "around instead of chunks, or chunks of very unequal length",
            )
            _hold(
                case,
                "messages sent by the busiest rank",
                messages,
                2 * (case.world_size - 1),
                "more messages than rounds: each of the 2(n-1) rounds sends one chunk",
            )
            if case.world_size == 4 and case.numel in (4000, BIG):
                _hold_scratch(case, runs, 2 / 4, "one chunk to receive into is enough")
                verdict.reached = f"{sent / case.numel:.4g} S and {messages} messages on 4 ranks"


def check_pipelined_broadcast(pipelined_broadcast: Callable[..., None]) -> None:
    """Judge exercise 6.2: `pipelined_broadcast(tensor, src=0, chunks=8)`."""
    with checking.exercise("6.2", pipelined_broadcast, par=PARS["6.2"]) as verdict:
        settings = [
            (4, (803,), 0, 8), (4, (803,), 2, 5), (4, (3,), 0, 8), (4, (803,), 1, 1),
            (4, (BIG,), 0, 8), (4, (), 0, 8), (4, (1, 640), 0, 8), (4, (2, 320), 1, 8),
            (3, (803,), 1, 8), (5, (24, 7), 3, 8), (2, (803,), 1, 3), (1, (803,), 0, 8),
        ]  # fmt: skip
        cases = [
            Case(n, shape, options={"src": src, "chunks": chunks}, late=LATE * (shape == (BIG,)))
            for n, shape, src, chunks in settings
        ]
        cases.insert(0, Case(4, (803,), torch.int64, options={"src": 0, "chunks": 8}))
        for case, runs in _tried(
            pipelined_broadcast, cases, wrong=_wrong_copy,
            hang="In a chain the root receives nothing, and the last rank, the one before src, "
            "sends to nobody: does somebody send to the root?",
        ):  # fmt: skip
            n, src, chunks = case.world_size, case.options["src"], case.options["chunks"]
            for rank, run in enumerate(runs):
                for call in run.messages:
                    if call.peer != (rank + 1) % case.world_size or call.peer == src:
                        raise CheckFailed(
                            f"{case}: the chain src, src + 1, ... (modulo n)",
                            f"rank {rank} sends to rank {call.peer}",
                            "in a chain each rank sends to the next one only, and the last to "
                            "nobody; a root that serves several shares its link between them",
                        )
            largest = max((c.nbytes for run in runs for c in run.messages), default=0)
            took = count_rounds([run.report for run in runs])
            _hold(
                case,
                "sent by the busiest rank, elements",
                sent_elements(case, runs),
                case.numel,
                "a chain passes each element on once",
            )
            _hold(
                case,
                "largest message, elements",
                largest / case.dtype.itemsize,
                math.ceil(case.numel / chunks),
                "the tensor is not cut into `chunks` pieces",
            )
            _hold(
                case,
                "messages on a link",
                max(len(run.messages) for run in runs),
                chunks,
                "more pieces than `chunks`: take their number from the argument",
            )
            _hold(
                case,
                "rounds",
                took,
                min(chunks, case.numel) + n - 2 if n > 1 else 0,
                "a rank waits for more than the piece that it passes on: it collects all pieces "
                "first (store and forward), or waits for a send before it receives the next piece",
            )
            if case.numel == BIG:
                _hold_scratch(case, runs, 0.5 / chunks, "a piece can be received where it belongs")
                verdict.reached = f"{took} rounds for {chunks} chunks on {case.world_size} ranks"


def check_recursive_doubling(recursive_doubling: Callable[[torch.Tensor], None]) -> None:
    """Judge exercise 6.3: `recursive_doubling(tensor)` sums in place, for any world size."""
    with checking.exercise("6.3", recursive_doubling, par=PARS["6.3"]) as verdict:
        cases = [Case(4, (64,)), Case(4, (64,), torch.int64), Case(4, (4 * BIG,), late=LATE)]
        cases += [Case(n, shape) for n in (2, 3, 6, 5, 7, 1) for shape in ((64,), (7,), (3, 5), ())]
        cases += [Case(9, (64,))]  # whoever wrote the small ones by hand
        reached = {}
        for case, runs in _tried(recursive_doubling, cases, wrong=_wrong_sum):
            n = case.world_size
            reached[n] = count_rounds([run.report for run in runs])
            fold = 2 if n & (n - 1) else 0  # to a partner and back, off the powers of two
            _hold(
                case,
                "rounds",
                reached[n],
                math.floor(math.log2(n)) + fold,
                "a ring or a tree in disguise, or two exchanges where one will do: in round k "
                "every rank swaps its whole sum with the rank 2**k away",
            )
            if case.numel > BIG:
                _hold_scratch(case, runs, 2, "one tensor to receive into is enough")
        verdict.reached = f"{reached[4]} rounds on 4 ranks, {reached[6]} on 6"


def claims() -> Table:
    """Lay out what exercise 6.4 asks to judge."""
    rows = [
        [letter, name, nbytes / 1e9, n, seconds * 1e3, link / 1e9]
        for letter, (name, nbytes, n, seconds, link) in CLAIMS.items()
    ]
    return Table(["", "collective", "S (GB)", "ranks", "ms", "link of each rank (GB/s)"], rows)


def check_audit(verdicts: dict[str, str]) -> None:
    """Judge exercise 6.4: one of `VERDICTS` for each of `CLAIMS`; say what refutes a wrong one."""
    with checking.exercise("6.4", par=PARS["6.4"]) as verdict:
        if not isinstance(verdicts, dict):
            meaning = "keep the form of the cell above: a dict, with an answer for each letter"
            raise CheckFailed(f"a dict with {', '.join(CLAIMS)}", repr(verdicts)[:200], meaning)
        if all(verdicts.get(letter) is ... for letter in CLAIMS):
            raise NotImplementedError("exercise 6.4: not attempted yet")
        if others := [letter for letter in verdicts if letter not in CLAIMS]:
            raise CheckFailed(f"the letters {', '.join(CLAIMS)}", repr(others[0]), "no such letter")
        known = {_plain(option): option for option in VERDICTS}
        for letter, claim in CLAIMS.items():
            given, one = verdicts.get(letter), f"{letter}: one of {', '.join(VERDICTS)}"
            if given is None or given is ...:
                raise CheckFailed(one, "nothing", f"{letter} is not answered yet")
            named = known.get(_plain(given))
            if named is None:
                raise CheckFailed(one, repr(given), "no such name")
            if named != _verdict(*claim):
                raise CheckFailed(f"{letter}: another answer", repr(given), _refuted(letter, named))
        verdict.reached = f"{len(CLAIMS)} of {len(CLAIMS)}"


def ring_seconds(nbytes: float, n: int, link: AlphaBeta) -> float:
    """Return what a ring all_reduce takes: 2(n-1) rounds of S/n."""
    return 2 * (n - 1) * link.time(nbytes / n)


def doubling_seconds(nbytes: float, n: int, link: AlphaBeta) -> float:
    """Return what recursive doubling takes on a power of two: log2(n) rounds of S."""
    return math.log2(n) * link.time(nbytes)


def crossing_of(link: AlphaBeta, n: int) -> float:
    """Return the bytes at which both take the same time; infinite where the ring never wins."""
    rounds = 2 * (n - 1) - math.log2(n)  # more messages of the ring
    tensors = math.log2(n) - 2 * (n - 1) / n  # more tensors of the doubling
    return rounds * link.alpha / (tensors * link.beta) if tensors else math.inf


SETTINGS = ((200e-6, 4e-8, 8), (200e-6, 4e-8, 4), (5e-6, 1e-10, 16), (1e-3, 1e-9, 64))
"""Alpha, beta and ranks at which exercise 6.5 is judged; then two ranks, where nothing crosses."""


def check_crossing(crossing: Callable[[float, float, int], float]) -> None:
    """Judge exercise 6.5: `crossing(alpha, beta, n)` returns bytes."""
    with checking.exercise("6.5", crossing, par=PARS["6.5"]) as verdict:
        for alpha, beta, n in SETTINGS:
            link, logs = AlphaBeta(alpha, beta), math.log2(n)
            right, tensors = crossing_of(link, n), logs - 2 * (n - 1) / n
            once = (n - 1 - logs) * alpha / ((logs - (n - 1) / n) * beta)
            mistakes = {
                "that is the bytes of one of the ring's messages, S/n: S is asked": right / n,
                "the ring goes around twice: 2(n-1) rounds": once,
                "that is alpha / beta, where latency and bytes of *one* message cost the same":
                    alpha / beta,
                "the sign: the ring has more rounds, the doubling more bytes": -right,
                "doubling needs log2(n) rounds, not n": (n - 2) * alpha / beta / (
                    n - 2 * (n - 1) / n),
                "the ring's messages have S/n bytes, not S": (2 * (n - 1) - logs) * alpha / (
                    beta * (logs - 2 * (n - 1))),
            }  # fmt: skip
            what = f"S for alpha={alpha:g}, beta={beta:g}, n={n}"
            got = checking.number(checking.ask(crossing, alpha, beta, n), what=what)
            asked = (what, right, mistakes, _at(got, n, link))
            checking.figures([got], [asked], within=0.01)
            assert tensors > 0
        try:
            got = checking.plain(checking.ask(crossing, 1e-4, 1e-8, 2))
        except ArithmeticError as error:
            got = error
        if got != math.inf:
            raise CheckFailed(
                "math.inf on 2 ranks",
                repr(got),
                "two ranks: one round of S against two of S/2. The bytes are equal, the rounds are "
                "not, so the ring is never ahead: return math.inf",
            )
        verdict.reached = f"{len(SETTINGS) + 1} of {len(SETTINGS) + 1}"


def _at(nbytes: float, n: int, link: AlphaBeta) -> str:
    """Say what both ways take at this size."""
    if not 0 <= nbytes < math.inf:
        return (
            "from four ranks on there is such a size. The ring sends fewer bytes, so above it the "
            "ring wins; it has more rounds, so below it doubling does"
        )
    ring, doubling = (1e3 * way(nbytes, n, link) for way in (ring_seconds, doubling_seconds))
    return (
        f"at your S the ring takes {ring:.4g} ms and doubling {doubling:.4g} ms: equate "
        "2(n-1) (alpha + beta S/n) and log2(n) (alpha + beta S)"
    )


def my_link() -> AlphaBeta:
    """Fit alpha and beta to swaps between pairs of four hosts, and say what they are."""
    records = experiment.time_swaps()
    link = AlphaBeta.fit([r.nbytes for r in records], [min(r.seconds) for r in records])
    print(
        f"{records[0].tier}: alpha is {1e6 * link.alpha:.0f} µs, beta {1e9 * link.beta:.3g} ns a "
        f"byte ({1e-6 / link.beta:.3g} MB/s)"
    )
    return link


def race(
    crossing: Callable[[float, float, int], float],
    ring: Callable[[torch.Tensor], None],
    doubling: Callable[[torch.Tensor], None],
) -> Table | None:
    """Predict the crossing by one's own link, and time both ways around it, in turn; four hosts.

    Nothing is judged. Where the rounds of a size disagree, the crossing may lie there: no more can
    be said. None, and why, while one of the three is not written yet.
    """
    for function, given in ((crossing, (1e-4, 1e-8, 4)), (ring, ()), (doubling, ())):
        try:
            if given:
                function(*given)
            else:
                launch(function, torch.zeros(1), world_size=1)
        except NotImplementedError:
            print(f"{function.__name__} is not written yet: come back when it is.")
            return None
    link = my_link()
    nbytes = crossing(link.alpha, link.beta, experiment.FOUR.hosts)
    rows, wins = [], []
    for size, ring_s, doubling_s in experiment.time_crossing(nbytes, ring, doubling):
        won = [a < b for a, b in zip(ring_s, doubling_s, strict=True)]
        wins.append((size, won))
        mixed = f"ring {sum(won)} of {len(won)}"
        who = "ring" if all(won) else mixed if any(won) else "doubling"
        rows.append([size / 1e3, 1e3 * median(ring_s), 1e3 * median(doubling_s), who])
    last = max((size for size, won in wins if not any(won)), default=None)
    first = min((size for size, won in wins if all(won)), default=None)
    low = f"above {last / 1e3:.0f} kB" if last else "somewhere below"
    high = f"below {first / 1e3:.0f} kB" if first else "somewhere above"
    print(f"predicted {nbytes / 1e3:.0f} kB; measured: the crossing is {low} and {high}")
    return Table(["S (kB)", "ring (ms)", "doubling (ms)", "faster in all rounds"], rows)


def _plain(name: object) -> str:
    """Return a name without what people write in different ways: case, hyphens, a full stop."""
    return re.sub(r"[\W_]+", " ", str(name)).strip().lower()


def _refuted(letter: str, given: str) -> str:
    """Say by which figure an answer falls."""
    name, nbytes, n, seconds, link = CLAIMS[letter]
    if given == VERDICTS[1]:
        return "only an all_reduce whose busbw is above the link, and (n+1)/n S / t is not"
    busbw = nbytes / seconds * bus_factor(name, n)
    return (
        f"busbw is {busbw / 1e9:.4g} GB/s, the link {link / 1e9:.4g}: which is larger, what helps"
    )


def _verdict(collective: str, nbytes: int, n: int, seconds: float, link: float) -> str:
    if nbytes / seconds * bus_factor(collective, n) <= link:
        return VERDICTS[0]
    helped = collective == "all_reduce" and nbytes / seconds * (n + 1) / n <= link
    return VERDICTS[1 if helped else 2]


def _tried(
    way: Callable[..., None],
    cases: Sequence[Case],
    *,
    wrong: Callable[..., str],
    hang: str = "",
    sizes: str = "",
) -> Iterator[tuple[Case, list[Ran]]]:
    """Try the cases and hold the values; `wrong` names the mistake behind a wrong tensor.

    `hang` is what it usually means in this exercise that ranks wait for ever, and `sizes` that a
    message is a little longer or shorter than its receive.
    """
    ended: set[int] = set()
    try:
        # Not fewer apart: in the third chain somebody waits for who sends to the root and hangs.
        trial = Trial(way, by_hand=True, hint=_hint, timeout=5.0, apart=3)
        for case, ranks in trial.runs(cases):
            ended.add(case.world_size)
            src = case.options.get("src")
            expected = case.total() if src is None else case.data(src)
            for rank, ran in enumerate(ranks):
                tensor = ran.given[0]
                if not torch.equal(tensor, expected):
                    what = f"{case}, rank {rank}"
                    if isinstance(ran.returned, torch.Tensor) and torch.equal(
                        ran.returned.view(-1), expected.view(-1)
                    ):
                        meaning = (
                            "what is returned is right, but the tensor itself is asked: write the "
                            "result into it, tensor.copy_(result), or work on views of it"
                        )
                    else:
                        meaning = wrong(tensor, case, rank)
                    checking.same_values(tensor, expected, what=what, meaning=meaning)
            yield case, ranks
    except CheckFailed as failure:
        late = re.match(r"n=(\d+): all ranks finish", failure.expected)
        if late and "no rank waits" not in failure.meaning:
            n = int(late[1])
            if ended and n not in ended:
                failure.meaning = (
                    f"it ended on {max(ended)} ranks, and waits for ever on {n}: is there a "
                    f"{max(ended)} where n belongs? Or {failure.meaning}"
                )
            elif hang:
                failure.meaning = f"{failure.meaning}. {hang}"
        elif hang and failure.got.startswith("a message of"):
            failure.meaning = f"{failure.meaning}. {hang}"
        elif sizes and (met := re.match(r"a message of (\d+) bytes met .* (\d+)$", failure.got)):
            long, room = map(int, met.groups())
            failure.meaning = sizes if 0.5 < long / room < 2 else failure.meaning
        raise


def _hold(case: Case, what: str, got: float, par: float, meaning: str) -> None:
    if len(case.shape) != 1:
        meaning = f"{meaning}; or {_hint(case)}"
    checking.at_most(got, par, what=f"{case}: {what}", unit="", meaning=meaning)


def _hold_scratch(case: Case, runs: Sequence[Ran], par: float, enough: str) -> None:
    peak = max(run.peak for run in runs) / (case.numel * case.dtype.itemsize)
    meaning = f"copies of the tensor; {enough}, and tensor_split gives views"
    _hold(case, "scratch memory, in S", peak, par, meaning)


def _wrong_ring(got: torch.Tensor, case: Case, rank: int) -> str:
    """Name the mistake behind a wrong sum that was made of chunks."""
    inside = [_shares(got, case, chunk) for chunk in range(case.world_size)]
    if case.numel % case.world_size and case.numel < BIG:
        return (
            f"{case.numel} elements do not divide by {case.world_size}: chunks differ in "
            "length. Cut with tensor_split, and receive into a buffer as long as what arrives"
        )
    if None not in inside and all(max(counts) == 1 for counts in inside):
        complete = sum(min(counts) for counts in inside)
        if complete < case.world_size and all(counts[rank] for counts in inside):
            return (
                f"{complete} of {case.world_size} chunks have every share, the others some: a "
                "turn of the ring is missing, or a round. n-1 rounds sum the chunks, n-1 more "
                "bring each sum to every rank"
            )
        if 0 < complete < case.world_size:
            return (
                f"{complete} of {case.world_size} chunks have every share, and others were "
                "overwritten by sums that were not complete: the second turn begins with the wrong "
                "chunk. Which chunk is complete on rank r after n-1 rounds? That one goes first"
            )
    if None not in inside and all(sum(counts) == 1 for counts in inside) and case.world_size > 1:
        whose = {counts.index(1) for counts in inside}
        if len(whose) > 1:  # no sum anywhere: each chunk is one rank's own
            return (
                "each chunk is one rank's own, and nothing was added up in the end. Either the "
                "receive buffer is the tensor itself in the first turn: receive into a buffer of "
                "its own, and add. Or the second turn begins with a chunk that is not complete: "
                "which chunk has every share on rank r after n-1 rounds? That one goes first"
            )
    return _wrong_sum(
        got,
        case,
        rank,
        otherwise="a wrong chunk: in every round the chunk that a rank receives is the one that "
        "its left neighbour sends; write both down for n = 3. Or the second turn adds: it brings "
        "sums that are complete, and only replaces. Or a race: a buffer is changed while it is "
        "still being sent",
    )


def _wrong_sum(
    got: torch.Tensor,
    case: Case,
    rank: int,
    otherwise: str = "some ranks' numbers are in the sum too often, or too rarely. With whom does "
    "rank r swap in round k, and what has its partner added up by then? Or a race: a buffer is "
    "changed while it is still being sent",
) -> str:
    """Name the mistake behind a wrong sum, from which ranks' data are in it."""
    data = [case.data(r) for r in range(case.world_size)]
    wrong = got != sum(data)
    if case.dtype.itemsize == 8 and ((got - sum(data)).abs() < 2**20).all():
        return "nearly right: the numbers went through float32, which has 24 bits; keep the dtype"
    if (got == data[rank])[wrong].all():
        where = "all dimensions count: a flat view has them all, tensor.view(-1)"
        return (
            f"{int(wrong.sum())} elements are still this rank's own numbers: nothing was added to "
            "them in place (tensor = tensor + x makes a new tensor; tensor += x adds); "
            f"{where if len(case.shape) > 1 else 'or which message should have brought it?'}"
        )
    if torch.stack([got == part for part in data]).any(0)[wrong].all():
        return (
            "what arrives overwrites this rank's own numbers instead of being added: the "
            "receive buffer is the tensor itself. Receive into a buffer of its own"
        )
    chunk = int(wrong.view(-1).nonzero()[0]) * case.world_size // case.numel
    counts = _shares(got, case, chunk)
    if counts and 2 in counts:
        return (
            f"rank {counts.index(2)}'s share is in the sum twice: one round or chunk too many, or "
            "a race: a buffer was changed while it was still being sent"
        )
    if counts and 0 in counts:
        missing = [r for r, count in enumerate(counts) if count == 0]
        return f"the shares of ranks {missing} are missing: too few rounds, or a wrong chunk"
    if case.numel >= BIG:
        return (
            "right on small tensors and wrong on large ones: a race. A buffer is changed while it "
            "is still being sent (through numpy, perhaps): wait for both works, then add"
        )
    return otherwise


def _shares(got: torch.Tensor, case: Case, chunk: int) -> tuple[int, ...] | None:
    """Return how often each rank's data are in a chunk, if they are 0, 1 or 2 times."""
    parts = [
        case.data(r).view(-1).tensor_split(case.world_size)[chunk][-16:]
        for r in range(case.world_size)
    ]
    found = got.view(-1).tensor_split(case.world_size)[chunk][-16:]
    for counts in itertools.product((1, 0, 2), repeat=case.world_size):
        mixture = sum(count * part for count, part in zip(counts, parts, strict=True))
        if torch.equal(mixture, found):
            return counts
    return None


def _wrong_copy(got: torch.Tensor, case: Case, rank: int) -> str:
    """Name the mistake behind a wrong broadcast."""
    src = case.options["src"]
    right = (got == case.data(src)).flatten()
    if src and torch.equal(got, case.data(0)):
        return "that is rank 0's tensor: the chain starts at src, counted modulo n"
    if rank == src:
        return "the root's own tensor has changed: it sends, and receives nothing"
    if torch.equal(got, case.data(rank)):
        return (
            "nothing arrived in this rank's tensor: the chain ends at the rank before src, modulo "
            "n; or pieces were received into copies (tensor_split gives views, clone does not)"
        )
    if right[0] and not right[-1]:
        return "the end is missing: the last piece is shorter when chunks do not divide"
    return (
        "pieces are not where they belong: they arrive in the order in which they were sent, and "
        "each is received into its own place of the tensor"
    )


WHO = boards.WhoWasIt("6.6", evidence.INVESTIGATION, {"first": "d", "second": "b"})
