"""Whatever an answer returns: it is refused in words, or still open; no line of ours is shown."""

import contextlib
import math
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from pytest import mark

from course.checks.checking import CheckFailed
from course.lessons.coalesced_broadcast import checks as checks_3
from course.lessons.eighty_gpus import checks as checks_7
from course.lessons.equivalent_collectives import checks as checks_6
from course.lessons.gloo_scaling import checks as checks_1
from course.lessons.gradient_all_reduce import checks as checks_2
from course.lessons.hang_clinic import checks as checks_5b
from course.lessons.p2p_topology import checks as checks_4
from course.lessons.pipeline_p2p import checks as checks_5

pytestmark = [mark.slow, mark.usefixtures("book")]


@dataclass
class Something:
    """Of no kind that is asked for."""

    value: float = 1.0


ODD = [
    *(None, ..., True, False, 0, 1, -1, 10**40, 1.5, math.nan, math.inf, -math.inf, 1j),
    *(Decimal("1.5"), Fraction(1, 3), timedelta(seconds=1), Path("a"), Something(), Something, len),
    *(
        "",
        " ",
        "a",
        "z",
        "a, b",
        "1,5",
        "\x00",
        "é",
        b"a",
        bytearray(2),
        memoryview(b"a"),
        range(3),
    ),
    *([], (), {}, set(), frozenset(), [[]], [None], [...], (1, 2), [1, [2, [3]]], {1: 2}),
    *({"a": None}, {(1, 2)}, [([1], [2])], (1, (2,)), deque([1]), OrderedDict(a=1), Counter("a")),
    *(np.array(1), np.array([]), torch.zeros(0), torch.zeros(2, 2), iter([1]), map(str, [1])),
]
WITHOUT_RANKS = [
    *(checks_1.check_cpus_like_ours, checks_1.check_first_slower, checks_1.check_confinement),
    *(checks_2.check_reading, checks_2.check_cap, checks_2.WHO.check, checks_2.check_turned),
    *(checks_3.WHO.check, checks_3.check_cap, checks_4.check_best_ways, checks_4.check_shares),
    *(checks_4.check_reading, checks_4.check_contention, checks_5.check_trace),
    *(checks_5.check_inference_program, checks_5.check_repair, checks_5.check_activations),
    *(checks_5.check_order, checks_5b.check_reading, checks_6.check_crossing),
    *(checks_7.check_slow_pairs, checks_7.check_placement, checks_7.check_level),
]


@mark.parametrize("check", WITHOUT_RANKS, ids=lambda check: f"{check.__module__}:{check.__name__}")
def test_whatever_is_returned_only_a_refusal_is_raised(check):
    for value in ODD:
        with contextlib.suppress(CheckFailed, NotImplementedError):
            check(lambda *args, value=value, **names: value)
            raise AssertionError(f"accepted: {value!r}")


def test_whatever_stands_for_the_verdicts_only_a_refusal_is_raised():
    for value in ODD:
        with contextlib.suppress(CheckFailed, NotImplementedError):
            checks_6.check_audit(value)
            raise AssertionError(f"accepted: {value!r}")
