"""What a lesson says of the learner's own run: held, not on this run, or not judged.

    claim([late > 1.5 * calm for late, calm in rounds], "the late rank costs half as much again",
          measured=..., records=[run])

A claim never ends a lesson. It is judged as the board's tests are (`course.predictions.judging`):
rounds decide by agreeing; a single figure only where the machine was calm, both ways. Where all
that it is judged by was recorded elsewhere, the line says so.
"""

from collections.abc import Iterable

from course.predictions import judging
from course.predictions.figures import written
from course.predictions.judging import Rounds
from labkit.measure.records import Record, Tier

HELD, NOT_HELD, NOT_JUDGED = "held", "not on this run", "not judged"
BY_THE_CLOCK = "by the clock"
"""Stands in the first line of a check's refusal that a busy machine may have caused."""


def claim(
    holds: Rounds,
    expected: str,
    *,
    measured: object,
    records: Iterable[Record] = (),
    exact: bool = False,
    ratio: bool = False,
) -> None:
    """Say in a line whether the learner's run shows what the lesson claims.

    Args:
        holds: Whether it does; or of each round whether it does, in a list.
        expected: The claim, in words.
        measured: What was measured.
        records: From which it was computed; they know what other programs used meanwhile. Without,
            what they used in the cells that ran since the last claims.
        exact: Whether noise cannot have made it: a count, arithmetic, a published figure.
        ratio: Whether it is a ratio of times; see `judging.judge`.

    Example:
        >>> rounds = [1.9, 2.0, 2.2]
        >>> expected = "twice the pairs take over 1.5 times as long"
        >>> claim([ratio > 1.5 for ratio in rounds], expected, measured=2.0)
        ✔ held: twice the pairs take over 1.5 times as long (measured: 2)
    """
    seen = tuple(records)
    others = None if exact else judging.others_in(seen)
    judged = judging.judge(holds, others=others, ratio=ratio)
    recorded = {record.tier for record in seen} == {Tier.RECORDED}
    verdicts = {True: f"✔ {HELD}", False: f"✘ {NOT_HELD}", None: f"– {NOT_JUDGED}"}
    figure = written(measured) if isinstance(measured, float) else str(measured)
    why = f" ({judged.why_not})" if judged.why_not else ""
    where = ", in the recording" if recorded else ""
    print(f"{verdicts[judged.outcome]}{where}{why}: {expected} (measured: {figure})")
