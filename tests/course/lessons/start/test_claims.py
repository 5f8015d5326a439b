"""What lesson 00 claims: each claim holds for figures that bear it out, and fails for others."""

import time
from itertools import count
from types import SimpleNamespace

from pytest import mark

from course.comm.costs import AlphaBeta
from course.lessons.start.experiment import Passport
from labkit.measure import timing
from labkit.measure.records import Provenance, Record, Tier, suspicious
from labkit.ranks.errors import LaunchTimeout
from tests.course.lessons.cells import Cells, Ledger

HERE = Provenance.here()
SECONDS = {4 * 8**k: 5e-5 + 5e-10 * 4 * 8**k for k in range(9)}
LESSON = Cells("00_start_here", ledger=Ledger(),
    time=time, timing=timing, Record=Record, Tier=Tier, suspicious=suspicious, here=HERE,
    dist=None, torch=None, mean=0.0, LaunchTimeout=LaunchTimeout,
)  # fmt: skip


def ran(*results):
    """A stand-in for `launch`: what each of its calls returns; the last one for ever."""
    turn = count()
    return lambda *args, **options: results[min(next(turn), len(results) - 1)]


def hung(running, missing):
    """A stand-in for `launch`: ranks hang in a call that others never entered."""
    rank = SimpleNamespace(waiting_in="all_reduce #2")
    case = SimpleNamespace(running=running, ranks=[rank] * 3, missing=lambda call: missing)

    def launch(*args, **options):
        raise LaunchTimeout(1, case)

    return launch


def samples(first, later):
    return [[first] + [later] * 29] * 2


def summary(seconds):
    return timing.summarize([seconds])


def passport(alpha=5e-5, beta=5e-10, copy=4e10):
    return Passport(2, alpha, beta, copy, 1e-4, 2e-4)


def messages(change=lambda nbytes, seconds: seconds):
    return {nbytes: change(nbytes, seconds) for nbytes, seconds in SECONDS.items()}


def pings(change=lambda nbytes, seconds: seconds):
    found = messages(change).items()
    return [
        Record("x", "ping-pong", {}, [[t]], Tier.MEASURED, HERE, "send", nbytes)
        for nbytes, t in found
    ]


def reduced(nbytes, seconds):
    kept = {"collective": "all_reduce", "nbytes": nbytes}
    return Record("x", "n=2", {}, [[seconds]] * 2, Tier.MEASURED, HERE, **kept)


class Hang(Exception):
    """A stand-in for `LaunchTimeout`: ranks 0 and 2 still run, `missing` never came."""

    def __init__(self, *missing):
        self.case = SimpleNamespace(
            ranks=[SimpleNamespace(waiting_in="all_reduce #1")],
            running=[0, 2],
            missing=lambda call: list(missing),
        )


def hanging(*missing):
    def launch(*args, **options):
        raise Hang(*missing)

    return {"LaunchTimeout": Hang, "launch": launch}


MINE = {"mine": passport()}
HONEST = {"large": reduced(2**22, 4e-3), "started": [[2e-5]] * 2}
CLAIMS = [
    (
        "five-reconcile",
        {"answers": {"a": 1, "b": 1e-5}},
        {"answers": {"a": 1, "b": 0.9}},
        "the five",
    ),
    ("hanging-run", hanging(1), hanging(0, 1), "a call that rank 1 never entered"),
    (
        "trap-warmup-run",
        {"launch": ran(samples(5, 1))},
        {"launch": ran(samples(1, 1))},
        "the first call is slower",
    ),
    (
        "trap-async-run",
        {"launch": ran([[1e-5]], [[1e-1]])},
        {"launch": ran([[9e-2]], [[1e-1]])},
        "less than a fifth",
    ),
    (
        "trap-launch-run",
        {"launch": lambda *a, **k: time.sleep(0.01), "later": summary(1e-4)},
        {"launch": ran(None), "later": summary(10.0)},
        "longer than three calls",
    ),
    (
        "trap-group-run",
        {"launch": ran([[1e-4]]), "by_fay": summary(1e-2)},
        {"launch": ran([[1e-4]]), "by_fay": summary(1e-4)},
        "making the group is most of it",
    ),
    (
        "trap-slowest-run",
        {"of_gus": [[1.0], [1.0], [1.0], [2.0]]},
        {"of_gus": [[1.0]] * 4},
        "rank 0 is done long before",
    ),
    (
        "hanging-run",
        {"launch": hung([0, 2], [1])},
        {"launch": hung([0, 2], [])},
        "in a call that rank 1 never entered",
    ),
    (
        "ping-pong-check",
        {**MINE, "records": pings()},
        {**MINE, "records": pings(lambda n, t: t if n < 2**10 else 10 * t)},
        "alpha rules",
    ),
    (
        "ping-pong-check",
        {**MINE, "records": pings()},
        {**MINE, "records": pings(lambda n, t: min(t, 5e-3))},
        "beta rules",
    ),
    (
        "fit-check",
        {**MINE, "records": [], "messages": messages()},
        {**MINE, "records": [], "messages": messages(lambda n, t: t if n < 2**20 else t / 9)},
        "within a factor of 4",
    ),
    (
        "busbw-check",
        {"sweep": [reduced(2**10, 1e-4)] * 2 + [reduced(2**22, 4e-3)]},
        {"sweep": [reduced(2**10, 1e-6)] * 2 + [reduced(2**22, 4e-3)]},
        "size decides",
    ),
    (
        "doubt-run",
        {**MINE, **HONEST},
        {**MINE, **HONEST, "started": [[1e-1]] * 2},
        "above the bound",
    ),
    (
        "doubt-run",
        {**MINE, **HONEST},
        {**MINE, **HONEST, "large": reduced(2**30, 1e-3)},
        "an honest one is below",
    ),
]


@mark.parametrize(("name", "true", "false", "said"), CLAIMS, ids=lambda part: str(part)[:40])
def test_a_claim_holds_only_for_figures_that_bear_it_out(name, true, false, said):
    LESSON.hold(name, true=true, false=false, said=said)


def test_every_claim_of_the_lesson_is_tried():
    assert {*LESSON.claiming()} == {name for name, *_ in CLAIMS}


def test_the_line_of_these_tests_is_a_line():
    assert AlphaBeta.fit(list(SECONDS), list(SECONDS.values())).alpha > 0
