"""What lesson 05 claims: each claim holds for figures that bear it out, and fails for others."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from course.lessons.pipeline_p2p import experiment
from labkit.measure.records import load
from tests.course.lessons.cells import Cells, ClaimFailed

LESSON = Cells("05_pipeline_p2p")


@pytest.fixture(scope="module")
def recorded():
    return {record.case: record for record in load(experiment.RECORDING, recorded=True)}


def test_what_earlier_receives_win_is_judged(recorded):
    before, after = recorded["eager 1f1b, ordered"], recorded[str(experiment.EARLIER)]
    true = {"left": 52.0, "mine": (1, 1, 1), "before": before, "after": after}
    words = "at least a quarter of the step is gone"
    slow = replace(after, samples=before.samples)
    LESSON.hold("earlier-claims", true=true, false=true | {"after": slow}, words=words)
    other = replace(after, values=after.values | {"gradients": ["0"]})
    same = "the gradients are the same"
    LESSON.hold("earlier-claims", true=true, false=true | {"after": other}, words=same)
    LESSON.run("earlier-claims", **true | {"after": slow, "mine": (0, 1, 0)})


@pytest.mark.parametrize(
    ("held", "told"), [(0.0, nullcontext()), (24.0, pytest.raises(ClaimFailed))]
)
def test_the_frame_goes_with_tags_or_it_is_not_the_queue(recorded, monkeypatch, held, told):
    usual = recorded["eager 1f1b, ordered"]
    runs = [
        replace(usual, values=usual.values | {"rounds": [{"frame": ms / 1e3}] * 3})
        for ms in (25.0, held)
    ]
    monkeypatch.setattr(experiment, "pipelines", lambda *_: runs)
    with told:
        LESSON.run("tags")


def test_b0_on_one_rank_alone_is_longer_and_the_models_frame_with_it():
    usual, longer = experiment.MYSTERY.work, experiment.LONGER.work
    tasks = [task for rank in experiment.PLAN for task in rank]
    changed = [task for task in tasks if usual.seconds(task) != longer.seconds(task)]
    assert [(str(task), task.stage) for task in changed] == [("B0", 2)]
    usual, longer = (
        experiment.frame_of(experiment.modelled(case, leg=0.008)).seconds
        for case in (experiment.MYSTERY, experiment.LONGER)
    )
    assert longer == pytest.approx(usual + 0.05)


def test_without_links_the_recorded_run_bears_the_lesson_out(monkeypatch, tmp_path):
    """The cells one after the other, as on a machine that cannot build links between hosts."""
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")
    monkeypatch.setenv("COURSE_GATES", "open")
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))
    names = LESSON.run(
        "mystery-picture",
        "vote",
        "board",
        "try-bubble",
        "try-links",
        "try-stages",
        "try-b0",
        "verdict",
        "tags",
    )
    assert {names[name].tier for name in ("mystery", "slow", "fast", "longer", "free")} == {
        "RECORDED"
    }
    assert names["board"].left == ["d"]


def test_every_claim_is_tried():
    assert LESSON.untried(__file__) == []
