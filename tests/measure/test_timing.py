"""The stopwatch: what it counts, what it leaves out, and what samples come to."""

import time
from types import SimpleNamespace

import torch
import torch.distributed as dist
from pytest import approx, mark

from labkit import launch
from labkit.measure.timing import Summary, summarize, time_calls


@mark.timed
def test_samples_are_in_order_and_last_as_long_as_the_call():
    naps = iter([0.0, 0.03, 0.001, 0.06])
    first, second, third = time_calls(lambda: time.sleep(next(naps)), warmup=1, iters=3)
    assert first >= 0.03 and third >= 0.06 and second < third


@mark.timed
def test_the_wait_for_the_others_is_left_out():
    def program():
        x = torch.ones(1)
        aligned, drifting = [], []
        for _ in range(5):
            time.sleep(0.05 * dist.get_rank())  # rank 1 idles between its calls
            aligned += time_calls(lambda: dist.all_reduce(x), warmup=0, iters=1)
            time.sleep(0.05 * dist.get_rank())
            begin = time.perf_counter()
            dist.all_reduce(x)
            drifting.append(time.perf_counter() - begin)
        return summarize(aligned).median, summarize(drifting).median

    aligned, drifting = launch(program, world_size=2)[0]
    assert drifting > 0.04, "without a barrier the early rank times its wait for the late one"
    assert aligned < drifting / 2


@mark.timed
def test_a_work_that_is_returned_is_waited_for():
    def program():
        def call(returned):
            if dist.get_rank():
                time.sleep(0.05)
            work = dist.all_reduce(torch.ones(1), async_op=True)
            works.append(work)
            return returned(work)

        works = []
        ways = (lambda work: work, lambda work: [work], lambda work: None)
        samples = [time_calls(lambda way=way: call(way), warmup=0, iters=3) for way in ways]
        works[-1].wait()
        return [min(seconds) for seconds in samples]

    one, several, none = launch(program, world_size=2)[0]
    assert one > 0.04 and several > 0.04
    assert none < 0.04, "who returns no Work is not waited for"


def test_time_calls_stops_its_clock_when_work_and_gpu_are_done(monkeypatch):
    order = []
    work = SimpleNamespace(wait=lambda: order.append("wait"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: order.append("synchronize"))
    time_calls(lambda: order.append("call") or work, warmup=0, iters=2)
    assert order == ["synchronize", "call", "wait", "synchronize"] * 2


def test_a_summary_is_the_median_and_two_percentiles():
    samples = list(range(11, 0, -1))
    assert summarize(samples) == Summary(median=6, p10=2, p90=10, count=11)
    assert summarize([7.0]) == Summary(7.0, 7.0, 7.0, 1)
    between = summarize([0.0, 1.0])
    assert (between.p10, between.median, between.p90) == approx((0.1, 0.5, 0.9))


SHOWN = [(2.0, "2", "s"), (0.0123, "12.3", "ms"), (45e-6, "45", "µs"), (78e-9, "78", "ns")]


@mark.parametrize(("seconds", "number", "unit"), SHOWN)
def test_a_summary_tells_its_unit(seconds, number, unit):
    assert str(summarize([seconds] * 3)) == f"{number} {unit} ({number} to {number}, 3 samples)"
