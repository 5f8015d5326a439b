"""The questions, asked of gloo: its answers are known. Of NCCL they need a GPU."""

import pytest
import torch.distributed as dist

from course import waiting
from labkit.ranks import launcher, one_gpu

needs_shared_gpu = pytest.mark.skipif(bool(one_gpu.why_not()), reason=one_gpu.why_not())


def answers(records):
    return {record.case: record for record in records}


@pytest.mark.slow
def test_gloo_goes_by_the_tag_holds_python_and_deadlocks_at_any_size():
    found = waiting.measure((1 << 10, 1 << 22), device="cpu", timeout=2.0)
    assert {record.provenance.backend for record in found} == {"gloo"}
    assert not any(record.samples or record.nbytes for record in found), "no time of a link"
    order, late, *crossed = found
    assert order.values["answer"] == "tag 1 got 1, tag 2 got 2"
    assert late.values["held"]["wait"] > waiting.LATE / 2 > late.values["held"]["synchronize"]
    assert [record.values["answer"] for record in crossed] == ["hangs", "hangs"]
    assert len(crossed[0].values["calls"]) == 2
    assert str(waiting.table(found)).count("hangs") == 2


def group_of_two():
    """A process group that only pretends: torch's own, for shapes and calls."""
    pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())


@pytest.mark.parametrize(
    "program",
    [
        lambda: waiting._order_of_sends("cpu"),
        lambda: waiting._late_receiver(1 << 12, "cpu"),
        lambda: waiting.crossed_sends(1 << 12, "cpu"),
    ],
)
def test_the_calls_fit_a_fake_group(program):
    def rank():
        dist.destroy_process_group()
        group_of_two()
        program()

    launcher.launch(rank, world_size=1, timeout=20)


@needs_shared_gpu
def test_nccl_goes_by_order_and_holds_the_stream():
    found = answers(waiting.measure(timeout=20.0))
    assert found["1 and 2 sent, tag 2 asked for first"].values["answer"].startswith("tag 1 got 2")
    assert {record.provenance.backend for record in found.values()} == {one_gpu.BACKEND}
