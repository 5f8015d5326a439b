import time

from course.lessons.gradient_all_reduce.faults import SECONDS, Fault
from labkit import launch


def test_one_rank_pauses_before_one_call():
    def program(fault):
        paused = []
        for call in range(4):
            begin = time.perf_counter()
            fault.strike(call)
            paused.append(time.perf_counter() - begin >= SECONDS)
        return paused

    calm, late = launch(program, Fault(2, 4, rank=1, call=2), world_size=2)
    assert late == [False, False, True, False] and not any(calm)


def test_a_fault_is_drawn_and_kept_secret():
    drawn = {(fault._rank, fault._call) for fault in (Fault(4, 22) for _ in range(2000))}
    assert len(drawn) == 84 and min(call for _, call in drawn) == 1
    fault = Fault(4, 22, rank=3, call=17)
    assert not set("37") & set(repr(fault))
    assert "Still sealed" in fault.reveal(None, 17)
    assert fault.is_on(3, 17) and not fault.is_on(3, 16)
    assert (
        fault.reveal(3, 5)
        == "It was rank 3, before call 17. You had the rank right, the call wrong."
    )
