import dataclasses
import re
import time
from html import unescape

import pytest
import torch

from course.__main__ import main
from course.comm import shapes
from course.gpu_row import Row, Sizes
from course.lessons.gradient_all_reduce.programs import vgg11_bytes
from course.lessons.pipeline_p2p import programs as ways_to_send
from course.place import Place
from course.your_gpus import page as the_page
from course.your_gpus.page import ROWS, networks
from labkit.measure import records

TINY = Sizes(copied=4096, message=4096, summed=65536, width=1 / 64, rounds=1, calls=5)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(Sizes, "on_cpus", lambda quick: TINY)


def of_rows(monkeypatch, *rows):
    monkeypatch.setattr(the_page, "ROWS", rows)


def fails(place, sizes):
    raise RuntimeError("CUDA out of memory")


def is_interrupted(place, sizes):
    raise KeyboardInterrupt


def test_without_a_gpu_the_recorded_rows_are_shown_as_recorded(tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["gpus", "--out", str(page)]) == 0
    shown = capsys.readouterr()
    assert "found: no GPU" in shown.err and "RECORDED" in shown.out
    assert "MEASURED" not in shown.out and "Nobody has recorded it" in shown.out
    assert re.search(r"so a further call takes +30 µs", shown.out), "of ranks that share an H200"
    kept = records.load(page.with_suffix(".json"))
    assert {record.tier for record in kept} == {records.Tier.RECORDED}


@pytest.mark.slow
def test_gloo_makes_the_same_page(tmp_path, capsys, tiny):
    page = tmp_path / "new" / "page.html"
    assert main(["gpus", "--cpu", "--ranks", "3", "--out", str(page)]) == 0
    table, written = capsys.readouterr().out, unescape(page.read_text())
    for row in ROWS:
        assert row.question in table and row.question in written
    assert "failed" not in table and written.count("<figure") == len(ROWS)
    assert "2 ranks" in table and "377 µs" in table
    kept = records.load(page.with_suffix(".json"))
    assert {record.provenance.backend for record in kept} == {"gloo"}


def test_a_row_that_fails_says_why_and_the_next_one_runs(tmp_path, capsys, tiny, monkeypatch):
    broken = dataclasses.replace(ROWS[4], measure=fails)
    of_rows(monkeypatch, broken, ROWS[1])
    assert main(["gpus", "--cpu", "--ranks", "2", "--out", str(tmp_path / "page.html")]) == 1
    table = capsys.readouterr().out
    assert "It failed: RuntimeError: CUDA out of memory" in table and "2 ranks" in table


def test_what_was_measured_before_an_interrupt_is_kept(tmp_path, capsys, tiny, monkeypatch):
    of_rows(monkeypatch, ROWS[4], Row("asked too late", is_interrupted), ROWS[1])
    page = tmp_path / "page.html"
    assert main(["gpus", "--cpu", "--ranks", "2", "--out", str(page)]) == 130
    shown = capsys.readouterr()
    assert "interrupted; what was measured so far is kept" in shown.err
    assert ROWS[4].question in shown.out and ROWS[1].question not in shown.out
    assert records.load(page.with_suffix(".json"))


def test_the_slow_pairs_are_named():
    place = Place(hosts=1, ranks_per_host=3)
    pairs = {"0 to 1": 0.001, "1 to 0": 0.001, "1 to 2": 0.01}
    rates = [place.record(pair, [[s]], experiment="x", nbytes=10**6) for pair, s in pairs.items()]
    figures = {what: figure for what, figure, _ in ROWS[0].lines(rates)}
    assert figures["the slowest, 1 to 2"] == "0.1 GB/s" and figures["these are slow"] == "1 to 2"
    assert figures["slow: below 75% of the fastest"] == "1 of 3"


def test_sizes_stay_within_the_room_that_a_gpu_has():
    for room in (24 * 10**6, 2 * 2**30, 13 * 2**30, 64 * 2**30):
        sizes = Sizes.on_gpus(room, 8, networks)
        gradients = vgg11_bytes(sizes.width)
        state = sum(x.nbytes for x in shapes.resnet50(width=sizes.width))
        assert 8 * sizes.copied <= room and 20 * sizes.message <= room
        assert 4 * sizes.summed <= room and 3 * gradients <= room and 4 * state <= room
        assert sizes.width == 1 or networks(2 * sizes.width) > room
    assert Sizes.on_gpus(64 * 2**30, 8, networks).summed == 2**30 and sizes.width == 1
    with pytest.raises(ValueError, match=r"need 2\.92 MiB for each rank"):
        Sizes.on_gpus(10**6, 8, networks)


def test_two_ranks_are_too_few_for_ten_messages(tmp_path, capsys, tiny, monkeypatch):
    of_rows(monkeypatch, ROWS[5], ROWS[6])
    assert main(["gpus", "--cpu", "--ranks", "2", "--out", str(tmp_path / "page.html")]) == 0
    table = capsys.readouterr().out
    assert "It takes 3 ranks." in table and "1 pair" in table


def test_a_message_that_did_not_arrive_is_a_row_that_failed(monkeypatch):
    lost = {"sends": lambda rank, tensors: {0: torch.ones(1)}}
    monkeypatch.setattr(ways_to_send, "WAYS", lost | {"copies": None})
    with pytest.raises(ArithmeticError, match="sends: somebody did not get what was sent"):
        ROWS[5].measure(Place(hosts=1, ranks_per_host=3), TINY)


@pytest.mark.exhaustive
def test_the_quick_page_by_gloo_ends_within_three_minutes(tmp_path, capsys):
    start = time.perf_counter()
    assert main(["gpus", "--cpu", "--quick", "--out", str(tmp_path / "page.html")]) == 0
    assert time.perf_counter() - start < 180 and "estimated: " in capsys.readouterr().err
