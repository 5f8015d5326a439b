"""`labkit run gpu`: without a GPU it says what it would do; with one, everything in one file."""

import functools

import pytest
import torch

from course import author, catalogue
from course import gpus as one
from course.__main__ import main
from course.lessons.eighty_gpus import gpu, pictures
from labkit.measure import records
from labkit.show import alt_text


@pytest.mark.skipif(torch.cuda.is_available(), reason="says so where there is none")
def test_without_a_gpu_it_says_what_it_would_do(capsys, tmp_path):
    out = tmp_path / "gpu.json"
    assert main(["run", "gpu", "--out", str(out)]) == 0
    told = capsys.readouterr()
    assert "there is no GPU here: nothing is measured" in told.err
    assert "Nothing was measured here: no file is written" in told.out
    for lesson, _, asked, _ in gpu.PLAN:
        assert lesson in told.out and asked in told.out
    assert not out.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is something to record")
def test_nothing_is_recorded_where_nothing_was_measured():
    with pytest.raises(RuntimeError, match="nothing was measured here"):
        author.record(catalogue.experiment("gpu"))


def test_every_part_of_the_plan_belongs_to_lessons_that_there_are():
    numbers = {lesson.number for lesson in catalogue.find().values()}
    assert {number for lesson, *_ in gpu.PLAN for number in lesson.split(", ")} <= numbers


def test_with_a_device_all_of_it_lands_in_one_file(monkeypatch, capsys, tmp_path):
    """The whole command, with the CPU in the GPU's place and small sizes."""
    small = {
        one.copies: {"shape": (2, 3), "n": 8}, one.directions: {"nbytes": 4096},
        one.launches: {"nbytes": 16 * one.PIECES}, one.lent_memory: {"nbytes": 4096},
        one.beside: {"n": 8, "products": 2, "nbytes": 64, "copies": 1},
    }  # fmt: skip
    plan = [
        (lesson, functools.partial(measure, device="cpu", **small[measure]), asked, kept)
        for lesson, measure, asked, kept in gpu.PLAN
        if measure in small
    ]
    plan.append(gpu.PLAN[-1])  # ranks that share a GPU: not here, and it is said why
    monkeypatch.setattr(gpu, "PLAN", plan)
    monkeypatch.setattr(gpu, "gpu_count", lambda: 1)
    monkeypatch.setattr(gpu.one_gpu, "why_not", lambda: "It is too old.")
    out = tmp_path / "gpu.json"
    assert main(["run", "gpu", "--quick", "--out", str(out)]) == 0
    told = capsys.readouterr()
    assert "crossed sends: not measured. It is too old." in told.err
    assert "pinned, non_blocking, own stream" in told.out
    found = records.load(out)
    assert len(found) == 27 and {record.experiment for record in found} == {gpu.NAME}
    assert len(alt_text.text_of(pictures.draw(found).axes[0])) > 200
