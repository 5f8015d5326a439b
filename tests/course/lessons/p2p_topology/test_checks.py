"""Right and wrong answers to lesson 04's exercises; each wrong one gets a message of its own."""

import functools
import itertools
import re

import pytest

from course import checking, notebooks
from course.catalogue import ROOT
from course.lessons.p2p_topology import checks, flows
from course.lessons.p2p_topology.topology import Topology
from tests.course.lessons.p2p_topology import answers
from tests.course.lessons.refusals import said
from tests.fabric.test_fabric import needs_hosts

SOLUTIONS = notebooks.read(ROOT / "solutions" / "04_p2p_topology.ipynb")


def par_of(number):
    """The par as the statement words it."""
    statement = next(c.source for c in SOLUTIONS.cells if c.id == f"ex-{number.replace('.', '-')}")
    return re.search(r"\*\*Par:\*\* (.*?) · ", statement)[1]


def caught(check, answer, words):
    assert re.search(words, said(check, answer))


# Exercise 4.1


def link_of(text, src, dst, *, shift=1):
    rows = [line.split() for line in text.splitlines()]
    return next(row for row in rows if row[:1] == [f"GPU{src}"] and "X" in row)[dst + shift]


def rate_of(link, nvlink, pcie, digits=None):
    return int(link[2:][:digits]) * nvlink if link.startswith("NV") else pcie[link]


def right_time(text, src, dst, *, nbytes, nvlink, pcie):
    return nbytes / rate_of(link_of(text, src, dst), nvlink, pcie)


def right_by_pattern(text, src, dst, *, nbytes, nvlink, pcie):
    row = re.search(rf"^GPU{src}\s+((?:(?:X|NV\d+|[A-Z]+)\s+)+)", text, re.MULTILINE)
    link = re.findall(r"\S+", row[1])[dst]
    count = re.fullmatch(r"NV(\d+)", link)
    return nbytes / (int(count[1]) * nvlink if count else pcie[link])


def right_by_table(text, src, dst, *, nbytes, nvlink, pcie):
    table = {}
    for line in text.split("\n"):
        words = line.replace("\t", " ").split()
        if words and re.fullmatch(r"GPU\d+", words[0]) and "GPU" not in words[1]:
            table[words[0]] = words[1:]
    rates = {f"NV{count}": count * nvlink for count in range(1, 40)} | pcie
    return nbytes * rates[table[f"GPU{src}"][dst]] ** -1


def nv4_is_one_link(text, src, dst, *, nbytes, nvlink, pcie):
    link = link_of(text, src, dst)
    return nbytes / (nvlink if link.startswith("NV") else pcie[link])


def one_digit(text, src, dst, *, nbytes, nvlink, pcie):
    return nbytes / rate_of(link_of(text, src, dst), nvlink, pcie, digits=1)


def off_by_one(text, src, dst, *, nbytes, nvlink, pcie):
    link = link_of(text, src, dst, shift=0)
    return nbytes / rate_of(link, nvlink, pcie) if link in pcie or link[:2] == "NV" else 0.0


def first_row_that_begins_so(text, src, dst, *, nbytes, nvlink, pcie):
    rows = [line.split() for line in reversed(text.splitlines())]
    row = next(row for row in rows if row and row[0].startswith(f"GPU{src}"))
    return nbytes / rate_of(row[dst + 1], nvlink, pcie) if row[dst + 1] != "X" else 0.0


def counts_from_the_right(text, src, dst, *, nbytes, nvlink, pcie):
    words = text.split(f"\nGPU{src}")[1].splitlines()[0].split()
    link = words[dst - 10] if len(words) >= 10 else words[dst]
    return nbytes / rate_of(link, nvlink, pcie) if link in pcie or link[:2] == "NV" else 0.0


def in_gigabytes(text, src, dst, *, nbytes, nvlink, pcie):
    return nbytes / 1e9 / rate_of(link_of(text, src, dst), nvlink, pcie)


def in_milliseconds(text, src, dst, **rates):
    return 1e3 * right_time(text, src, dst, **rates)


def in_bits(text, src, dst, **rates):
    return 8 * right_time(text, src, dst, **rates)


def returns_nothing(text, src, dst, *, nbytes, nvlink, pcie):
    link_of(text, src, dst)


def changes_the_rates(text, src, dst, *, nbytes, nvlink, pcie):
    pcie["NV4"] = 4 * nvlink
    return right_time(text, src, dst, nbytes=nbytes, nvlink=nvlink, pcie=pcie)


def labkits_parser(text, src, dst, *, nbytes, nvlink, pcie):
    topology = Topology.parse(text, checks.LinkRates(nvlink, pcie, "the statement"))
    return nbytes / topology.bandwidth(src, dst)


@pytest.mark.parametrize("answer", [right_time, right_by_pattern, right_by_table])
def test_right_readings(answer, capsys):
    checks.check_copy_time(answer)
    assert capsys.readouterr().out.endswith(f"par is {par_of('4.1')}.\n")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (nv4_is_one_link, "NV4 is not one NVLink: it is 4"),
        (one_digit, "NV12 was read as NV1"),
        (off_by_one, "off by one|count from the left"),
        (first_row_that_begins_so, r"the row of GPU1\d was read|count from the left"),
        (counts_from_the_right, "count from the left|off by one"),
        (in_gigabytes, "bytes and gigabytes"),
        (in_milliseconds, "milliseconds were returned"),
        (in_bits, "no factor of 8"),
        (returns_nothing, "without `return`"),
        (changes_the_rates, "use a copy"),
        (labkits_parser, r"labkit's Topology\.parse"),
    ],
)
def test_wrong_readings(answer, words):
    caught(checks.check_copy_time, answer, words)


def test_an_error_tells_which_table_was_read():
    with pytest.raises(KeyError) as failure:
        checks.check_copy_time(lambda text, src, dst, **rates: {}[src])
    assert "GPU 0 to GPU 1 (NV4)" in failure.value.__notes__[0]


# Exercise 4.2


@pytest.mark.timed
@needs_hosts
@pytest.mark.parametrize(
    "answer", [answers.right_plain, answers.right_posted_ahead, answers.right_batched]
)
def test_right_relays(answer, capsys):
    checks.check_relay(answer)
    said = capsys.readouterr().out
    assert re.search(r"passed: you reached [567]\.\d times", said)
    assert said.endswith(f"par is {par_of('4.2')}.\n")


def test_without_hosts_all_but_the_speed_is_judged(capsys, monkeypatch):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")
    checks.check_relay(answers.right_plain)
    assert "the speed was not judged" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (answers.straight_to_the_end, "a hop was skipped"),
        (answers.skips_a_hop, r"along \[1, 2, 3, 0\].*a hop was skipped"),
        (answers.forgets_the_rest, "the last one may be shorter"),
        (answers.half_chunks, "pieces of another size"),
        (answers.whole_tensor, "whole tensors travel"),
        (answers.own_buffer, "a relay has its two slots"),
        (answers.in_turns, "the hops take turns"),
        (answers.waits_for_the_end, "do the ranks confirm each chunk"),
        (answers.reuses_a_slot, "received into while it was still being sent"),
        (answers.hands_on_too_early, "handed on before it had arrived"),
        (answers.waits_twice, "never returns"),
        (answers.drops_a_handle, "handle of an isend or irecv was dropped"),
        (answers.slots_swapped, "in the wrong place"),
        (answers.everybody_takes_part, "without touching their tensor"),
        (answers.a_copy_to_a_bystander, "not on the way"),
        (answers.by_broadcast, r"a call of dist\.broadcast"),
        (answers.half_precision, "another size|another dtype"),
        (answers.never_sends, "deadlock"),
        (answers.labkits_own, "labkit's carry"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_wrong_relays(answer, words, monkeypatch):
    if answer is answers.never_sends:  # it hangs, and need not do so for long
        monkeypatch.setattr(checking, "on_ranks", functools.partial(checking.on_ranks, timeout=4))
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")  # found without a look at the clock
    caught(checks.check_relay, answer, words)


def test_an_unsolved_exercise_fails_as_it_is():
    with pytest.raises(NotImplementedError, match=r"exercise 4\.2"):
        checks.check_relay(answers.returns_nothing_yet)


# Exercise 4.3


def right_shares(rates, delays, nbytes):
    order = sorted(range(len(rates)), key=lambda way: delays[way])
    used = []
    for way in order:
        end = (nbytes + sum(rates[i] * delays[i] for i in used)) / sum(
            (rates[i] for i in used), 1e-300
        )
        if used and end <= delays[way]:
            break
        used.append(way)
    end = (nbytes + sum(rates[i] * delays[i] for i in used)) / sum(rates[i] for i in used)
    return [(end - delays[i]) * rates[i] if i in used else 0.0 for i in range(len(rates))]


def right_by_leaving_out(rates, delays, nbytes):
    used = set(range(len(rates)))
    while True:
        end = (nbytes + sum(rates[i] * delays[i] for i in used)) / sum(rates[i] for i in used)
        late = {i for i in used if delays[i] > end}
        if not late:
            return tuple((end - delays[i]) * rates[i] * (i in used) for i in range(len(rates)))
        used -= late


def right_by_bisection(rates, delays, nbytes):
    low, high = 0.0, max(delays) + nbytes / min(rates)
    for _ in range(200):
        end = (low + high) / 2
        carried = [max(0.0, end - delay) * rate for rate, delay in zip(rates, delays, strict=True)]
        low, high = (end, high) if sum(carried) < nbytes else (low, end)
    return [part * nbytes / sum(carried) for part in carried]


def negative(rates, delays, nbytes):
    end = (nbytes + sum(r * d for r, d in zip(rates, delays, strict=True))) / sum(rates)
    return [(end - delay) * rate for rate, delay in zip(rates, delays, strict=True)]


def proportional(rates, delays, nbytes):
    return [nbytes * rate / sum(rates) for rate in rates]


def one_way_only(rates, delays, nbytes):
    ends = [delay + nbytes / rate for rate, delay in zip(rates, delays, strict=True)]
    return [nbytes * (i == ends.index(min(ends))) for i in range(len(rates))]


@pytest.mark.parametrize("answer", [right_shares, right_by_leaving_out, right_by_bisection])
def test_right_shares(answer, capsys):
    checks.check_shares(answer)
    assert capsys.readouterr().out.endswith(f"par is {par_of('4.3')}.\n")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda rates, delays, S: [S / len(rates)] * len(rates), "equal shares"),
        (proportional, "right without delays"),
        (one_way_only, "the one fastest way"),
        (negative, "leave it out, and divide again"),
        (lambda *case: [max(0.0, part) for part in negative(*case)], "cut off at 0"),
        (lambda *case: sorted(right_shares(*case)), "undo the sorting|all ways that are used"),
        (lambda rates, delays, S: [part / S for part in right_shares(rates, delays, S)], "frac"),
        (lambda rates, delays, S: right_shares(rates, delays, S)[:-1], "one share for each way"),
        (lambda rates, delays, S: None, "without `return`"),
        (lambda rates, delays, S: rates.sort() or right_shares(rates, delays, S), "use a copy"),
        (lambda rates, delays, S: flows.best_shares(rates, delays, nbytes=S), "labkit's best_sha"),
        (lambda rates, delays, S: next(i for i in itertools.count() if i < 0), "does not end"),
    ],
)
def test_wrong_shares(answer, words, monkeypatch):
    monkeypatch.setattr(checking, "ask", functools.partial(checking.ask, limit=1.0))
    caught(checks.check_shares, answer, words)


# Exercise 4.4

PCIE = ["SYS", "NODE", "PHB", "PXB", "PIX"]


def speed(link):
    return 100 * int(link[2:]) if link.startswith("NV") else PCIE.index(link)


def slowest(links, order, value=speed):
    return min(value(links[i][j]) for i, j in itertools.pairwise([*order, order[0]]))


def search(links, value=speed, *, close=True):
    def grow(order, floor):
        if len(order) == len(links):
            closed = not close or value(links[order[-1]][order[0]]) >= floor
            return order if closed else None
        for gpu in range(len(links)):
            if gpu not in order and value(links[order[-1]][gpu]) >= floor:
                found = grow([*order, gpu], floor)
                if found:
                    return found
        return None

    floors = sorted({value(link) for row in links for link in row if link != "X"}, reverse=True)
    return next(order for floor in floors if (order := grow([0], floor)))


def best_of_all(links):
    rings = ([0, *rest] for rest in itertools.permutations(range(1, len(links))))
    return max(rings, key=lambda order: slowest(links, order))


def links_taken_away(links):
    """Take the slowest links away, one class after another, while a ring is left."""
    best = list(range(len(links)))
    for floor in sorted({speed(link) for row in links for link in row if link != "X"}):
        todo = [(0,)]
        while todo:
            order = todo.pop()
            if len(order) == len(links) and slowest(links, order) >= floor:
                best = order
                break
            todo += [
                (*order, gpu)
                for gpu in set(range(len(links))) - set(order)
                if speed(links[order[-1]][gpu]) >= floor
            ]
    return tuple(best)


def greedy(links):
    order = [0]
    while len(order) < len(links):
        left = [gpu for gpu in range(len(links)) if gpu not in order]
        order.append(max(left, key=lambda gpu: speed(links[order[-1]][gpu])))
    return order


def largest_sum(links):
    def total(order):
        return sum(speed(links[i][j]) for i, j in itertools.pairwise([*order, order[0]]))

    rings = ([0, *rest] for rest in itertools.permutations(range(1, len(links))))
    return max(rings, key=total)


def misread(change):
    def value(link):
        return change(link) if (wrong := change(link)) is not None and wrong else speed(link)

    return lambda links: search(links, value)


def as_text(link):
    return (link.startswith("NV"), link if link.startswith("NV") else f"{PCIE.index(link)}")


@pytest.mark.parametrize("answer", [search, best_of_all, links_taken_away])
def test_right_rings(answer, capsys):
    checks.check_ring(answer)
    assert capsys.readouterr().out.endswith(f"par is {par_of('4.4')}.\n")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda links: list(range(len(links))), "backtracking"),
        (greedy, "backtracking|closes the ring|the sum of the links"),
        (functools.partial(search, close=False), "closes the ring"),
        (largest_sum, "the sum of the links"),
        (lambda links: search(links, as_text), "compared as text"),
        (lambda links: search(links, lambda k: 9 * int(k[2]) if k[0] == "N" and k[1] == "V"
                              else PCIE.index(k)), "one digit|compared as text"),
        (lambda links: search(links, lambda k: 99 if k[:2] == "NV" else PCIE.index(k)), "alike"),
        (lambda links: search(links, lambda k: speed({"PHB": "NODE", "NODE": "PHB"}.get(k, k))),
         "PHB and NODE are swapped"),
        (lambda links: search(links, lambda k: int(k[2:]) if k[:2] == "NV" else 0),
         "PCIe classes were taken to be alike"),
        (lambda links: [0, *range(len(links) - 1)], "every GPU exactly once"),
        (lambda links: None, "without `return`"),
        (lambda links: flows.best_ring(Topology(tuple(map(tuple, links)), (0,) * 8)).order,
         "labkit's"),
        (lambda links: links[0].clear() or list(range(len(links))), "use a copy"),
    ],
)  # fmt: skip
def test_wrong_rings(answer, words):
    caught(checks.check_ring, answer, words)


def test_an_endless_search_is_stopped(monkeypatch):
    monkeypatch.setattr(checking, "ask", functools.partial(checking.ask, limit=0.5))
    caught(checks.check_ring, lambda links: [0 for _ in itertools.count() if False], "does not end")
