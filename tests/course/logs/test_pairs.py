"""Pairs of hosts: two speeds are seen before any usual one, and the slow ones' rule is found."""

import csv
import itertools
import random
import time
from pathlib import Path

from pytest import mark

from course.logs import logs, pairs, report
from course.logs.logs import Log
from course.logs.nccl_tests import MAKING, Failure
from course.logs.page import Page
from tests.course.logs.test_report import record

HOSTS = [f"node-{i:02d}" for i in range(1, 18)]
NINE = {f"node-{i:02d}" for i in (1, 2, 3, 4, 6, 9, 12, 16, 17)}
PAIRS = [frozenset(pair) for pair in itertools.combinations(HOSTS, 2)]


def test_two_speeds_are_divided_at_their_widest_gap():
    assert 7.4 < pairs.divide([5.1, 6.2, 7.4, 23.5, 23.6, 23.6]) < 23.5
    assert pairs.divide([23.0, 23.1, 23.2, 23.5, 23.6, 24.9]) is None
    assert pairs.divide([1.0, *[23.0 + i / 100 for i in range(100)]]) is None, "one stray value"
    assert pairs.divide([5.0, 23.0]) is None
    assert 7 < pairs.divide([7.0] * 67 + [23.6] * 64) < 23.6, "the median is a slow one"


def seventeen(name, largest, tmp_path):
    """Write the logs of the 131 tests that completed, up to a size; alltoall, 8 GPUs a host.

    Source: github.com/xxrjun/nccl-tests-cluster, commit 455de4f, example-cluster00, Apache-2.0.
    """
    head = "# nThread 1 nGpus 1 minBytes 1 maxBytes 1 warmup iters: 5 iters: 20 validation: 1\n"
    rank = "#  Rank {} Group 0 Pid 1 on {} device {} [0x1] H100\n"
    columns = "# size count type redop root time algbw busbw #wrong\n"
    text = []
    for row in csv.DictReader(Path(__file__).with_name("seventeen.csv").read_text().splitlines()):
        hosts = [name.format(int(row[end])) for end in ("first", "second")]
        ranks = [rank.format(n, hosts[n // 8], n % 8) for n in range(16)]
        text += ["# Collective test starting: alltoall_perf\n", head, *ranks, columns]
        for size in (n for n in (1, 2, 4, 8, 16) if n <= largest):
            time = float(row[f"time_us_{size}GiB"])
            algbw = size * 2**30 / time / 1e3
            figures = f"{time} {algbw:.2f} {algbw * 15 / 16:.2f} 0"
            text.append(f" {size * 2**30} 1 double none -1 {figures}\n")
        text.append("# Avg bus bandwidth : 1\n")
    path = tmp_path / "alltoall.log"
    path.write_text("".join(text))
    return path


NAMES = [("cnode2-{:03d}", 16), ("so-ucloud-10-10-{}-10", 1)]


@mark.parametrize("name, largest", NAMES)
def test_the_seventeen_hosts_show_their_fault_at_any_size_under_any_name(name, largest, tmp_path):
    log = logs.read(seventeen(name, largest, tmp_path))
    (tested,) = report._pairs(report._series(log.records), log)
    assert log.problems == [] and len(tested.hosts) == 17 and len(tested.slow) == 67
    assert tested.rule.hosts == tuple(sorted(name.format(n) for n in (5, 7, 8, 10, 11, 13, 14, 15)))
    assert (tested.rule.which, tested.rule.right, tested.rule.of) == ("exactly one", 131, 131)


def test_anonymous_hosts_are_numbered_over_all_files_and_nowhere_named(tmp_path):
    begun = seventeen("ip-10-1-2-{}", 1, tmp_path).read_text().partition("# size")[0]
    died = f"{begun}ip-10-1-2-1: Test NCCL failure a.cu:4 'no'\n"
    (tmp_path / "ip-10-1-2-1.log").write_text(died)
    whole = logs.together(map(logs.read, sorted(tmp_path.iterdir())))
    log = logs.anonymous(whole)
    assert "ip-10" in repr(whole) and "ip-10" not in repr(log)
    (tested,) = report._pairs(report._series(log.records), log)
    assert set(tested.hosts) == {f"host {n}" for n in range(1, 18)} and len(tested.rule.hosts) == 8
    said = "host 1.log, line 19: alltoall_perf failed: host 1: Test NCCL failure a.cu:4 'no'"
    assert log.problems == [said]


def test_a_small_gap_without_a_rule_is_no_second_speed():
    chance = random.Random(7)
    assert pairs.two_speeds({pair: 23 + chance.random() for pair in PAIRS}) == (None, None)
    four = {frozenset(pair): 23.0 + ("1" in pair) for pair in itertools.combinations("1234", 2)}
    assert pairs.two_speeds(four) == (None, None), "of six pairs luck makes a rule often enough"


RULES = [
    ("exactly one", set(HOSTS) - NINE, lambda pair: len(pair & NINE) == 1),
    ("either", {"node-05"}, lambda pair: "node-05" in pair),
    ("either", {"node-05", "node-11"}, lambda pair: bool(pair & {"node-05", "node-11"})),
    ("both", NINE, lambda pair: pair <= NINE),
]


@mark.parametrize("which, hosts, member", RULES)
def test_the_rule_of_the_slow_pairs_is_found(which, hosts, member):
    slow = {pair: member(pair) for pair in PAIRS[:-5]}  # some were not measured
    for pair in PAIRS[10:12]:  # and two follow no rule
        slow[pair] = not slow[pair]
    rule = pairs.explain(slow)
    assert (rule.which, set(rule.hosts)) == (which, hosts)
    assert (rule.right, rule.of) == (len(slow) - 2, len(slow))


def test_many_hosts_take_time_by_their_square():
    hosts = [f"h{i:03d}" for i in range(160)]
    half = set(hosts[:80])
    slow = {frozenset(p): len(set(p) & half) == 1 for p in itertools.combinations(hosts, 2)}
    start = time.thread_time()
    rule = pairs.explain(slow)
    assert (rule.which, rule.right, len(rule.hosts)) == ("exactly one", len(slow), 80)
    assert time.thread_time() - start < 5, "0.1 s here; host by host it would be minutes"
    assert "and 68 more" in str(rule)
    assert rule.calls_slow(frozenset(hosts[79:81])) and not rule.calls_slow(frozenset(hosts[:2]))


def test_no_rule_is_made_up():
    assert pairs.explain(dict.fromkeys(PAIRS, False)) is None
    assert pairs.explain({pair: i % 5 == 0 for i, pair in enumerate(PAIRS)}) is None
    assert pairs.explain({pair: i in (3, 50, 90) for i, pair in enumerate(PAIRS)}) is None


@mark.slow
def test_the_page_shows_both_blocks_and_counts_what_failed():
    tests = []
    for pair in PAIRS[5:]:
        slow = len(pair & NINE) == 1
        tests.append(record("alltoall", 2**30, 5e-3 if slow else 1e-3, 2, 8, names=sorted(pair)))
        tests[-1].values["slots"] = ["0000:1b:00", "0000:9d:00"] if slow else ["0000:1b:00"]
    died = 9, "no figures", MAKING, "x.log"
    failed = [Failure("all_to_all", 8, sorted(pair), *died) for pair in PAIRS[:5]]
    log = Log(["a.log"], tests, failures=failed)
    (tested,) = report._pairs(report._series(tests), log)
    assert tested.hosts[:8] == sorted(set(HOSTS) - NINE), "the two groups stand together"
    assert tested.in_every_slow_test() == "0000:9d:00 (and 0 of 60 others)"
    names = set(report._divided(report._series(tests), [tested]))
    assert names == {"all_to_all, 2 x 8, fast pairs", "all_to_all, 2 x 8, slow pairs"}
    page = Page("Hosts")
    report.add(page, log)
    for words in ("71 of 131 pairs are slow", "5 failed", "failed: 5 tests", "x.log, line 9"):
        assert words in str(page)
