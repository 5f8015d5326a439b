"""Sums through DDP and sums behind compute, at tiny sizes: relations only."""

import pytest

from labkit import launch
from labkit.lessons.gloo_scaling import gloo_rungs
from labkit.measure.records import Tier


@pytest.mark.timed
def test_overlap_has_all_four_steps_and_says_what_stays_exposed():
    records = {r.case: r for r in gloo_rungs.overlap(1, count=4, shape=(1000,), iters=3)}
    assert [len(record.seconds) for record in records.values()] == [3] * 4
    compute, sums = records["compute alone"], records["sums alone"]
    in_turn, overlapped = records["one after the other"], records["overlapped"]
    assert all(record.tier is Tier.MEASURED for record in records.values())
    for record in (in_turn, overlapped):
        exposed = max(0, record.summary.median - compute.summary.median)
        assert record.values["exposed"] == pytest.approx(exposed)
        assert record.values["hidden"] == pytest.approx(max(0, 1 - exposed / sums.summary.median))
    assert in_turn.summary.median > min(sums.seconds)


def test_ddp_makes_one_call_of_many_and_belongs_to_the_ladder():
    plain, hooked = gloo_rungs.through_ddp(count=64, iters=3)
    assert [plain.case, hooked.case] == ["DDP", "DDP, fp16 hook"]
    for record in (plain, hooked):
        assert record.params["part"] == "ladder"
        assert record.params["way"] == record.case
        assert (record.world_size, len(record.seconds)) == (2, 3)


def test_a_wrong_sum_is_not_timed():
    def program():
        gloo_rungs.ThroughDDP.__call__ = lambda self, tensors, pair: None
        gloo_rungs.ddp_program("DDP", 2, 1)

    with pytest.raises(AssertionError, match="Tensor-likes are not equal"):
        launch(program, world_size=2)
