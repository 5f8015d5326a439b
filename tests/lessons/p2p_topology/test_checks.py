"""The usual mistakes in lesson 04's exercises, each caught with a message of its own."""

import functools
import math
import re

import pytest

from labkit.course import checking
from labkit.course.checking import CheckFailed
from labkit.lessons.p2p_topology import checks, flows
from labkit.lessons.p2p_topology.topology import Topology
from tests.fabric.test_fabric import needs_hosts
from tests.lessons.p2p_topology import answers


def caught(check, answer, words):
    with pytest.raises(CheckFailed) as failure:
        check(answer)
    assert re.search(words, " ".join(str(failure.value).split())), str(failure.value)


# Exercise 4.1


def link_of(text, src, dst, *, shift=1):
    lines = [line.split() for line in text.splitlines() if line.startswith(f"GPU{src}")]
    return lines[0][dst + shift]


def rate_of(link, nvlink, pcie, digits=None):
    return int(link[2:][:digits]) * nvlink if link.startswith("NV") else pcie[link]


def right_time(text, src, dst, *, nbytes, nvlink, pcie):
    return nbytes / rate_of(link_of(text, src, dst), nvlink, pcie)


def nv4_is_one_link(text, src, dst, *, nbytes, nvlink, pcie):
    link = link_of(text, src, dst)
    return nbytes / (nvlink if link.startswith("NV") else pcie[link])


def one_digit(text, src, dst, *, nbytes, nvlink, pcie):
    return nbytes / rate_of(link_of(text, src, dst), nvlink, pcie, digits=1)


def off_by_one(text, src, dst, *, nbytes, nvlink, pcie):
    link = link_of(text, src, dst, shift=0)
    return nbytes / rate_of(link, nvlink, pcie) if link in pcie or link[:2] == "NV" else 0.0


def in_gigabytes(text, src, dst, *, nbytes, nvlink, pcie):
    return nbytes / 1e9 / rate_of(link_of(text, src, dst), nvlink, pcie)


def returns_nothing(text, src, dst, *, nbytes, nvlink, pcie):
    link_of(text, src, dst)


def test_a_right_reading_passes(capsys):
    checks.check_copy_time(right_time)
    assert "Exercise 4.1 passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (nv4_is_one_link, "NV4 is not one NVLink: it is 4"),
        (one_digit, "NV12 was read as NV1"),
        (off_by_one, "off by one|row of src"),
        (in_gigabytes, "bytes and gigabytes"),
        (returns_nothing, "without `return`"),
    ],
)
def test_wrong_readings(answer, words):
    caught(checks.check_copy_time, answer, words)


# Exercise 4.2


@pytest.mark.timed
@needs_hosts
def test_a_right_relay_passes(capsys):
    checks.check_relay(answers.right_relay)
    assert re.search(r"passed: you reached [567]\.\d times", capsys.readouterr().out)


def test_without_hosts_values_and_bytes_are_judged_all_the_same(capsys, monkeypatch):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")
    checks.check_relay(answers.right_relay)
    assert "the speed was not judged" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (answers.straight_to_the_end, "direct link.*next rank"),
        (answers.forgets_the_rest, "chunk may be shorter"),
        (answers.whole_tensor_for_each_chunk, "crosses every hop once"),
        (answers.everybody_takes_part, "not on the way"),
        (answers.never_sends, "deadlock"),
    ],
)
def test_wrong_relays(answer, words, monkeypatch):
    if answer is answers.never_sends:  # it hangs, and need not do so for long
        monkeypatch.setattr(checking, "on_ranks", functools.partial(checking.on_ranks, timeout=4))
    caught(checks.check_relay, answer, words)


@pytest.mark.timed
@needs_hosts
@pytest.mark.parametrize("answer", [answers.whole_tensor, answers.waits_for_the_end])
def test_relays_that_do_not_overlap(answer):
    caught(checks.check_relay, answer, "hops do not overlap")


# Exercise 4.3


def others(rates):
    return sum(1 / rate for rate in rates) - 1 / min(rates)


def test_a_right_chunk_passes():
    checks.check_best_chunk(lambda rates, S, alpha: math.sqrt(S * alpha / others(rates)))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda rates, S, alpha: S * alpha / others(rates), "root is missing"),
        (lambda rates, S, alpha: (S * alpha / sum(1 / r for r in rates)) ** 0.5, "leave it out"),
        (lambda rates, S, alpha: (S * alpha * min(rates)) ** 0.5, "as slow as the slowest"),
        (lambda rates, S, alpha: 65536, "minimise"),
        (lambda rates, S, alpha: None, "without `return`"),
        (lambda rates, S, alpha: 0, "above 0"),
    ],
)
def test_wrong_chunks(answer, words):
    caught(checks.check_best_chunk, answer, words)


# Exercise 4.4


def right_ring(links):
    text = "\n".join(
        [" ".join(f"GPU{i}" for i in range(len(links)))]
        + [" ".join([f"GPU{i}", *row]) for i, row in enumerate(links)]
    )
    return flows.best_ring(Topology.parse(text, checks.RATES)).order


def speed(link):
    return 100 * int(link[2:]) if link.startswith("NV") else checks.RATES.pcie[link] / 1e9


def greedy(links):
    order = [0]
    while len(order) < len(links):
        left = [gpu for gpu in range(len(links)) if gpu not in order]
        order.append(max(left, key=lambda gpu: speed(links[order[-1]][gpu])))
    return order


def forgets_to_close(links):
    def grow(order, floor):
        if len(order) == len(links):
            return order
        for gpu in range(len(links)):
            if gpu not in order and speed(links[order[-1]][gpu]) >= floor:
                found = grow([*order, gpu], floor)
                if found:
                    return found
        return None

    floors = sorted({speed(link) for row in links for link in row if link != "X"}, reverse=True)
    return next(order for floor in floors if (order := grow([0], floor)))


def test_a_right_ring_passes():
    checks.check_ring(right_ring)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda links: list(range(len(links))), "backtracking"),
        (greedy, "backtracking|closes the ring"),
        (forgets_to_close, "closes the ring"),
        (lambda links: [0, *range(len(links) - 1)], "every GPU exactly once"),
        (lambda links: None, "every GPU exactly once"),
    ],
)
def test_wrong_rings(answer, words):
    caught(checks.check_ring, answer, words)
