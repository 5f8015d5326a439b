"""Right and wrong answers to lesson 04's exercises; each wrong one gets a message of its own."""

import math
import re

import pytest

from course import notebooks
from course.catalogue import ROOT
from course.lessons.p2p_topology import checks, flows
from course.lessons.p2p_topology.topology import Topology
from tests.course.lessons.p2p_topology import answers
from tests.course.lessons.refusals import refusal
from tests.fabric.test_fabric import needs_hosts

SOLUTIONS = notebooks.read(ROOT / "solutions" / "04_p2p_topology.ipynb")


def par_of(number):
    """The par as the statement words it."""
    statement = next(c.source for c in SOLUTIONS.cells if c.id == f"ex-{number.replace('.', '-')}")
    return re.search(r"\*\*Par:\*\* (.*?) · ", statement)[1]


def caught(check, answer, words):
    assert re.search(words, refusal(check, answer))


@pytest.mark.parametrize(("letter", "words"), [("a", "slowest hop"), ("b", "NV2 is two")])
def test_wrong_ways(letter, words):
    caught(checks.check_best_way, lambda: letter, words)


def test_the_right_way(capsys):
    rates = {"NV1": 20e9, "PHB": 10e9, "PXB": 13e9, "SYS": 6e9}
    machine = Topology.parse(checks.MACHINE, rates)
    best, other = flows.relays(machine, 0, 2)
    assert (best.gpus, 120e6 / best.rate) == ((0, 1, 2), 3e-3)
    assert 120e6 / other.rate == 6e-3
    assert 120e6 / machine.bandwidth(0, 2) == 12e-3
    checks.check_best_way(lambda: "c")
    assert f"par is {par_of('4.1')}" in capsys.readouterr().out


LARGE = [181.5e6, 181.5e6, 37e6]


@pytest.mark.parametrize(
    ("small", "large", "words"),
    [
        ([1.8e6, 1.8e6, 0.4e6], LARGE, "of no use"),
        ([0, 0, 4e6], [400e6 / 3] * 3, "what could it have carried"),
        ([0, 0, 4e6], [200e6, 200e6, 0], "what could it have carried"),
        ([0, 0, 4e6], [150e6, 150e6, 37e6], "three shares"),
        ([-1e6, 0, 5e6], LARGE, "none below 0"),
        ([math.nan] * 3, LARGE, "three shares"),
    ],
)
def test_wrong_shares(small, large, words):
    caught(checks.check_shares, {"4 MB": small, "400 MB": large}, words)


def test_shares_by_other_sizes_name_the_keys():
    caught(checks.check_shares, {4e6: [0, 0, 4e6], 4e8: LARGE}, "'4 MB', '400 MB'")


def test_right_shares_need_not_be_exact(capsys):
    checks.check_shares({"4 MB": [0, 0, 4e6], "400 MB": LARGE})
    assert f"par is {par_of('4.3')}" in capsys.readouterr().out


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
    checks.check_reading({frozenset(pair) for pair in PAIRS}, False)
    assert f"par is {par_of('4.4')}" in capsys.readouterr().out
    caught(lambda p2p: checks.check_reading(PAIRS, p2p), True, "nearly alike")
    caught(lambda pairs: checks.check_reading(pairs, False), [(0, 1), (2, 3)], "exactly one other")


def test_the_printed_matrix_holds_what_is_asked(capsys):
    checks.print_matrix()
    lines = capsys.readouterr().out.splitlines()[2:]
    rows = [[float(word.replace("-", "99")) for word in line.split()[1:]] for line in lines]
    lowest = {frozenset((i, row.index(min(row)))) for i, row in enumerate(rows)}
    assert len(rows) == 8
    assert lowest == set(map(frozenset, PAIRS))


# Exercise 4.2


@pytest.mark.timed
@needs_hosts
@pytest.mark.parametrize("answer", [answers.right_plain, answers.right_posted_ahead])
def test_right_relays(answer, capsys):
    checks.check_relay(answer)
    printed = capsys.readouterr().out
    assert re.search(r"passed: you reached [567]\.\d times", printed)
    assert printed.endswith(f"par is {par_of('4.2')}.\n")


def test_without_hosts_all_but_the_speed_is_judged(capsys, monkeypatch):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")
    checks.check_relay(answers.right_plain)
    assert "the speed was not judged" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (answers.skips_a_hop, "a hop was skipped"),
        (answers.forgets_the_rest, "the last one may be shorter"),
        (answers.half_chunks, "by itself"),
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
        (answers.two_in_two_out, "the hops take turns"),
        (answers.resizes, "a relay has its two slots"),
        (answers.in_numpy, "a relay has its two slots"),
        (answers.never_sends, "a message that nobody sends"),
        (answers.labkits_own, "labkit's carry"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_wrong_relays(answer, words, monkeypatch):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")  # found without a look at the clock
    caught(checks.check_relay, answer, words)


def test_an_unsolved_exercise_fails_as_it_is():
    with pytest.raises(NotImplementedError, match=r"exercise 4\.2"):
        checks.check_relay(answers.returns_nothing_yet)
