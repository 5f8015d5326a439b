"""What is run for real: each case is decided and mended, and each suspect is guilty somewhere.

In its world the case's own fault is mended, and something else is wrong with the program. The
suspect's reading must then be above its limit in every run, and no other one's in any.
"""

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pytest
import torch
import torch.distributed as dist

from course.lessons.casebook import programs
from course.lessons.casebook.cases import CASES, draw_final, late_rank, score
from course.lessons.casebook.ward import ROUNDS, FixFailed, NeverEnds, Ward, play
from labkit.fabric.fabric import Fabric
from tests.fabric.test_fabric import needs_hosts

pytestmark = [pytest.mark.slow, pytest.mark.timed, pytest.mark.usefixtures("book")]

NAMES = [
    pytest.param(name, marks=needs_hosts if case.fabric else ()) for name, case in CASES.items()
]


# The worlds


def sums(elements, times=1):
    """Sum tensors of so many elements before what the phase does."""
    for _ in range(times):
        dist.all_reduce(torch.zeros(elements))


def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def sleep_on(rank, seconds):
    if dist.get_rank() == rank:
        time.sleep(seconds)


def send_to_all():
    """Say something to every other rank, as they do."""
    rank, n = dist.get_rank(), dist.get_world_size()
    for k in range(1, n):
        sent = dist.isend(torch.zeros(100), (rank + k) % n)
        dist.recv(torch.empty(100), (rank - k) % n)
        sent.wait()


def to_neighbour(elements):
    """Send to the next rank of the same host."""
    rank = dist.get_rank()
    (dist.recv if rank % 2 else dist.send)(torch.zeros(elements), rank ^ 1)


def nothing():
    """The phase is as it was."""


class Change(NamedTuple):
    """What a world does besides, in a phase of the program."""

    before: Callable[[], None] = nothing
    inside: Callable[[], None] = nothing
    after: Callable[[], None] = nothing
    """Still within the phase."""


def changed(program, changes, constants):
    """Return the program with changes of its phases, by their names, and of constants."""

    def run(phase, fix):
        @contextlib.contextmanager
        def other(name):
            change = changes.get(name, Change())
            change.before()
            with phase(name):
                change.inside()
                yield
                change.after()

        for name, value in constants.items():  # of this rank's process
            setattr(programs, name, value)
        return program(other, fix)

    return run


def world(fabric=None, constants=None, **changes):
    """What differs from a mended case: its links, constants, and phases."""
    return fabric, constants or {}, changes


WORLDS = {
    "first-sum": {
        "bytes": world(all_reduce=Change(inside=partial(sums, 500_000))),
        "cpu": world(connect=Change(inside=partial(burn, 0.1))),
        "mesh": world(all_reduce=Change(inside=send_to_all)),
    },
    "stretches": {
        "slow": world(all_reduce=Change(before=partial(sleep_on, 1, 0.02))),
        "bytes": world(all_reduce=Change(inside=partial(sums, 100_000))),
        "calls": world(all_reduce=Change(inside=partial(sums, 1, 10))),
    },
    "averages": {
        "wire": world(metrics=Change(inside=partial(sums, 1_000_000))),
        "late": world(metrics=Change(before=partial(sleep_on, 3, 0.2))),
        "calls": world(metrics=Change(inside=partial(sums, 1, 12))),
    },
    "idle-gpus": {
        "bytes": world(all_reduce=Change(inside=partial(sums, 1_000_000))),
        "late": world(compute=Change(inside=lambda: burn(0.02 * dist.get_rank()))),
        "calls": world(all_reduce=Change(inside=partial(sums, 1, 8))),
    },
    "two-nodes": {
        "late": world(backward=Change(before=partial(sleep_on, 1, 0.2))),
        "link": world(fabric=partial(Fabric.star, hosts=2, rate="4mbit")),
        "cpu": world(forward=Change(inside=partial(burn, 0.1))),
    },
    "228-bytes": {
        "longest": world(
            compute=Change(before=lambda: dist.get_rank() == 3 or time.sleep(0.03)),
            all_reduce=Change(partial(sleep_on, 3, 0.003), after=partial(sleep_on, 3, 0.03)),
        ),
        "bytes": world(all_reduce=Change(inside=partial(sums, 200_000))),
        "cpu": world(all_reduce=Change(inside=partial(burn, 0.1))),
    },
    "alltoall": {
        "size": world(alltoall=Change(inside=partial(sums, 900_000))),
        "cpu": world(alltoall=Change(inside=partial(burn, 0.2))),
        "late": world(alltoall=Change(before=partial(sleep_on, 2, 0.2))),
    },
    "above-the-wire": {
        "wire": world(fabric=partial(Fabric.star, hosts=2, rate="800mbit", ranks_per_host=4)),
        "fewer": world(constants={"ELEMENTS": 125_000}),
        "home": world(timed=Change(inside=partial(to_neighbour, 1_000_000))),
    },
}


def states(case):
    """What every suspect's own reading says of the mended case, in words of the board."""
    found = {}
    for key, suspect in case.suspects.items():
        runs = [play(case, case.cure, instrument=suspect.instrument) for _ in range(ROUNDS)]
        values = [suspect.read(seen) for seen in runs]
        above = sum(value > suspect.limit for value in values)
        found[key] = {ROUNDS: "stands", 0: "fell"}.get(above, "not judged"), values
    return found


def test_every_suspect_has_its_world():
    assert {name: {*worlds} for name, worlds in WORLDS.items()} == {
        name: {*case.suspects} - {case.culprit} for name, case in CASES.items()
    }


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "guilty"),
    [
        pytest.param(name, key, marks=needs_hosts if CASES[name].fabric else ())
        for name, worlds in WORLDS.items()
        for key in worlds
    ],
)
def test_a_suspect_is_found_where_it_is_guilty(name, guilty):
    case = CASES[name]
    fabric, constants, changes = WORLDS[name][guilty]
    program = changed(case.program, changes, constants)
    found = states(replace(case, program=program, fabric=fabric or case.fabric))
    assert {key: state for key, (state, _) in found.items()} == {
        key: "stands" if key == guilty else "fell" for key in case.suspects
    }, found


# The cases


def decided(ward):
    """Diagnose every suspect once; return what became of each, by its key."""
    outcomes = {}
    for letter in ward.suspects:
        ward.diagnose(letter, "to see what becomes of it")
        outcomes[ward.tries[-1].suspect] = ward.tries[-1].outcome
    return outcomes


def expected(case):
    return {key: "stands" if key == case.culprit else "fell" for key in case.suspects}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_a_case_is_decided_by_its_instruments_and_cured(name):
    case = CASES[name]
    assert case.culprit in case.suspects and len(case.suspects) >= 3
    ward = Ward(case)
    assert decided(ward) == expected(case) and ward.solved
    table = ward.treat(case.cure)
    assert table.title.startswith("It is mended, in 3 of 3 rounds"), table


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_an_unchanged_program_is_refused(name):
    ward = Ward(CASES[name], solved=True)
    table = ward.treat(CASES[name].fault)
    assert table.title.startswith("Not mended: what was diagnosed is still there"), table
    assert ward.gain == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("threads", [2, 3])
def test_idle_gpus_is_not_mended_by_more_threads_however_fast_it_was(threads, monkeypatch):
    """The time alone accepted both: threads that oversubscribe are slow in some runs only."""
    ward = Ward(CASES["idle-gpus"], solved=True)
    cost = iter([100.0, 1.0] * 3)
    monkeypatch.setattr(ward, "case", replace(ward.case, cost=lambda seen: next(cost)))
    table = ward.treat(lambda ranks: threads * programs.cpus())
    assert "still there, though it took less time" in table.title and ward.gain == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [1, 2])
def test_the_final_draws_three_faults_and_instruments_tell_them(seed):
    random.seed(seed)
    wards = draw_final()
    assert len({ward.case.culprit for ward in wards}) == 3
    for ward in wards:
        case = ward.case
        assert decided(Ward(case)) == expected(case)
        assert ward.diagnose(ward.letter(case.culprit), "seen").right
        if case.culprit == "late":
            assert late_rank(ward, case.fault["rank"])
    told = "3 of 3 at the first diagnosis, with 0 instruments. 3 without any instrument: guessed."
    assert score(wards) == told


@pytest.mark.parametrize(
    ("name", "fix", "said"),
    [
        ("first-sum", lambda peers: None, "ended in TypeError"),
        ("averages", None, "measures a function, not None"),
        ("228-bytes", lambda lengths, ranks: [], "ended in IndexError"),
    ],
)
def test_what_cannot_be_used_is_answered_in_one_line(name, fix, said):
    with pytest.raises(FixFailed, match=said) as caught:
        Ward(CASES[name], solved=True).treat(fix)
    assert CASES[name].fix in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value._render_traceback_() == [str(caught.value)]


def test_an_order_that_connects_to_nobody_is_told_by_its_results():
    table = Ward(CASES["first-sum"], solved=True).treat(lambda peers: [])
    assert "Rank 0 of 'connected to': [], with the fault [1, 11]." in table.title


def test_a_cure_that_never_ends_says_so_in_five_seconds():
    ward = Ward(CASES["first-sum"], solved=True)
    play(ward.case)  # what starts slowly has started
    begin = time.monotonic()
    with pytest.raises(NeverEnds, match=r"never ends: a circle.* rank 0 for 1, rank 1 for 2"):
        ward.treat(lambda peers: list(reversed(peers)))
    assert time.monotonic() - begin < 9  # with the sick run before it
