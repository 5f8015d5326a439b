"""What a report says of logs: on real figures of three clusters, and on made ones."""

import re
from dataclasses import replace

import pytest

from course.lessons.eighty_gpus import logs as clusters
from course.logs import nccl_tests, report
from course.logs.logs import Log
from course.logs.page import Page


def record(collective, nbytes, seconds, hosts, gpus, *, gpu="NVIDIA H100 80GB HBM3", names=None):
    names = names or [f"host{i}" for i in range(hosts)]
    test = nccl_tests.Test(Log(["a.log"]), collective)
    test.library = "NCCL 2.29.2"
    test.places = [nccl_tests.Place(name, gpu) for name in names for _ in range(gpus)]
    params = {"dtype": "float", "redop": "sum", "in_place": False}
    test.rows = [nccl_tests.Row(7, nbytes, params, seconds)]
    return test.records()[0]


@pytest.fixture(scope="module")
def cluster():
    """The ten hosts of lesson 07, as records."""
    return [
        record(row["collective"], row["bytes"], row["time_us"] / 1e6, row["hosts"],
               row["gpus_per_host"])
        for row in clusters.h100()
    ]  # fmt: skip


def test_what_is_above_the_wire_is_explained(cluster):
    cards = report.inferred_cards(cluster)
    table = report._doubts(report._divided(report._series(cluster), []), cards)
    doubts = {row[0]: [*row[:5], row[6]] for row in table.rows}
    assert doubts["all_gather, 10 x 8"][5] == "rails: 8 cards per host, each with a ring of its own"
    assert doubts["all_gather, 10 x 8"][3] == pytest.approx(48.89)
    assert "72 of 79 parts" in doubts["all_to_all, 10 x 8"][5]
    assert doubts["all_reduce, 1 x 8"][5].startswith("a switch that adds")
    assert not {name for name in doubts if "10 x 1" in name or "send" in name or "1 x 4" in name}


ABOVE = [
    ("all_reduce", 2, 1, 90, "a tree: between two hosts it sends S each way, a ring .* 2 S$"),
    ("all_reduce", 3, 1, 95, "a stopwatch that stops before"),
    ("all_gather", 2, 4, 230, "a stopwatch that stops before"),
    ("all_reduce", 2, 4, 51, None),
    ("all_reduce", 4, 8, 352, "rails: 8 cards per host, each with a ring of its own$"),
    ("all_reduce", 4, 8, 700, "rails: 8 cards .*, together with a switch that adds"),
    ("all_reduce", 1, 8, 201, "a stopwatch that stops before"),
    ("all_reduce", 1, 8, 80, "a switch that adds: [^;]*$"),
]


@pytest.mark.parametrize("collective, hosts, gpus, busbw, says", ABOVE)
def test_one_figure_above_the_wire(collective, hosts, gpus, busbw, says):
    in_a_second = record(collective, 2**30, 1.0, hosts, gpus)
    seconds = in_a_second.busbw / (busbw * 1e9)
    explanation = report._explain(replace(in_a_second, samples=[[seconds]]), 50e9)
    assert explanation is None if says is None else re.match(says, explanation)


@pytest.mark.slow
def test_a_whole_section(cluster):
    two = [test for test in cluster if test.collective in ("all_gather", "all_reduce")]
    page = Page("A cluster")
    report.add(page, Log(["a.log"], two, problems=["a.log, line 3: cut short"]))
    text = str(page)
    for words in ("a.log, line 3: cut short", "rails: 8 cards", "in place: µs"):
        assert words in text
    assert "48.9 GB/s: the most that one GPU per host reached" in text
    assert "10 nodes, the first 1 x NVIDIA H100 80GB HBM3, NCCL 2.29.2" in text
    assert text.count("<figure") == 2, "more curves than one picture holds: one per collective"


# As Alps' logs have them, in which 47 of 6000 sums are wrong and five sets of variables were tried.
# Source: github.com/boeschf/nccl-benchmark-on-alps-2025, commit 897cff4, results/.
def test_runs_with_other_settings_are_series_of_their_own():
    tests = [record("all_reduce", 2**20, 1e-3, 2, 4) for _ in range(3)]
    for test, depth in zip(tests, (1, 1, 2), strict=True):
        test.params["settings"] = f"NCCL_CROSS_NIC=0 NCCL_WORK_FIFO_DEPTH={depth}"
    names = [f"all_reduce, 2 x 4, NCCL_WORK_FIFO_DEPTH={depth}" for depth in (1, 2)]
    assert list(report._series(tests)) == names
    assert list(report._series(tests[:2])) == ["all_reduce, 2 x 4"]
    tests[1].values["wrong"] = 3232.0
    facts = dict(report._facts(Log(["a.log"], tests), {}))
    assert facts["WRONG SUMS"] == "1 of 3 results; the first: a.log, line 7"


def test_the_wire_of_one_cluster_is_not_anothers():
    """46 GB/s of a pair of H100s says nothing of A100s, nor of other H100s."""
    fast = record("sendrecv", 2**30, 2**30 / 46.3e9, 2, 1, names=["h1", "h2"])
    sick = record("sendrecv", 2**30, 2**30 / 5e9, 2, 1, names=["h2", "h3"])
    a100 = record("all_reduce", 2**30, 0.1, 2, 4, names=["a1", "a2"], gpu="NVIDIA A100-SXM4-40GB")
    other = record("all_reduce", 2**30, 0.1, 2, 8, names=["p5-1", "p5-2"])
    own = record("all_reduce", 2**30, 0.1, 2, 8, names=["h2", "h9"])
    cards = report.inferred_cards([fast, sick, a100, other, own])
    assert report._wire(a100, cards) == report._wire(other, cards) == (None, "")
    best = report._wire(own, cards)[0]
    assert best == pytest.approx(46.3e9), "the best of a host: a sick pair is no wire"
    assert report._wire(a100, 25e9) == (25e9, "given")
