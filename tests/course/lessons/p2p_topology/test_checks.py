"""Right and wrong answers to lesson 04's exercises; each wrong one gets a message of its own."""

import math
import re
from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist

from course.lessons.p2p_topology import checks, flows
from course.lessons.p2p_topology.checks import (
    check_best_ways,
    check_contention,
    check_reading,
    check_relay,
    check_shares,
)
from course.lessons.p2p_topology.topology import Topology
from tests.course.lessons.p2p_topology import answers
from tests.course.lessons.refusals import changed, refusal, solution

pytestmark = pytest.mark.slow


LARGE = [181.5e6, 181.5e6, 37e6]
BY_RATE = [400e6 * rate / sum(checks.WAY_RATES) for rate in checks.WAY_RATES]
PAIRS = [(0, 4), (1, 6), (5, 2), (3, 7)]


def design(small, large=LARGE):
    return {"4 MB": small, "400 MB": large}


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (check_best_ways, np.array([3.0, 7.5, 1, 4])),
        (check_best_ways, ((3, 7.5), (1, 4.0))),
        (check_shares, design(np.array([0, 0, 4e6]), torch.tensor(LARGE))),  # not exact
        (check_reading, ({frozenset(pair) for pair in PAIRS}, "off")),
        (check_reading, (np.array(PAIRS), np.False_)),
        (check_reading, (torch.tensor(PAIRS), 0)),
        (check_reading, (dict(PAIRS), "False")),
        (check_contention, np.array([4.0, 11.0, 10.0])),
        (check_contention, {"P": 4, "R": 10, "Q": 11}),
    ],
)
def test_right_answers_in_other_forms(check, answer):
    check(lambda: answer)


@pytest.mark.parametrize(
    ("check", "answer", "words"),
    [
        (check_best_ways, (1, 8.0, 1, 4.0), "add their times. That is the winner in small"),
        (check_best_ways, (3, 7.5, 3, 6.0), "in chunks they overlap"),
        (check_best_ways, (3, 8.0, 1, 4.0), "that is the other relay"),
        (check_best_ways, (3, 1.5, 1, 4.0), "the first hop alone"),
        (check_best_ways, (3, 7.5, 1, 8.0), "in small chunks the hops overlap"),
        (check_best_ways, (3, 7.5, 1, 1.5), "the slower of the two rates alone decides"),
        (check_best_ways, (2, 7.5, 1, 4.0), "write down the time of both relays"),
        (check_best_ways, (3, 7.5e-3, 1, 4e-3), "in another unit"),
        (check_shares, design([1.8e6, 1.8e6, 0.4e6]), "of no use"),
        (check_shares, design([0, 0, 4e6], [400e6 / 3] * 3), "what could it have carried"),
        (check_shares, design([0, 0, 4e6], [150e6, 150e6, 37e6]), "all bytes must go"),
        (check_shares, design([0, 0, 4], [181.5, 181.5, 37]), "that is MB"),
        (check_shares, design([0, 0, 4e6], BY_RATE), "in proportion to the rates"),
        (check_shares, design([-0.2e6, -0.2e6, 4.4e6]), "would have to end before it starts"),
        (check_shares, design([math.nan] * 3), "by each of the three ways"),
        (check_shares, design(4e6), "by each of the three ways"),
        (check_shares, {4e6: [0, 0, 4e6], 4e8: LARGE}, "'4 MB', '400 MB'"),
        (check_reading, (PAIRS, True), "nearly alike"),
        (check_reading, (PAIRS, "perhaps"), "`True` is on"),
        (check_reading, ([(0, 1), (2, 3), (4, 5), (6, 7)], 0), "0 and 1 have an ordinary rate"),
        (check_reading, ([(0, 4), (1, 6), (2, 5)], False), "some are missing"),
        (check_reading, ([(0, 4), (1, 6), (2, 5), (2, 3)], 0), "GPU 2 stands in two pairs"),
        (check_reading, ([*PAIRS, (4, 0)], False), "twice"),
        (check_reading, ([(0, 4, 1), (2, 5), (3, 7), (6, 6)], 0), "a pair is two GPUs"),
        (check_reading, ([0, 4, 1, 6], False), "for instance"),
        (check_contention, (2, 6, 5), "its time alone"),
        (check_contention, (4, 12, 10), "half a link from beginning to end"),
        (check_contention, (4, 10, 11), "Q's end"),
        (check_contention, (4, 8, 10), "share anew"),
    ],
)
def test_wrong_figures(check, answer, words):
    assert words in refusal(check, lambda: answer)


def test_the_machine_is_as_4_1_says():
    machine = Topology.parse(checks.MACHINE, checks.MACHINE_RATES)
    assert [way.gpus[1] for way in flows.relays(machine, 0, 2)] == [1, 3]
    assert 120e6 / machine.bandwidth(0, 2) == 15e-3  # no way without a relay competes


def test_no_other_shares_are_earlier():
    steps = [n / 40 for n in range(41)]
    for nbytes in checks.DESIGNS.values():
        tried = [
            checks.finish([nbytes * a, nbytes * b, nbytes * (1 - a - b)])
            for a in steps
            for b in steps
            if a + b <= 1
        ]
        assert checks.earliest(nbytes) <= min(tried) * (1 + 1e-9)
        assert min(tried) < 1.05 * checks.earliest(nbytes)


def test_the_printed_matrix_holds_what_is_asked(capsys):
    checks.print_matrix()
    lines = capsys.readouterr().out.splitlines()[2:]
    rows = [[float(word.replace("-", "99")) for word in line.split()[1:]] for line in lines]
    lowest = {frozenset((i, row.index(min(row)))) for i, row in enumerate(rows)}
    assert len(rows) == 8
    assert lowest == set(map(frozenset, PAIRS))


# Exercise 4.2

RELAY = solution("04_p2p_topology", "ex-4-2-answer")
relay = partial(changed, RELAY, dist=dist, torch=torch, np=np)

BEGIN, END = "leaving = []\n", "        handle.wait()\n"
PIECES, PLACE = "range(0, length, chunk)", "number % 2 * chunk if has_slots else start"
RECEIVE, SEND = "dist.recv(piece, way[here - 1])", "dist.isend(piece, way[here + 1])"
REUSE = "leaving.pop(0).wait()"
PADDED = "torch.cat([tensor, tensor.new_zeros(chunk)]), -(-length // chunk) * chunk"


@pytest.fixture
def without_hosts(monkeypatch):
    """What is wrong is found without a look at the clock."""
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")


@pytest.mark.usefixtures("without_hosts")
def test_without_hosts_all_but_the_speed_is_judged(capsys):
    check_relay(relay())
    assert "the speed was not judged" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            relay(BEGIN, f"{BEGIN}    if here == 0:\n        tensor, length = {PADDED}\n"),
            "the last chunk is sent whole",
        ),
        (
            relay(PIECES, f"[k for k in {PIECES} if here or k != chunk]"),
            "a chunk was left out|a message that nobody",
        ),
        (relay("    rank = ", "    way = way[:3]\n    rank = "), r"along \[[0-9, ]+\]"),
    ],
)
@pytest.mark.usefixtures("without_hosts")
def test_what_goes_wrong_on_the_way_names_way_and_chunks(answer, words):
    told = refusal(check_relay, answer)
    assert re.search(words, told)
    assert re.search(r"\d+ elements in chunks of \d+ along \[", told)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            relay("    rank = ", "    way = [*dict.fromkeys((*way[:2], way[-1]))]\n    rank = "),
            "a hop was skipped",
        ),
        (relay(PIECES, "range(0, length // chunk * chunk, chunk)"), "the last one may be shorter"),
        (
            relay(REUSE, "pass", f"leaving.append({SEND})", SEND.replace("isend", "send")),
            "the hops take turns",
        ),
        (relay(REUSE, "pass"), "before you write into its buffer"),
        (
            relay(RECEIVE, "leaving.append(dist.irecv(piece, way[here - 1]))"),
            "What has not arrived yet is used",
        ),
        (relay(REUSE, "leaving[number - 2].wait()"), "never returns"),
        (relay("in leaving:", "in ():"), "handle of an isend or irecv was dropped"),
        (
            relay(END, f"{END}    if rank == way[-1]:\n        tensor.copy_(tensor.roll(chunk))\n"),
            "in the wrong place",
        ),
        (relay("        return\n", "        return tensor.zero_()\n"), "without touching their"),
        (relay(END, f"{END}    if here == 0:\n        tensor.zero_()\n"), "is still needed"),
        (
            relay(PLACE, "start", BEGIN, f"{BEGIN}    if has_slots: tensor.resize_(length)\n"),
            "a relay has its two slots",
        ),
        (answers.labkits_own, "labkit's carry"),
    ],
)
@pytest.mark.usefixtures("without_hosts")
def test_wrong_relays(answer, words):
    assert words in refusal(check_relay, answer)
