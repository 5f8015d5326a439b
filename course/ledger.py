"""The ledger: commit a prediction, meet the measurement, and see how well you predict.

    predict("01.slope", "How much longer does a call take with every further pair?", "µs")
    ...
    reconcile("01.slope", measured=251.0, model=240.0, tier="MEASURED")

A prediction made before the first measurement counts; one made or changed afterwards is kept too,
and marked. Nothing here stops a lesson: without a prediction, a writable folder or a notebook in
front of it, `reconcile` still shows what it has.
"""

import html
import math
import re
from typing import Any

from course import ledger_file
from course.ledger_file import Entry

_NUMBER = re.compile(r"\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*(.*?)\s*")
_BOX = (
    "border-left:4px solid #0072b2;padding:.6em 1em;margin:.4em 0;max-width:46em;"
    "background:rgba(0,114,178,.07)"
)
_RECONCILED = """\
{% set cell = "padding:.15em 1.2em .15em 0;text-align:left;background:none" -%}
<div class="labkit-reconciled" style="{{ box }}"><div>{{ entry.question }}</div>
<table style="border:none;margin:.3em 0"><tbody>{% for name, value, note in rows %}
<tr style="background:none"><th scope="row" style="{{ cell }};font-weight:normal">{{ name }}</th>
<td style="{{ cell }}"><b>{{ value }}</b></td><td style="{{ cell }}">{{ note }}</td></tr>
{%- endfor %}</tbody></table><div>{{ verdict }}</div></div>"""


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
    _show_question(ledger_file.entry(book, key))


def commit(key: str, value: float) -> Entry:
    """Write a prediction into the ledger; `predict` must have asked the question."""
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"a prediction is a finite number, got {value}")
    with ledger_file.change() as book:
        made = book["predictions"].setdefault(key, {"question": key, "unit": ""})
        made |= {"value": value, "at": ledger_file.now(), "late": key in book["measurements"]}
    return ledger_file.entry(book, key)


def reconcile(
    key: str, measured: float, model: float | None = None, *, tier: Any = "MEASURED"
) -> None:
    """Show prediction, model and measurement side by side, and keep the measurement.

    Figures are in the unit of the question; the tier is a `records.Tier` or its name.
    """
    result = {
        "measured": float(measured),
        "model": None if model is None else float(model),
        "tier": str(getattr(tier, "name", tier)),
        "at": ledger_file.now(),
    }
    with ledger_file.change() as book:
        book["measurements"][key] = result
    entry = ledger_file.entry(book, key)
    if not _in_notebook():
        print(_as_text(entry))
        return
    from IPython.display import display

    display({"text/plain": _as_text(entry), "text/html": _as_html(entry)}, raw=True)


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


def _parse(text: str, unit: str) -> float:
    """Read a prediction as people type it: `250`, `2.5e2`, `250 µs`; a decimal comma is refused.

    Raises:
        ValueError: It is no number, or names another unit than the question's.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text}' is not a number. Write it like 250 or 2.5e2 (in {unit}).")
    if match[2] and _plain(match[2]) != _plain(unit):
        raise ValueError(f"the answer is asked in {unit}, not in '{match[2]}'.")
    return float(match[1])


def _show_question(entry: Entry) -> None:
    """Display the form; outside a notebook print the question and how to answer it."""
    plain = f"Your prediction? {entry.question} [{entry.unit}]"
    if not _in_notebook():
        print(f'{plain}\nAnswer in code: predict("{entry.key}", ..., value=...)')
        return
    from labkit.show import widgets

    asked = f"{html.escape(entry.question)} [{html.escape(entry.unit)}]"
    static = f'<div style="{_BOX}"><b>Your prediction?</b> {asked}</div>'
    widgets.display(_form(entry), static=static, plain=plain)


def _form(entry: Entry) -> Any:
    import ipywidgets

    question = ipywidgets.HTML(f"<b>Your prediction.</b> {html.escape(entry.question)}")
    field = ipywidgets.Text(
        value="" if entry.predicted is None else f"{entry.predicted:g}",
        placeholder="a number", description="I expect", layout=ipywidgets.Layout(width="16em"),
    )  # fmt: skip
    field.continuous_update = False  # so that a change means Enter or leaving the field
    unit = ipywidgets.HTML(html.escape(entry.unit), layout={"margin": "2px 1em 2px 2px"})
    button = ipywidgets.Button(description="Commit", button_style="primary")
    button.tooltip = "Write this prediction down"
    state = ipywidgets.HTML(_state(entry))

    def on_commit(_: Any) -> None:
        try:
            state.value = _state(commit(entry.key, _parse(field.value, entry.unit)))
        except ValueError as error:
            state.value = f"Not committed: {html.escape(str(error))}"

    button.on_click(on_commit)
    box = ipywidgets.VBox([question, ipywidgets.HBox([field, unit, button]), state])
    box.layout = ipywidgets.Layout(border_left="4px solid #0072b2", padding="0.4em 1em")
    return box.add_class("labkit-prediction")


def _state(entry: Entry) -> str:
    if entry.predicted is None:
        return "Commit a figure before you run on: a guess in writing is worth ten in hindsight."
    late = " (after a measurement was seen: it will not count)" if entry.late else ""
    return f"✔ Committed: {entry.predicted:g} {html.escape(entry.unit)}{late}"


def _as_text(entry: Entry) -> str:
    lines = [entry.question, *(f"  {name:<13} {value}" for name, value, _ in _rows(entry))]
    return "\n".join([*lines, f"  {_verdict(entry)}"])


def _as_html(entry: Entry) -> str:
    import jinja2

    return (
        jinja2.Environment(autoescape=True)
        .from_string(_RECONCILED)
        .render(box=_BOX, entry=entry, rows=_rows(entry), verdict=_verdict(entry))
    )


def _rows(entry: Entry) -> list[tuple[str, str, str]]:
    modelled = entry.tier == "MODELLED"

    def figure(value: float | None) -> str:
        return "–" if value is None else f"{value:.4g} {entry.unit}".strip()

    def ratio(value: float | None) -> str:
        if value is None or not entry.measured:
            return ""
        return f"{value / entry.measured:.2f} × {'the model' if modelled else 'the measurement'}"

    rows = [("you", figure(entry.predicted), ratio(entry.predicted))]
    if entry.model is not None:
        rows.append(("the model", figure(entry.model), f"{ratio(entry.model)} (MODELLED)"))
    where = "here and now" if entry.tier in ("MEASURED", "EMULATED") else "the measurement"
    where = "the model" if modelled else where
    return [*rows, (where, figure(entry.measured), entry.tier)]


def _verdict(entry: Entry) -> str:
    """Say in a sentence how the prediction did."""
    if entry.predicted is None:
        return "No prediction was committed; the next one is yours."
    if entry.measured is None or entry.predicted <= 0 or entry.measured <= 0:
        return "Compare the two figures yourself: a ratio makes no sense for them."
    miss = max(entry.predicted / entry.measured, entry.measured / entry.predicted)
    side = "above" if entry.predicted > entry.measured else "below"
    late = " It was written down after a measurement, so it does not count." if entry.late else ""
    if miss < 1.1:
        return f"Within 10 %: well predicted.{late}"
    if miss < 2:
        return f"{miss:.2f} times {side}: the right size.{late}"
    if miss < 10:
        return f"{miss:.1f} times {side}: what did your reasoning leave out?{late}"
    return f"{miss:.3g} times {side}: something essential is different from what you thought.{late}"


def _plain(unit: str) -> str:
    return unit.replace("μ", "u").replace("µ", "u").replace("×", "x").strip().lower()


def _in_notebook() -> bool:
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return hasattr(get_ipython(), "kernel")
