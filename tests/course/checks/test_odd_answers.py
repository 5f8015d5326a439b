"""Whatever an answer returns: it is refused in words, or still open; no line of ours is shown."""

import contextlib
import math
import time
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from pytest import mark

from course.checks import checking
from course.checks.checking import CheckFailed
from course.lessons.coalesced_broadcast import checks as checks_3
from course.lessons.eighty_gpus import checks as checks_7
from course.lessons.equivalent_collectives import checks as checks_6
from course.lessons.gloo_scaling import checks as checks_1
from course.lessons.gradient_all_reduce import checks as checks_2
from course.lessons.hang_clinic import checks as checks_5b
from course.lessons.hang_clinic import run_case
from course.lessons.p2p_topology import checks as checks_4
from course.lessons.pipeline_p2p import checks as checks_5
from course.place import launch
from labkit.ranks.parcel import Parcel

pytestmark = [mark.slow, mark.usefixtures("book")]


@dataclass
class Something:
    """Of no kind that is asked for."""

    value: float = 1.0


ODD = [
    *(None, ..., True, False, 0, 1, -1, 10**40, 1.5, math.nan, math.inf, -math.inf, 1j),
    *(Decimal("1.5"), Fraction(1, 3), timedelta(seconds=1), Path("a"), Something(), Something, len),
    *("", " ", "a", "z", "a, b", "1,5", "\x00", "é"),
    *(b"a", bytearray(2), memoryview(b"a"), range(3)),
    *([], (), {}, set(), frozenset(), [[]], [None], [...], (1, 2), [1, [2, [3]]], {1: 2}),
    *({"a": None}, {(1, 2)}, [([1], [2])], (1, (2,)), deque([1]), OrderedDict(a=1), Counter("a")),
    *(np.array(1), np.array([]), torch.zeros(0), torch.zeros(2, 2), iter([1]), map(str, [1])),
]


def check_audit(verdicts):
    """Judge what stands for the verdicts, which are a value in its cell."""
    checks_6.check_audit(verdicts())


WITHOUT_RANKS = [
    *(checks_1.check_cpus_like_ours, checks_1.check_first_slower, checks_1.check_confinement),
    *(checks_2.check_reading, checks_2.check_cap, checks_2.WHO.check, checks_2.check_turned),
    *(checks_3.WHO.check, checks_3.check_cap, checks_4.check_best_ways, checks_4.check_shares),
    *(checks_4.check_reading, checks_4.check_contention, checks_5.check_trace),
    *(checks_5.check_inference_program, checks_5.check_repair, checks_5.check_activations),
    *(checks_5.check_order, checks_5b.check_reading, check_audit, checks_6.check_crossing),
    *(checks_7.check_slow_pairs, checks_7.check_placement, checks_7.check_level),
]
CURE, *OTHER_CURES = [partial(checks_5b.check_cure, number) for number in checks_5b.CURES]
ON_RANKS = [checks_1.check_who_pays, checks_2.check_overlap, CURE]
IN_PLACE = [  # nobody reads what these answers return, or it is read as the first cure's
    *OTHER_CURES,
    *(checks_1.check_shared_sum, checks_2.check_average, checks_3.check_coalesce),
    *(checks_3.check_repaired, checks_4.check_relay, checks_5.check_consume),
    *(checks_6.check_ring_all_reduce, checks_6.check_broadcast_in_turn),
    *(checks_6.check_recursive_doubling, checks_7.check_rails),
]


def hold_to_refusals(check, answer, odd=ODD):
    """Have a check refuse whatever `answer` makes of each value: nothing else comes out of it."""
    for value in odd:
        with contextlib.suppress(CheckFailed, NotImplementedError):
            check(lambda *args, value=value, **names: answer(value, *args, **names))
            raise AssertionError(f"accepted: {value!r}")


@mark.parametrize("check", WITHOUT_RANKS, ids=lambda check: f"{check.__module__}:{check.__name__}")
def test_whatever_is_returned_only_a_refusal_is_raised(check):
    hold_to_refusals(check, first)


def test_whatever_is_returned_on_ranks_only_a_refusal_is_raised():
    launch(judge_all_on_one_rank, world_size=1, timeout=100)


def judge_all_on_one_rank():
    """Run each check's programs here, on the one rank that there is, which plays all of theirs."""
    with contextlib.ExitStack() as patches:
        for module in (checking, run_case):
            patches.enter_context(mock.patch.object(module, "launch", here))
        patches.enter_context(mock.patch.object(dist, "isend"))  # 5.4's own: nobody receives here
        patches.enter_context(mock.patch.object(time, "sleep"))  # of ranks that are late
        hold_to_refusals(checks_1.check_time_call, after_the_calls)
        hold_to_refusals(checks_1.check_who_pays, lambda value, *_: (value, "b"))
        hold_to_refusals(checks_1.check_who_pays, lambda value, *_: ({"thin": value}, "b"))
        for check in ON_RANKS:
            hold_to_refusals(check, first)
        for check in IN_PLACE:
            hold_to_refusals(check, first, ODD[:2])


def first(value, *args, **names):
    return value


def after_the_calls(value, call, *, warmup=5, iters=20):
    for _ in range(warmup + iters):
        call()
    return value


def here(program, *args, world_size, **options):
    """Return what each rank of a launch would, as it travels from there."""
    results = []
    for rank in range(world_size):
        with mock.patch.object(dist, "get_rank", lambda group=None, rank=rank: rank):
            results.append(Parcel.of(program(*args)).load())
    return results
