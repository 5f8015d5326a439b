"""The ledger: commit a prediction, meet the measurement, and see how well you predict.

    predict("01.slope", "How much longer does a call take with every further pair?", "µs")
    ...
    reconcile("01.slope", measured=251.0, model=240.0, tier="MEASURED")

A prediction made before the first measurement counts; one made or changed afterwards is kept too,
and marked. Nothing here stops a lesson: without a prediction, a writable folder or a notebook in
front of it, `reconcile` still shows what it has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from labkit.course import ledger_file


@dataclass(frozen=True, slots=True)
class Entry:
    """A question with what was predicted, modelled and measured."""

    key: str
    question: str
    unit: str
    predicted: float | None = None
    late: bool = False
    """Whether the prediction was made when a measurement had been seen."""
    model: float | None = None
    measured: float | None = None
    tier: str = ""

    @property
    def counts(self) -> bool:
        """Whether it says something about how well the learner predicts."""
        return (
            self.predicted is not None
            and self.measured is not None
            and not self.late
            and self.predicted > 0 < self.measured
        )

    @property
    def miss(self) -> float:
        """How far the prediction is off, as a factor >= 1; defined where `counts`."""
        return math.exp(abs(math.log(self.predicted / self.measured)))


def predict(key: str, question: str, unit: str, *, value: float | None = None) -> None:
    """Show a form in which the learner commits a prediction.

    Args:
        key: Names the question for ever: lesson and word, like `01.slope`.
        question: The question, in full.
        unit: Unit of the answer, like `µs`; `x` for a ratio.
        value: Commits this value at once, for who prefers code to a form.

    Example:
        >>> predict("00.latency", "How long does one all_reduce of 4 bytes take?", "µs", value=80)
        committed: 80 µs
    """
    with ledger_file.change() as book:
        made = book["predictions"].setdefault(key, {})
        made |= {"question": question, "unit": unit}
    if value is not None:
        commit(key, value)
        print(f"committed: {value:g} {unit}")
        return
    from labkit.course import forms

    forms.show_question(entry(key), commit=commit)


def commit(key: str, value: float) -> Entry:
    """Write a prediction into the ledger; `predict` must have asked the question."""
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"a prediction is a finite number, got {value}")
    with ledger_file.change() as book:
        made = book["predictions"].setdefault(key, {"question": key, "unit": ""})
        made |= {"value": value, "at": ledger_file.now(), "late": key in book["measurements"]}
    return _entry(book, key)


def reconcile(
    key: str,
    measured: float,
    model: float | None = None,
    *,
    tier: Any = "MEASURED",
    unit: str | None = None,
) -> None:
    """Show prediction, model and measurement side by side, and keep the measurement.

    Args:
        key: The question's key in `predict`.
        measured: The figure, in the unit of the question.
        model: What the model computes for it, if there is one.
        tier: Where the figure comes from: a `records.Tier` or its name.
        unit: Unit to show when the question was never asked.
    """
    result = {
        "measured": float(measured),
        "model": None if model is None else float(model),
        "tier": str(getattr(tier, "name", tier)),
        "at": ledger_file.now(),
    }
    with ledger_file.change() as book:
        book["measurements"][key] = result
    if unit is not None:
        book["predictions"].setdefault(key, {"question": key, "unit": unit})
    from labkit.course import forms

    forms.show_reconciled(_entry(book, key))


def entry(key: str) -> Entry:
    """Return one question's entry."""
    return _entry(ledger_file.load(), key)


def entries() -> list[Entry]:
    """Return all questions, in the order of their keys."""
    book = ledger_file.load()
    return [_entry(book, key) for key in sorted({*book["predictions"], *book["measurements"]})]


def keep(name: str, values: dict[str, Any]) -> None:
    """Keep values for later lessons, like this machine's passport. They must fit into JSON."""
    with ledger_file.change() as book:
        book["kept"][name] = values | {"kept_at": ledger_file.now()}


def recall(name: str) -> dict[str, Any] | None:
    """Return what `keep` kept under the name; None if nothing was."""
    return ledger_file.load()["kept"].get(name)


def passed(number: str) -> None:
    """Note that an exercise's check passed."""
    with ledger_file.change() as book:
        book["passed"].setdefault(number, ledger_file.now())


def finished(lesson: str) -> None:
    """Note that a lesson was run to its end; its last cell calls it: `finished("01")`."""
    with ledger_file.change() as book:
        book["finished"].setdefault(lesson, ledger_file.now())


def _entry(book: dict[str, Any], key: str) -> Entry:
    made = book["predictions"].get(key, {})
    result = book["measurements"].get(key, {})
    return Entry(
        key=key,
        question=made.get("question", key),
        unit=made.get("unit", ""),
        predicted=made.get("value"),
        late=made.get("late", False),
        model=result.get("model"),
        measured=result.get("measured"),
        tier=result.get("tier", ""),
    )
