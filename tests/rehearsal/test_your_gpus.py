"""`python -m course gpus` on machines that lack something, each with a line that says so."""

import json

import pytest

from tests.rehearsal.boxed import of_ranks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

PAGE = """
import os, sys
import torch.distributed as dist
from course.__main__ import main
from course.gpu_row import Sizes
from course.your_gpus import page
chosen, *arguments = sys.argv[1:]
page.ROWS = tuple(page.ROWS[int(number)] for number in chosen)
tiny = Sizes(copied=4096, message=4096, summed=65536, width=1 / 64, rounds=1, calls=5)
Sizes.on_cpus, Sizes.on_gpus = lambda quick: tiny, lambda *given: tiny
"""
RUN = "sys.exit(main(['gpus', *arguments]))\n"


def kept(page):
    return json.loads(page.with_suffix(".json").read_text())["records"]


def backends(page):
    return {record["provenance"]["backend"] for record in kept(page)}


LACKS = [
    ("os.environ['CUDA_VISIBLE_DEVICES'] = ''", "found: no GPU"),
    ("os.environ['CUDA_VISIBLE_DEVICES'] = '1'", "One rank has nobody"),
    ("dist.is_nccl_available = lambda: False", "This build of torch has no NCCL"),
]


@pytest.mark.parametrize("lack, says", LACKS)
def test_where_nothing_can_be_measured_it_shows_what_is_recorded(lack, says, tmp_path, box):
    done = box.run(2, f"{PAGE}{lack}\n{RUN}", "2", "--out", tmp_path / "page.html")
    assert done.returncode == 0 and says in done.stderr, done.output
    assert "RECORDED" in done.stdout and "MEASURED" not in done.stdout


def test_more_ranks_than_gpus_are_refused_in_a_line(tmp_path, box):
    done = box.run(2, PAGE + RUN, "6", "--ranks", "3", "--out", tmp_path / "page.html")
    assert done.returncode == 2 and "needs 3 GPUs; this machine has 2" in done.stderr
    assert "Traceback" not in done.output and not done.stdout


def test_gpus_of_unlike_kinds_are_told(tmp_path, box):
    page = tmp_path / "page.html"
    done = box.run(2, PAGE + RUN, "6", "--out", page, KINDS="H100, T4")
    assert done.returncode == 0 and backends(page) == {"nccl"}, done.output
    assert "found: 1 x H100, 1 x T4; unlike ones wait for the slowest" in done.stderr
    assert "estimated: " in done.stderr


@pytest.mark.parametrize("masked", [False, True])
def test_ranks_that_see_one_gpu_each_measure_by_gloo_and_say_so(masked, tmp_path, box):
    page, ranks = tmp_path / "page.html", of_ranks(2)
    for rank in ranks if masked else []:
        rank["CUDA_VISIBLE_DEVICES"] = rank["RANK"]
    done = box.run(2 if masked else 1, PAGE + RUN, "06", "--out", page, ranks=ranks)
    assert done.statuses == [0, 0] and "so gloo measures here, as with --cpu" in done.stderr
    assert "Traceback" not in done.output and backends(page) == {"gloo"}


def test_a_job_on_two_hosts_copies_within_each_and_sums_among_all(tmp_path, box):
    page = tmp_path / "page.html"
    done = box.run(2, PAGE + RUN, "01", "--out", page, ranks=of_ranks(4, nodes=2))
    assert done.statuses == [0] * 4, done.output
    records = {record["case"]: record for record in kept(page)}
    assert {record["params"]["hosts"] for record in records.values()} == {2}
    assert len(records["0 to 1"]["samples"]) == 2 and len(records["4 ranks"]["samples"]) == 4
    assert len(records["3 ranks"]["samples"]) == 3, "the fourth one looks on"
    assert "2 to 3" not in records, "no process reaches another host's GPUs"
    assert done.stdout.count("records: ") == 1, "rank 0 alone writes"
