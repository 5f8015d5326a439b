"""Right and wrong answers to lesson 04's exercises; each wrong one gets a message of its own."""

import numpy as np
import pytest
import torch
import torch.distributed as dist

from course.lessons.p2p_topology import checks, flows, topology
from course.lessons.p2p_topology.topology import Topology
from tests.course.lessons.refusals import refusal

pytestmark = pytest.mark.slow

LARGE = [181.5e6, 181.5e6, 37e6]
RATES = {"NV1": 10e9, "PHB": 8e9, "PXB": 13e9, "SYS": 6e9}
MACHINE = Topology.parse(topology.MACHINE, RATES)
PAIRS = [(0, 4), (1, 6), (5, 2), (3, 7)]
BY_NUMBER = [(0, 1), (2, 3), (4, 5), (6, 7)]


def design(small, large=LARGE):
    return {"4 MB": small, "400 MB": large}


RIGHT = [
    (checks.check_shares, design(np.array([0, 0, 4e6]), torch.tensor(LARGE))),  # not exact
    (checks.check_reading, ({frozenset(pair) for pair in PAIRS}, "off")),
    (checks.check_reading, (torch.tensor(PAIRS), 0)),
    (checks.check_reading, (*PAIRS, False)),
    (checks.check_best_ways, ((3, 7.5), (1, 4))),
    (checks.check_contention, {"P": 4, "Q": 11, "R": 10}),
]


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_right_answers_in_other_forms(check, answer):
    check(lambda: answer)


WRONG = [
    (checks.check_best_ways, (3, 8.0, 1, 4.0), "that is the other relay"),
    (checks.check_best_ways, (3, 7.5e-3, 1, 4e-3), "in another unit"),
    (checks.check_shares, design([1.8e6, 1.8e6, 0.4e6]), "of no use"),
    (checks.check_shares, design([0, 0, 4e6], [400e6 / 3] * 3), "what could it have carried"),
    (checks.check_shares, design([0, 0, 4], [181.5, 181.5, 37]), "this is MB"),
    (checks.check_reading, (PAIRS, True), "nearly alike"),
    (checks.check_reading, (BY_NUMBER, 0), "0 and 1 have an ordinary rate"),
    (checks.check_reading, (PAIRS[:3], False), "some are missing"),
    (checks.check_contention, (2, 6, 5), "its time alone"),
    (checks.check_contention, (4, 12, 10), "half a link to the end"),
]


@pytest.mark.parametrize(("check", "answer", "words"), WRONG)
def test_wrong_figures(check, answer, words):
    assert words in refusal(check, lambda: answer)


def test_the_figures_of_4_1_and_4_5_follow_from_the_links():
    assert 120e6 / MACHINE.bandwidth(0, 2) == 15e-3  # no way without a relay competes
    hops = {gpu: [MACHINE.bandwidth(0, gpu), MACHINE.bandwidth(gpu, 2)] for gpu in (1, 3)}
    for chunk, ms in ((120e6, {1: 8, 3: 7.5}), (1, {1: 4, 3: 6})):
        times = {gpu: flows.relay_time(way, nbytes=120e6, chunk=chunk) for gpu, way in hops.items()}
        assert times == pytest.approx({gpu: time / 1e3 for gpu, time in ms.items()})
    ways, sizes = [[0, 1], [0, 1, 2], [1, 2]], [60e6, 180e6, 150e6]
    ends = flows.finish_times(MACHINE.bandwidth, ways, nbytes=sizes)
    assert ends == pytest.approx([4e-3, 11e-3, 10e-3])


@pytest.mark.parametrize("name", checks.DESIGNS)
def test_no_other_shares_are_earlier(name):
    parts = [(a, b, 40 - a - b) for a in range(41) for b in range(41 - a)]
    times = [checks.finish([checks.DESIGNS[name] * n / 40 for n in part]) for part in parts]
    assert checks.EARLIEST[name] <= min(times) * (1 + 1e-9)
    assert min(times) < 1.05 * checks.EARLIEST[name]


def test_the_printed_matrix_holds_what_is_asked(capsys):
    topology.print_matrix()
    lines = capsys.readouterr().out.splitlines()[2:]
    rows = [[float(word.replace("-", "99")) for word in line.split()[1:]] for line in lines]
    lowest = [{i, row.index(min(row))} for i, row in enumerate(rows)]
    assert len(lowest) == 8 and all(set(pair) in lowest for pair in PAIRS)


# Exercise 4.2


@pytest.fixture(autouse=True)
def without_hosts(monkeypatch):
    """What is wrong is found without a look at the clock."""
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")


def by_batches(tensor, way, chunk, length):
    """Right: a chunk is sent while the next is received, both begun together."""
    if dist.get_rank() not in way:
        return
    here, pieces = way.index(dist.get_rank()), []
    for number, start in enumerate(range(0, length, chunk)):
        place = number % 2 * chunk if 0 < here < len(way) - 1 else start
        pieces.append(tensor[place:][: min(chunk, length - start)])
    for number in range(len(pieces) + 1):
        works = []
        if number < len(pieces) and here > 0:
            works.append(dist.irecv(pieces[number], way[here - 1]))
        if number > 0 and here < len(way) - 1:
            works.append(dist.isend(pieces[number - 1], way[here + 1]))
        for work in works:
            work.wait()


def test_without_hosts_all_but_the_speed_is_judged(capsys):
    checks.check_relay(by_batches)
    assert "the speed was not judged" in capsys.readouterr().out


def a_padded_tensor(tensor, way, chunk, length):
    """Whole chunks only: the first rank sends zeros behind its tensor."""
    if dist.get_rank() == way[0]:
        tensor = torch.cat([tensor, tensor.new_zeros(chunk)])
        length = -(-length // chunk) * chunk
    by_batches(tensor, way, chunk, length)


def without_the_rest(tensor, way, chunk, length):
    by_batches(tensor, way, chunk, length // chunk * chunk)


def with_a_copy(tensor, way, chunk, length):
    room = tensor.clone()
    by_batches(tensor, way, chunk, length)
    del room


def handed_on(tensor, way, chunk, length):
    """Each chunk as a relay receives it, and the rank that it goes to next; None at the end."""
    rank = dist.get_rank()
    here = way.index(rank)
    for number, start in enumerate(range(0, length, chunk)):
        place = number % 2 * chunk if rank in way[1:-1] else start
        piece = tensor[place : place + min(chunk, length - start)]
        if here > 0:
            dist.recv(piece, way[here - 1])
        yield piece, way[here + 1] if here < len(way) - 1 else None


def never_waits_for_a_slot(tensor, way, chunk, length):
    """A slot is received into while it may still be on its way out; all is waited for at last."""
    if dist.get_rank() not in way:
        return
    pieces = handed_on(tensor, way, chunk, length)
    leaving = [dist.isend(piece, after) for piece, after in pieces if after is not None]
    for work in leaving:
        work.wait()


def hops_take_turns(tensor, way, chunk, length):
    if dist.get_rank() not in way:
        return
    for piece, after in handed_on(tensor, way, chunk, length):
        if after is not None:
            dist.send(piece, after)


WRONG_RELAYS = [
    (a_padded_tensor, "7 elements in chunks of 2 along [3, 1, 4, 0, 2]"),
    (without_the_rest, "the last chunk may be shorter"),
    (never_waits_for_a_slot, "before you write into its buffer"),
    (hops_take_turns, "the hops take turns"),
    (with_a_copy, "a relay has its two slots"),
]


@pytest.mark.parametrize(("answer", "words"), WRONG_RELAYS)
def test_wrong_relays(answer, words):
    assert words in refusal(checks.check_relay, answer)
