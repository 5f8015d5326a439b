"""Every figure that lesson 07 states, computed again from the data that are shipped."""

import itertools
import math
import random
import statistics
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from course import published
from course.lessons.eighty_gpus import checks, evidence, logs, model
from course.lessons.eighty_gpus.logs import pick, select, seventeen_hosts
from tests.course.lessons.cells import Cells
from tools import eighty_gpus_data

SOURCES = published.load("eighty_gpus")
DEEPER = Cells("deeper/07_deeper", display=print)
NINE = checks.NINE
SIZES = ["32MiB", "1GiB", "16GiB"]
KINDS = [*itertools.product(("sendrecv", "alltoall"), (1, 4, 8))]
WARM_UP = "common.cu:401 < common.cu:519 < common.cu:695"
RAW = Path(__file__).with_name("raw.txt").read_text()


def busbw(collective, hosts, gpus, column="busbw_gbs"):
    rows = pick(logs.h100(), collective=collective, hosts=hosts, gpus_per_host=gpus)
    return [row[column] for row in rows]


def test_the_script_reads_tests_slots_in_the_order_of_ranks_and_failures():
    (first, slots, found, end), (second, nobody, nothing, error) = eighty_gpus_data.tests(RAW)
    assert (first, second) == ("alltoall", "sendrecv")
    assert (end, error) == ("cut off", WARM_UP)
    assert slots == {1: ["9d"], 2: ["43", "52"]}
    assert found[2**25] == ["1382.27", "22.76", "23.23"]
    assert found[2**34] == ["1.6e+07", "1.09", "1.03"]
    assert nobody == {} and nothing == {}


def test_the_rule_classifies_all_completed_tests_and_24_of_34_failures():
    tests = seventeen_hosts()
    ends = [(evidence.called_slow(t, NINE), t.is_slow if t.busbw else "failed") for t in tests]
    right = {(False, False): 649, (True, True): 127}
    assert Counter(ends) == right | {(True, "failed"): 24, (False, "failed"): 10}
    assert SOURCES["pairs"].value == 34


def test_a_rule_is_judged_by_what_it_calls_and_shown_no_test_that_is_held_out():
    def rule(first, second, gpus, collective):
        test = logs.PairTest(collective, len(gpus[0]), first, second, gpus, busbw={})
        return evidence.called_slow(test, NINE)

    *counts, failed = zip(*(row[1:] for row in logs.judge(rule).rows), strict=True)
    assert [sum(count) for count in counts] == [649, 127, 0, 0]  # none missed, no false alarm
    assert failed == ("2 of 9", "5 of 7", "17 of 18")
    seen = [row[1:5] for row in logs.judge(lambda *test: False).rows]
    assert seen == [
        [358, 0, 35, 0],
        [190, 0, 75, 0],
    ]  # none held out is shown


def test_34_failures_are_five_pairs_and_thirteen_of_one_kind():
    tests = seventeen_hosts()
    never = logs.never_complete(tests)
    assert set(never) == checks.DEAD
    assert [sum(column) for column in zip(*never.values(), strict=True)] == [3, 21, 6]
    assert 17 * 16 // 2 * 2 * 3 == len(tests) + 6 == 816
    assert all(len({*pair} & NINE) == 1 and {*pair} & {8, 16} for pair in never)
    inside = [t for t in tests if t.pair in never]
    rest = [t for t in tests if t.pair not in never]
    assert {(t.collective, t.gpus_per_host) for t in inside if t.busbw} == {("alltoall", 1)}
    assert Counter(t.ended_at for t in inside if not t.busbw) == {
        "common.cu:1279 < common.cu:1100": 14, "cut off": 5,
        "alltoall.cu:274 < common.cu:484 < common.cu:693": 2,
    }  # fmt: skip
    assert Counter(t.ended_at for t in rest if not t.busbw) == {WARM_UP: 13}
    for gpus, counts in ((4, [101, 17, 13]), (8, [64, 67, 0])):
        kind = [t for t in rest if (t.collective, t.gpus_per_host) == ("alltoall", gpus)]
        called = Counter((evidence.called_slow(t, NINE), bool(t.busbw)) for t in kind)
        assert [called[key] for key in ((False, True), (True, True), (True, False))] == counts
        assert called.total() == sum(counts)
    assert math.comb(30, 13) / math.comb(131, 13) < 1e-9


def test_more_senders_bring_more_into_a_sick_slot():
    found = {(row[0], row[1]): (row[2], *row[4:]) for row in logs.by_senders().rows}
    assert [found["sendrecv", gpus] for gpus in (4, 1)] == [(1, 0.87, 1.12), (1, 0.79, 0.98)]
    more = [(8, 2.74, 3.94), (4, 1.86, 2.65), (1, 0.77, 1.02)]
    assert [found["alltoall", senders] for senders, *_ in more] == more and len(found) == 5


def test_host_8_is_far_from_its_own_group_at_every_size():
    """In sendrecv with 8 GPUs, whose messages enter slot 1b alone; `near`: both of one group."""
    tests = select(seventeen_hosts(), collective="sendrecv", gpus_per_host=8)
    near = [t for t in tests if (t.first in NINE) == (t.second in NINE)]
    for size in SIZES:
        with_8 = [t.busbw[size] for t in near if 8 in t.pair]
        others = [t.busbw[size] for t in near if 8 not in t.pair]
        assert (len(with_8), len(others)) == (7, 57)
        assert max(with_8) < 0.98 * min(others)
    assert {slot for t in tests for _, _, slot in t.messages()} == {"1b"}


def world(guilty):
    """Tests of seventeen hosts with another culprit."""
    tests, deal = seventeen_hosts(), random.Random(11)
    sick = [t for t in tests if evidence.called_slow(t, NINE)]
    five = [t for t in tests if t.pair in checks.DEAD and t.gpus_per_host > 1]
    dead = {
        "a": dict.fromkeys(deal.sample(sick, 34), "common.cu:401"),
        "b": dict.fromkeys(five, "common.cu:1279"),
        "c": {t: t.ended_at for t in tests if not t.busbw},
        "d": dict.fromkeys(deal.sample(tests, 34), "common.cu:401"),
    }[guilty]
    busbw = {t: {} if t in dead else {"16GiB": 1.0} for t in tests}
    return [replace(t, busbw=busbw[t], ended_at=dead.get(t, "")) for t in tests]


@pytest.mark.parametrize("guilty", "abcd")
def test_the_board_points_at_whoever_is_guilty(guilty):
    board = evidence.INVESTIGATION.empty()
    assert evidence.judge(board, world(guilty)).left == [guilty]


def test_the_two_sorts_are_told_in_words_and_the_matrix_is_folded_behind_them(book):
    told = " ".join(evidence.in_words(seventeen_hosts()).split())
    assert "5 pairs of hosts: 2-8, 3-8, 5-16, 7-16, 8-9." in told
    assert "Of their 30 planned tests 21 failed, and 6 never began. The other 3" in told
    assert "the other 13. All of them are alltoall with 4 GPUs" in told
    assert "13 of them have" in told
    page = evidence.tribunal().html("What is left is c.")
    assert page.startswith("<p><b>What is left is c.</b></p><details>") and "3 and 1 places" in page


def test_hosts_are_in_three_groups():
    assert [evidence.group(host) for host in (7, 8, 9)] == ["rest", "alone", "nine"]


def test_tests_are_counted_by_what_they_have():
    sendrecv = select(seventeen_hosts(), collective="sendrecv")
    table = logs.by_value(sendrecv, "into", lambda test: {slot for *_, slot in test.messages()})
    assert max(table.rows, key=lambda row: row[2])[0] == "9d" and max(table.rows)[0] == "df"
    assert sum(row[2] for row in logs.by_value(sendrecv, "of", lambda test: [test.pair]).rows) == 35


def test_what_luck_does():
    assert evidence.two_hosts_by_luck(5) == pytest.approx(0.05, abs=0.015)
    assert math.comb(72, 5) / math.comb(136, 5) == pytest.approx(0.039, abs=0.001)


def test_nothing_lies_between_slow_and_fast():
    best = {kind: logs.best(*kind) for kind in KINDS}
    done = select(seventeen_hosts())
    shares = [t.busbw["16GiB"] / best[t.collective, t.gpus_per_host] for t in done]
    assert not [share for share in shares if 0.32 < share < 0.9]


def test_the_hosts_are_found_in_sendrecv_alone():
    slow = [test for test in select(seventeen_hosts(), collective="sendrecv") if test.is_slow]
    assert len(slow) == 35
    assert set.intersection(*({s for *_, s in test.messages()} for test in slow)) == {"9d"}
    count = logs.alone_into("9d")
    assert {host for host, (slow, _) in count.items() if slow} == NINE
    assert all(slow in (0, tests) for slow, tests in count.values())


def test_two_blocks_and_what_lies():
    eight = select(seventeen_hosts(), collective="alltoall", gpus_per_host=8)
    by_count = [[t.busbw["16GiB"] for t in eight if len({*t.pair} & NINE) == n] for n in range(3)]
    ends = [(len(gbs), min(gbs), max(gbs)) for gbs in by_count]
    assert ends == [(28, 23.56, 23.64), (67, 5.13, 7.39), (36, 23.54, 23.62)]
    median = statistics.median(test.busbw["16GiB"] for test in eight)
    assert sum(test.busbw["16GiB"] < 0.8 * median for test in eight) == 30
    means = [logs.means(*kind) for kind in KINDS]
    assert [min(mean, key=mean.get) for mean in means] == [4, 3, 8, 4, 3, 15]
    assert NINE.isdisjoint(sorted(means[-1], key=means[-1].get)[:7])


def test_host_3_got_its_upper_four_gpus_in_most_of_its_tests():
    tests = select(seventeen_hosts(), collective="sendrecv", gpus_per_host=4)
    own = [t.gpus[t.pair.index(3)][0] for t in tests if 3 in t.pair]
    assert (own.count("9d"), len(own)) == (10, 15)


def fast(collective, gpus, size="16GiB"):
    """The figures of fast tests: True: each message stays in its group and comes from its rail."""
    found = {True: [], False: []}
    for test in select(seventeen_hosts(), collective=collective, gpus_per_host=gpus):
        own = dict(zip(test.pair, test.gpus, strict=True))
        stays = all(
            (src in NINE) == (to in NINE) and 8 not in (src, to) and slot in own[src]
            for src, to, slot in test.messages()
        )
        if not test.is_slow:
            found[stays].append(test.busbw[size])
    return found


@pytest.mark.parametrize("size", SIZES)
def test_a_quiet_witness_messages_that_stay_on_rail_and_group_are_faster(size):
    """All 235 fast sendrecv tests with 4 or 8 GPUs: no overlap between the two kinds."""
    both = [fast("sendrecv", gpus, size) for gpus in (4, 8)]
    assert sum(len(found[True] + found[False]) for found in both) == 235
    for found in both:
        assert min(found[True]) > 1.02 * max(found[False])
        assert 1.03 < statistics.median(found[True]) / statistics.median(found[False]) < 1.06
    if size == "16GiB":
        ends = {stays: (len(gbs), min(gbs), max(gbs)) for stays, gbs in both[0].items()}
        assert ends == {True: (32, 14.57, 14.63), False: (72, 13.74, 14.06)}


def test_elsewhere_the_second_layer_costs_nothing_that_shows():
    for kind, medians in ((("sendrecv", 1), [13.53, 13.56]), (("alltoall", 4), [23.075, 23.0])):
        found = fast(*kind)
        both = [statistics.median(found[stays]) for stays in (True, False)]
        assert both == pytest.approx(medians, abs=0.001)


def test_adding_is_innocent_of_the_missing_fifth():
    assert busbw("all_reduce", 10, 8)[-3:] == pytest.approx([313.9, 316.3, 320.5], abs=0.051)
    assert busbw("all_gather", 10, 8)[-3:] == pytest.approx([313.2, 317.4, 324.3], abs=0.051)
    assert busbw("reduce_scatter", 10, 8)[-3:] == pytest.approx([314.1, 315.8, 323.4], abs=0.051)


def test_slow_gets_slower_with_size_and_no_size_hides_it():
    """A slower link would take the same share of every size; fast tests keep their figures."""
    rows = [["32MiB", 6, 16, 54], ["1GiB", 6, 19, 69], ["16GiB", 6, 69, 94]]
    assert logs.lost_by_size().rows == rows


def test_rails_and_the_law_of_alltoall():
    one, *more = [(g, busbw("all_reduce", 10, g)[-1]) for g in (1, 2, 4, 8)]
    assert (one[1], more[2][1]) == (SOURCES["one_card"].value, SOURCES["eight_cards"].value)
    assert [gbs / one[1] for _, gbs in more[:2]] == pytest.approx([2, 4], rel=0.01)
    single = busbw("alltoall", 10, 1)[-1]
    assert single == pytest.approx(44.7, abs=0.05)
    for g, _ in more:
        law = single * (10 * g - 1) / (9 * g)
        assert law == pytest.approx(busbw("alltoall", 10, g)[-1], rel=0.03)


def test_the_missing_fifth():
    ten, two = busbw("alltoall", 10, 8)[-1] * 72 / 79, busbw("alltoall", 2, 8)[-1] * 8 / 15
    assert (ten, 8 * ten) == (pytest.approx(45.9, abs=0.05), pytest.approx(367, abs=0.5))
    assert 8 * two == pytest.approx(392, abs=0.5)
    out, own = busbw("all_reduce", 10, 8), busbw("all_reduce", 10, 8, "inplace_gbs")
    assert [round(gbs) for gbs in (out[5], own[6], out[7])] == [345, 364, 314]
    assert ten > out[-1] / 8  # a card can carry more than all_reduce asks of it


def test_the_cell_of_the_missing_fifth_prints_these_figures(capsys):
    DEEPER.run("fifth-run")
    shown = capsys.readouterr().out
    assert "45.9 GB/s through each card, 367 out of each host" in shown
    assert "49.0 GB/s through each card, 392 out of each host" in shown
    for from_4_gib in ("313.9  316.3   320.5", "313.2  317.4   324.3", "314.1  315.8   323.4"):
        assert from_4_gib in shown


def test_two_errors_of_the_simulator_cancel():
    S, n, g = 280e9, 64, 8
    in_logs = 2 * (n - 1) / n * S / (SOURCES["eight_cards"].value * 1e9)
    across = 2 * (g - 1) / g * S / g / 50e9
    good, half = (2 * (g - 1) / g * S / nvlink + across for nvlink in (900e9, 450e9))
    assert [good / in_logs, across / in_logs] == pytest.approx([1.03, 0.71], abs=0.01)
    assert [half, in_logs] == pytest.approx([2.31, 1.72], abs=0.01)


def test_the_cell_of_the_simulator_prints_these_errors(capsys):
    DEEPER.run("simulator-run")
    twice, once, _ = capsys.readouterr().out.splitlines()
    assert "NVLink 900" in twice and "added 1.77 s (+3%), fully overlapped 1.23 s (-29%)" in twice
    assert "NVLink 450" in once and "added 2.31 s (+35%)" in once


def test_the_tuner_computes_what_tuning_cc_says_by_hand():
    ten, single = model.Tuner(10, 8, 391.2, 16), model.Tuner(10, 1, 48.9, 2)
    tree = 14 + 2 * (7 * 1.25 + 3 * 8.5) + 2**25 / (391.2e3 * 0.92 * 120 / 128 / 2 * 0.9)
    assert ten.microseconds(2**25, "tree", "LL128") == pytest.approx(tree)
    nvls = 25 + 2 * 3 * 20.9 + 2**30 / (391.2e3 * 80 / 158)
    assert ten.microseconds(2**30, "nvls tree", "Simple") == pytest.approx(nvls)
    ring = 1.4 * (8.4 + 18 * 14.0) + 2**30 / (48.9e3 * 10 / 18)
    assert single.microseconds(2**30, "ring", "Simple") == pytest.approx(ring)


def test_a_line_holds_for_most_and_not_inside_one_host():
    worst = DEEPER.run("trial")["worst"]
    assert sum(error < 0.105 for error in worst.values()) == 22
    assert max(worst, key=worst.get) == ("sendrecv", (1, 8))
    inside = pick(logs.h100(), collective="sendrecv", hosts=1, gpus_per_host=8)
    times = {row["bytes"] >> 20: row["time_us"] for row in inside}
    assert times[256] < 1.1 * times[64] and times[1024] > 3 * times[256]


def test_the_tuner_beside_the_logs_errors_and_order_of_shapes():
    names = DEEPER.run("tuner-run", "ranking")

    def ratios(gpus):
        return {size: guess / t for size, (_, guess, t) in names["by_gpus"][gpus].items()}

    few = [*ratios(1).items(), *ratios(2).items()]
    assert all(abs(ratio - 1) < (0.02 if size >= 2**28 else 0.12) for size, ratio in few)
    eight = ratios(8).values()
    assert max(eight) == pytest.approx(0.906, abs=1e-3)
    assert 1 / min(eight) == pytest.approx(2.63, abs=0.01)
    assert names["right"] == 58 and [text[:7] for text in names["wrong"]] == ["32 MiB:"] * 2


def test_540_hosts_are_a_tree():
    names = DEEPER.run("scale")
    tree = names["start"] + names["slope"] * math.log2(540)
    published = names["smallest"][540]
    assert names["step"] * 2 * (4 * 540 - 1) > 20 * published
    assert tree == pytest.approx(published, rel=0.15)


def test_polaris_uses_two_wires_or_more():
    rows = pick(logs.polaris(), nccl=2.21, setup=5, hosts=8, bytes=2**30)
    assert 25 < rows[0]["busbw_gbs"] < 25 * SOURCES["polaris_cards"].value
    (tcp,) = pick(logs.polaris(), nccl=2.18, setup=1, hosts=2, bytes=2**30)
    assert tcp["busbw_gbs"] == SOURCES["default_is_tcp"].value


SUSPECTS = [(..., "9d", "this cell's guess"), ("9d", "9d", "your suspect")]


@pytest.mark.parametrize(("suspect", "slot", "whose"), SUSPECTS)
def test_a_suspect_accuses_the_hosts_in_which_it_is_alone_and_slow(suspect, slot, whose):
    sendrecv = select(seventeen_hosts(), collective="sendrecv")
    found, accused, table = logs.by_host(suspect, sendrecv)
    assert found == slot and whose in table.title and {*accused} == NINE


def test_the_matrix_has_the_hosts_of_a_group_side_by_side():
    assert evidence.hosts_in_order() == [*sorted(NINE), 5, 7, 10, 11, 13, 14, 15, 8]
