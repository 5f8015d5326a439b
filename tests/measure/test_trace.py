import statistics
import threading
import time
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from labkit import launch
from labkit.measure import trace
from labkit.measure.timeline import Timeline
from labkit.measure.trace import Clock, Kind, Tracer
from tests.rehearsal.box import sitecustomize as box

DELAY = 0.020


def late_rank(late: int, steps: int):
    tracer = Tracer.aligned()
    tensor = torch.ones(1000)
    for _ in range(steps):
        dist.barrier()
        with tracer.span("work", Kind.COMPUTE):
            time.sleep(0.005 + (DELAY if dist.get_rank() == late else 0.0))
        with tracer.collective("sum", nbytes=tensor.nbytes):
            dist.all_reduce(tensor)
        tracer.next_step()
    return tracer.trace()


@pytest.mark.timed
def test_an_injected_delay_is_attributed_to_its_rank_within_ten_percent():
    # Another program may hold up any rank for longer than the delay: then look again. An
    # attribution that is wrong is wrong every time.
    seen = []
    for _ in range(8):
        arrivals = Timeline(launch(late_rank, 2, 11, world_size=4)).steps(1).arrivals()
        delays = [arrival.straggler_delay for arrival in arrivals if arrival.last == 2]
        seen.append(statistics.median(delays) if len(delays) >= 6 else 0.0)
        if seen[-1] == pytest.approx(DELAY, rel=0.1):
            return
    pytest.fail(f"rank 2's delay of {DELAY} s was seen as {seen}")


@pytest.mark.timed
def test_ranks_under_one_kernel_share_its_clock_and_barriers_agree_with_it():
    def program():
        kernel = trace._agree()
        trace._kernel_identity = lambda: None  # as where the clock cannot be named
        return kernel, trace._agree()

    for kernel, estimated in launch(program, world_size=3):
        assert kernel.offset == 0.0 < kernel.error < 1e-6
        # The true offset is 0 here, so the stated error must cover the estimate.
        assert abs(estimated.offset) <= estimated.error + 1e-6


@pytest.mark.timed
def test_a_launched_collective_ends_by_itself_and_only_the_wait_is_exposed():
    def program():
        tracer = Tracer.aligned()
        tensor = torch.ones(100_000)
        time.sleep(0.15 * dist.get_rank())  # so that rank 0's collective is surely under way
        launched = tracer.launch("sum", lambda: dist.all_reduce(tensor, async_op=True))
        with tracer.span("busy elsewhere", Kind.COMPUTE):
            time.sleep(0.3)
        launched.wait()
        return tracer.trace(), float(tensor[0])

    results = launch(program, world_size=2)
    assert [value for _, value in results] == [2.0, 2.0]
    timeline = Timeline([trace for trace, _ in results])
    assert timeline.hidden(0) > 0.05
    (arrival,) = timeline.arrivals()
    assert arrival.last == 1 and arrival.begins[1] - arrival.begins[0] > 0.05


def test_a_trace_is_refused_while_a_collective_is_running():
    def program():
        tracer = Tracer.aligned()
        pair = dist.new_group([0, 1])

        def begin():
            return dist.all_reduce(torch.ones(4), group=pair, async_op=True)

        if dist.get_rank() == 0:
            launched = tracer.launch("sum", begin)
            with pytest.raises(RuntimeError, match="1 launched collectives have not ended"):
                tracer.trace(timeout=0.2)
            dist.barrier()  # now let rank 1 join in
            launched.wait()
            return len(tracer.trace().spans)
        dist.barrier()
        begin().wait()
        return None

    assert launch(program, world_size=2)[0] == 2  # the collective, and the wait for it


@pytest.mark.slow
@pytest.mark.timed
def test_the_hook_shows_what_ddp_calls_and_averages_as_ddp_does():
    def program():
        def model():
            torch.manual_seed(1)
            layers = [torch.nn.Linear(40, 40) for _ in range(6)]
            return DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.02)

        tracer = Tracer.aligned()
        plain, hooked = model(), model()
        hooked.register_comm_hook(None, tracer.ddp_hook)
        batch = torch.full((2, 40), 1.0 + dist.get_rank())
        for one in (plain, hooked, hooked):
            one.zero_grad()
            one(batch).sum().backward()  # in the second step DDP arranges its buckets anew
        hooked.zero_grad()
        tracer.next_step()
        dist.barrier()
        time.sleep(0.1 if dist.get_rank() == 2 else 0.0)
        with tracer.span("backward", Kind.COMPUTE):
            hooked(batch).sum().backward()
        for one, other in zip(plain.parameters(), hooked.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
        return tracer.trace()

    timeline = Timeline(launch(program, world_size=3)).steps(1)
    assert len(timeline.arrivals()) >= 2, "several buckets"
    delays = timeline.straggler_delays()
    assert max(delays, key=delays.get) == 2 and 0.05 < delays[2] < 0.2
    split = timeline.split()
    waits = [split.seconds(rank, Kind.WAIT) for rank in range(3)]
    assert min(waits[:2]) > 0.05 > waits[2]
    assert max(split.seconds(rank, Kind.COMPUTE) for rank in range(2)) < 0.05, "it waits inside"


class Event(box.Event):
    """On a stream that comes to be behind Python."""

    behind = 0.0

    def record(self, stream=None):
        super().record(stream)
        self.at += self.behind


def test_on_a_gpu_a_span_lasts_from_event_to_event_on_whatever_thread(monkeypatch):
    """A callback of gloo's comes on a thread of its own; CPU tensors are timed by the clock."""
    monkeypatch.setenv("BOX_GPUS", "2")
    monkeypatch.setattr(box.here, "device", 1)  # this thread's; another's is 0
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(torch.cuda, "current_stream", box.current_stream)
    monkeypatch.setattr(trace, "device", lambda: torch.device("cuda", 1))
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    tracer = Tracer(Clock(0.0, 0.0), 1)
    monkeypatch.setattr(Event, "behind", 2.0)
    with tracer.span("step", Kind.COMPUTE):
        time.sleep(0.02)
    tracer.record("read from the clock", Kind.INPUT, 1.0, 3.0)
    now = time.perf_counter()
    for name, tensors in {"of the CPU": [torch.ones(1)], "of NCCL's": []}.items():
        future = torch.futures.Future()
        tracer.launch(name, lambda future=future: SimpleNamespace(get_future=lambda: future))
        beside = threading.Thread(target=future.set_result, args=[tensors])
        beside.start()
        beside.join()
    spans = {span.name: span for span in tracer.trace().spans}
    assert (spans["read from the clock"].begin, spans["read from the clock"].seconds) == (1.0, 2.0)
    assert 0.02 <= spans["step"].seconds < 0.5
    assert max(spans[name].seconds for name in ("of the CPU", "of NCCL's")) < 0.5
    assert now < spans["of the CPU"].begin < now + 1 < spans["of NCCL's"].begin
