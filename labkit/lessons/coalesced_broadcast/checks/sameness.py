"""Check of exercise 3.3: is the state the same on every rank, bit by bit, for few bytes?"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from labkit.course import checking
from labkit.course.checking import CheckFailed
from labkit.measure import wire

Same = Callable[[Sequence[torch.Tensor]], bool]
BYTES = 20_000
"""More than a fingerprint from everybody to everybody costs, less than the state."""


def check_same_everywhere(same: Same) -> None:
    """Judge exercise 3.3 on real ranks: equal states, and seven ways in which they are not.

    Raises:
        CheckFailed: a wrong answer, answers that differ between ranks, or too many bytes.
    """
    par = "right in 9 cases, below 20 kB per rank for a state of 400 kB"
    with checking.exercise("3.3", par=par) as verdict:
        ranks = checking.on_ranks(_run_all, same, world_size=3, timeout=40.0)
        for case, (_, expected, meaning) in CASES.items():
            for rank, (answers, _) in enumerate(ranks):
                _judge(answers[case], expected, f"{case}, rank {rank} of 3", meaning)
        sent = _sent([report for _, report in ranks])
        checking.at_most(
            sent / 1e3, BYTES / 1e3, what="sent per rank for a state of 400 kB", unit="kB",
            meaning="whole tensors are sent: send something short that depends on every bit",
        )  # fmt: skip
        verdict.reached = f"{sent / 1e3:.1f} kB per rank"


def _state() -> list[torch.Tensor]:
    return [
        checking.rank_data(50_000, rank=0, seed=1),
        checking.rank_data(50_000, rank=0, seed=2),
        torch.tensor([1.0, float("nan"), 0.0, -1.5]),
        torch.tensor(2**53 + 1),
    ]


def _swap(state: list[torch.Tensor]) -> None:
    state[0], state[1] = state[1], state[0]


def _last_bit(state: list[torch.Tensor]) -> None:
    state[1][49_999] = torch.nextafter(state[1][49_999], torch.tensor(1000.0))


def _sign_of_zero(state: list[torch.Tensor]) -> None:
    state[2][2] = -0.0


def _large_integer(state: list[torch.Tensor]) -> None:
    state[3] -= 1


def _compensated(state: list[torch.Tensor]) -> None:
    state[0][3] += 5
    state[0][4] -= 5


def _reshaped(state: list[torch.Tensor]) -> None:
    state[0] = state[0].view(250, 200).t().contiguous().view(-1)


CASES = {
    "the same everywhere": (None, True, "NaN is not equal to itself: compare bits, not values"),
    "the same, seen transposed on the last rank": (
        "transposed",
        True,
        "a state is equal when its elements are: take the bytes of a contiguous copy",
    ),
    "two tensors swapped on the last rank": (
        _swap, False, "the order must count: sums and XORs do not see it",
    ),
    "elements of one tensor permuted": (
        _reshaped, False, "the place of each element must count, too",
    ),
    "one last bit differs": (_last_bit, False, "every bit must count: no tolerance, no rounding"),
    "-0.0 instead of 0.0": (_sign_of_zero, False, "-0.0 == 0.0, but their bits differ"),
    "an integer beyond float32": (_large_integer, False, "large integers must stay integers"),
    "two changes that cancel": (_compensated, False, "a sum does not see changes that cancel"),
    "only rank 0 differs": (
        "rank 0", False, "compare with every rank, and tell every rank the result",
    ),
}  # fmt: skip


def _run_all(same: Same):
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    answers = {}
    for case, (change, _, _) in CASES.items():
        state = _state()
        matrix = state[0].view(250, 200)
        if change == "transposed":
            state[0] = matrix.t().contiguous().t() if rank == last else matrix
        elif change == "rank 0":
            state[0][0] += 1 if rank == 0 else 0
        elif change is not None and rank == last:
            change(state)
        answers[case] = same(state)
    with wire.meter() as meter:
        same(_state())
    return answers, meter.report


def _sent(reports) -> float:
    """Return the bytes that the busiest rank sent."""
    try:
        return float(wire.matrix(reports).sum(axis=1).max())
    except wire.WireUnavailable:
        return float(wire.counted(reports).sum(axis=1).max())


def _judge(answer, expected: bool, what: str, meaning: str) -> None:
    if answer is None:
        raise CheckFailed(f"{what}: {expected}", "None", "the function lacks a `return`")
    if bool(answer) is not expected:
        raise CheckFailed(f"{what}: {expected}", str(answer), meaning)
