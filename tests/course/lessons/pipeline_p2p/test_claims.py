"""What lesson 05 claims: each claim holds for figures that bear it out, and fails for others."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from course.lessons.pipeline_p2p import experiment
from course.lessons.pipeline_p2p.programs import WAYS, work_in_line
from course.lessons.pipeline_p2p.schedules import SCHEDULES
from course.place import Place
from labkit.measure.records import Tier
from tests.course.lessons.cells import Cells, ClaimFailed

LESSON = Cells("05_pipeline_p2p", display=lambda shown: None)
RECORDED = experiment.recorded()


def test_what_an_order_wins_is_judged():
    ways = {"queue": "ordered", "yours": "ordered, by_begin", "tags": "tagged"}
    by_name = {
        name: {arm: RECORDED[f"{name}, {way}"] for arm, way in ways.items()} for name in SCHEDULES
    }
    yours = by_name["gpipe"]["yours"]
    slow = replace(yours, samples=by_name["gpipe"]["queue"].samples)
    other = replace(yours, values=yours.values | {"gradients": ["0"]})
    for wrong, words in (
        (slow, "GPipe, yours: at least a tenth of the step is gone"),
        (other, "GPipe: the gradients are the same"),
    ):
        false = {"by_name": by_name | {"gpipe": by_name["gpipe"] | {"yours": wrong}}}
        LESSON.hold("order-claims", true={"by_name": by_name}, false=false, words=words)


BEST_ORDERS = [
    ("EMULATED", 0.342, ""),
    ("EMULATED", 0.4, "a better one"),
    ("MEASURED", 0.3, "200 Mbit/s"),
]


@pytest.mark.parametrize(("tier", "predicted", "told"), BEST_ORDERS)
def test_the_bet_on_the_best_order_is_judged_by_one_as_good_on_such_links(
    monkeypatch, capsys, tier, predicted, told
):
    queued, ordered = (RECORDED[f"gpipe, {way}"] for way in ("ordered", "ordered, by_begin"))
    runs = {"queue": queued, "yours": replace(ordered, tier=Tier(tier), predicted=predicted)}
    monkeypatch.setattr(experiment, "every_schedule", lambda *_, **__: {"gpipe": runs})
    judged = []
    names = {"reconcile": lambda key, *_, **__: judged.append(key), "arms": {}}
    LESSON.run("yours", work_in_line=work_in_line, **names)
    assert judged == ([] if told else ["05.best"])
    assert told in capsys.readouterr().out


SHOWN = [("the-queue", work_in_line), *(("three-ways", way) for way in WAYS.values())]


@pytest.mark.parametrize(("cell", "program"), SHOWN)
def test_the_lesson_shows_the_queue_and_the_three_ways_that_run(cell, program):
    shown, ran = LESSON.both(cell, program)
    assert shown == ran


FRAMES = [(0.0, nullcontext()), (24.0, pytest.raises(ClaimFailed))]


@pytest.mark.parametrize(("held", "told"), FRAMES)
def test_the_frame_goes_with_tags_or_it_is_not_the_queue(monkeypatch, held, told):
    usual = RECORDED["eager 1f1b, ordered"]
    rounds = [[{"frame": ms / 1e3}] * 3 for ms in (25.0, held)]
    runs = [replace(usual, values=usual.values | {"rounds": each}) for each in rounds]
    monkeypatch.setattr(experiment, "pipelines", lambda *_: runs)
    with told:
        LESSON.run("tags")


def test_b0_on_one_rank_alone_is_longer_and_the_models_frame_with_it():
    usual, longer = experiment.MYSTERY.work, experiment.LONGER.work
    tasks = [task for rank in experiment.PLAN for task in rank]
    changed = [task for task in tasks if usual.seconds(task) != longer.seconds(task)]
    assert [(str(task), task.stage) for task in changed] == [("B0", 2)]
    usual, longer = (
        experiment.frame(experiment.modelled(case, leg=0.008)).seconds
        for case in (experiment.MYSTERY, experiment.LONGER)
    )
    assert longer == pytest.approx(usual + 0.05)


def test_without_links_the_recorded_run_bears_the_lesson_out(monkeypatch, tmp_path):
    """The cells one after the other, as on a machine that cannot build links between hosts."""
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")
    monkeypatch.setenv("COURSE_GATES", "open")
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))
    tests = ("try-bubble", "run-links", "try-links", "try-stages", "run-b0", "try-b0")
    names = LESSON.run("mystery-picture", "vote", "board", *tests, "verdict", "tags")
    for name in ("mystery", "slow", "fast", "longer", "free"):
        assert names[name].tier == "RECORDED"
    assert names["board"].left == ["d"]


def test_ten_copies_are_judged_by_what_arrived(capsys):
    """With the CPU in the place of the other two GPUs: only rank 0 copies, and sees what came."""
    to_the_cpu = SimpleNamespace(full=torch.full, device=lambda *gpu: "cpu")
    names = LESSON.imported | {"torch": to_the_cpu}
    exec(compile(LESSON.sources["three-ways"], "three-ways", "exec"), names)

    def loses_one(rank, tensors):
        arrived = names["copies"](rank, tensors)
        return arrived | {9: torch.zeros(64)} if arrived else {}

    ways = {"copies": names["copies"], "a copy lost": loses_one}
    experiment.ten_messages(Place(hosts=1, ranks_per_host=3), ways, 64)
    assert capsys.readouterr().out.splitlines() == [
        "copies: every rank has its messages: True",
        "a copy lost: every rank has its messages: False",
    ]
