"""Check of exercise 2.2: a plan of buckets."""

from collections.abc import Callable, Sequence

from labkit.comm import shapes
from labkit.comm.buckets import plan as reference_plan
from labkit.course import checking
from labkit.course.checking import CheckFailed

Plan = Callable[[Sequence[int], int, int], list[list[int]]]


def check_plan(plan: Plan) -> None:
    """Judge exercise 2.2 on the gradients of two networks and on awkward lists.

    Raises:
        CheckFailed: a rule of the plan is broken; says which, and where.
    """
    with checking.exercise("2.2", par="as few buckets as the caps allow") as verdict:
        cases = {
            "three equal tensors": ([4, 4, 4], 8, 4),
            "a tensor above the cap in the middle": ([3, 100, 3, 3], 8, 8),
            "exactly full": ([4, 4, 4, 4], 8, 8),
            "one tensor": ([5], 1, 1),
            "VGG11": ([s.nbytes for s in shapes.vgg11()], 25_000_000, 1_000_000),
            "ResNet50": (
                [s.nbytes for s in shapes.parameters_only(shapes.resnet50())],
                25_000_000,
                1_000_000,
            ),
        }
        for what, (nbytes, cap, first_cap) in cases.items():
            _judge_plan(plan(list(nbytes), cap, first_cap), nbytes, cap, first_cap, what)
        verdict.reached = "that, on six lists of tensors"


def _judge_plan(got, nbytes, cap: int, first_cap: int, what: str) -> None:
    n = len(nbytes)
    if not isinstance(got, list) or not all(isinstance(bucket, list | tuple) for bucket in got):
        raise CheckFailed(f"{what}: a list of lists of places", repr(got), "no `return`, perhaps")
    places = [place for bucket in got for place in bucket]
    if sorted(places) != list(range(n)):
        lost = sorted(set(range(n)) - set(places))
        meaning = (
            "the last bucket is never closed: add it when the loop is over"
            if lost and lost == list(range(len(lost)))
            else "a tensor that starts a new bucket must not be dropped, or put in twice"
        )
        raise CheckFailed(
            f"{what}: every place from 0 to {n - 1} once", f"missing {lost}" if lost else
            f"{len(places)} places for {n} tensors", meaning,
        )  # fmt: skip
    if any(not bucket for bucket in got):
        raise CheckFailed(
            f"{what}: no empty bucket", f"{got[:4]}",
            "close a bucket only if something is in it: a first tensor above the cap finds "
            "it empty",
        )  # fmt: skip
    if places != list(reversed(range(n))):
        meaning = (
            "backward computes the last gradients first: go through the list backwards"
            if places == list(range(n))
            else "do not sort by size: buckets must fill in the order in which gradients come"
        )
        raise CheckFailed(f"{what}: places {n - 1}, {n - 2}, ...", f"{places[:6]}...", meaning)
    for number, bucket in enumerate(got):
        limit, held = first_cap if number == 0 else cap, sum(nbytes[place] for place in bucket)
        if held > limit and len(bucket) > 1:
            meaning = (
                "the first bucket has its own, smaller cap"
                if number == 0 and held <= cap
                else "look before you put a tensor in: would the bucket be over its cap?"
            )
            raise CheckFailed(
                f"{what}: bucket {number} has at most {limit} bytes", f"{held} bytes", meaning
            )
    fewest = _fewest(nbytes, cap, first_cap)
    checking.at_most(
        len(got), fewest, what=f"{what}: number of buckets", unit="buckets",
        meaning="a bucket was closed although the next tensor would have fitted",
    )  # fmt: skip


def _fewest(nbytes, cap: int, first_cap: int) -> int:
    specs = [shapes.TensorSpec(str(size), (size,), "int8") for size in nbytes]
    return len(reference_plan(specs, cap=cap, first_cap=first_cap, reverse=True))
