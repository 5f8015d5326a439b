"""Right and wrong answers to lesson 04's exercises; each wrong one gets a message of its own."""

import math
import re

import numpy as np
import pytest
import torch

from course.lessons.p2p_topology import checks, flows
from course.lessons.p2p_topology.topology import Topology
from tests.course.lessons.p2p_topology import answers
from tests.course.lessons.refusals import refusal

pytestmark = pytest.mark.slow


def caught(check, answer, words):
    assert re.search(words, refusal(check, answer))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((1, 8.0, 1, 4.0), "add their times. That is the winner in small"),
        ((3, 7.5, 3, 6.0), "in chunks they overlap"),
        ((3, 8.0, 1, 4.0), "that is the other relay"),
        ((3, 1.5, 1, 4.0), "the first hop alone"),
        ((3, 7.5, 1, 8.0), "in small chunks the hops overlap"),
        ((3, 7.5, 1, 1.5), "the slower of the two rates alone decides"),
        ((2, 7.5, 1, 4.0), "write down the time of both relays"),
        ((3, 7.5e-3, 1, 4e-3), "in another unit"),
        ((), "4 figures are asked"),
        ("3, 7.5, 1, 4", "the ms in|relay"),
    ],
)
def test_wrong_ways(answer, words):
    caught(checks.check_best_ways, lambda: answer, words)


def test_the_right_ways(capsys):
    machine = Topology.parse(checks.MACHINE, checks.MACHINE_RATES)
    assert [way.gpus[1] for way in flows.relays(machine, 0, 2)] == [1, 3]
    assert 120e6 / machine.bandwidth(0, 2) == 15e-3  # no way without a relay competes
    pairs = ((3, 7.5), (1, 4.0))
    for answer in ((3, 7.5, 1, 4.0), [3.0, 7.5, 1, 4], np.array([3, 7.5, 1, 4]), pairs):
        checks.check_best_ways(lambda answer=answer: answer)
    assert "4.1 passed" in capsys.readouterr().out


LARGE = [181.5e6, 181.5e6, 37e6]
BY_RATE = [400e6 * rate / sum(checks.WAY_RATES) for rate in checks.WAY_RATES]


@pytest.mark.parametrize(
    ("small", "large", "words"),
    [
        ([1.8e6, 1.8e6, 0.4e6], LARGE, "of no use"),
        ([0, 0, 4e6], [400e6 / 3] * 3, "what could it have carried"),
        ([0, 0, 4e6], [150e6, 150e6, 37e6], "all bytes must go"),
        ([0, 0, 4], [181.5, 181.5, 37], "that is MB"),
        ([0, 0, 4e6], BY_RATE, "in proportion to the rates"),
        ([-0.2e6, -0.2e6, 4.4e6], LARGE, "would have to end before it starts"),
        ([math.nan] * 3, LARGE, "by each of the three ways"),
        (4e6, LARGE, "by each of the three ways"),
    ],
)
def test_wrong_shares(small, large, words):
    caught(checks.check_shares, {"4 MB": small, "400 MB": large}, words)


def test_shares_by_other_sizes_name_the_keys():
    caught(checks.check_shares, {4e6: [0, 0, 4e6], 4e8: LARGE}, "'4 MB', '400 MB'")


def test_right_shares_need_not_be_exact(capsys):
    small = [0, 0, 4e6]
    for kind in (list, tuple, np.array, torch.tensor):
        checks.check_shares(lambda kind=kind: {"4 MB": kind(small), "400 MB": kind(LARGE)})
    assert "4.3 passed" in capsys.readouterr().out


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


PAIRS = [(0, 4), (1, 6), (5, 2), (3, 7)]


def test_a_matrix_read(capsys):
    checks.check_reading(PAIRS, False)
    for pairs in (PAIRS, {frozenset(pair) for pair in PAIRS}, np.array(PAIRS), torch.tensor(PAIRS),
                  dict(PAIRS)):  # fmt: skip
        for p2p in (False, "off", "False", 0, np.False_):
            checks.check_reading(lambda pairs=pairs, p2p=p2p: (pairs, p2p))
    assert "4.4 passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("pairs", "p2p", "words"),
    [
        (PAIRS, True, "nearly alike"),
        (PAIRS, "perhaps", "`True` is on"),
        ([(0, 1), (2, 3), (4, 5), (6, 7)], False, "0 and 1 have an ordinary rate"),
        ([(0, 4), (1, 6), (2, 5)], False, "some are missing"),
        ([(0, 4), (1, 6), (2, 5), (2, 3)], False, "GPU 2 stands in two pairs"),
        ([*PAIRS, (4, 0)], False, "twice"),
        ([(0, 4, 1), (2, 5), (3, 7), (6, 6)], False, "a pair is two GPUs"),
        ([(0, 8)], False, "from 0 to 7"),
        ([0, 4, 1, 6], False, "for instance"),
    ],
)
def test_a_matrix_read_wrongly(pairs, p2p, words):
    caught(checks.check_reading, lambda: (pairs, p2p), words)


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((2, 6, 5), "its time alone"),
        ((4, 12, 10), "half a link from beginning to end"),
        ((4, 10, 11), "Q's end"),
        ((4, 8, 10), "share anew"),
        ((0.004, 0.011, 0.010), "in another unit"),
        ((4, 11), "3 figures are asked"),
    ],
)
def test_wrong_ends(ends, words):
    caught(checks.check_contention, lambda: ends, words)


def test_right_ends(capsys):
    checks.check_contention(lambda: np.array([4.0, 11.0, 10.0]))
    checks.check_contention(lambda: {"P": 4, "R": 10, "Q": 11})
    assert "4.5 passed" in capsys.readouterr().out


SIZES = {
    "the last chunk whole": (answers.sends_the_last_chunk_whole, "the last chunk is sent whole"),
    "a chunk left out": (answers.leaves_a_chunk_out, "a chunk was left out|a message that nobody"),
    "ways of three only": (answers.ways_of_three_only, r"along \[[0-9, ]+\]"),
}


@pytest.mark.parametrize(("answer", "words"), SIZES.values(), ids=SIZES)
@pytest.mark.usefixtures("impatient")
def test_what_goes_wrong_on_the_way_names_way_and_chunks(answer, words, monkeypatch):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")
    told = refusal(checks.check_relay, answer)
    assert re.search(words, told)
    assert re.search(r"\d+ elements in chunks of \d+ along \[", told)


def test_the_printed_matrix_holds_what_is_asked(capsys):
    checks.print_matrix()
    lines = capsys.readouterr().out.splitlines()[2:]
    rows = [[float(word.replace("-", "99")) for word in line.split()[1:]] for line in lines]
    lowest = {frozenset((i, row.index(min(row)))) for i, row in enumerate(rows)}
    assert len(rows) == 8
    assert lowest == set(map(frozenset, PAIRS))


# Exercise 4.2


def test_without_hosts_all_but_the_speed_is_judged(capsys, monkeypatch):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")
    checks.check_relay(answers.right_plain)
    assert "the speed was not judged" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (answers.skips_a_hop, "a hop was skipped"),
        (answers.forgets_the_rest, "the last one may be shorter"),
        (answers.whole_tensor, "by itself"),
        (answers.in_turns, "the hops take turns"),
        (answers.waits_for_the_end, "or a chunk confirmed"),
        (answers.reuses_a_slot, "before you write into its buffer"),
        (answers.hands_on_too_early, "What has not arrived yet is used"),
        (answers.waits_twice, "never returns"),
        (answers.drops_a_handle, "handle of an isend or irecv was dropped"),
        (answers.slots_swapped, "in the wrong place"),
        (answers.everybody_takes_part, "without touching their tensor"),
        (answers.a_copy_to_a_bystander, "nothing to others|not on the way"),
        (answers.by_broadcast, r"a call of dist\.broadcast"),
        (answers.half_precision, "own dtype"),
        (answers.resizes, "a relay has its two slots"),
        (answers.in_numpy, "a relay has its two slots"),
        (answers.empties_the_first, "what it has is still needed"),
        (answers.never_sends, "a message that nobody sends"),
        (answers.labkits_own, "labkit's carry"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.usefixtures("impatient")
def test_wrong_relays(answer, words, monkeypatch):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")  # found without a look at the clock
    caught(checks.check_relay, answer, words)
