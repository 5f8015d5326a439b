"""How the ledger shows itself in a notebook: the form of a prediction and the table of a reckoning.

Outside a notebook the same is printed as text. Nothing is told by colour alone.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.course.ledger import Entry

_NUMBER = re.compile(r"\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*(.*?)\s*")
_BOX = (
    "border-left:4px solid #0072b2;padding:.6em 1em;margin:.4em 0;max-width:46em;"
    "background:rgba(0,114,178,.07)"
)


def parse(text: str, unit: str) -> float:
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


def show_question(entry: Entry, *, commit: Callable[[str, float], Any]) -> None:
    """Display the form; outside a notebook print the question and how to answer it."""
    plain = f"Your prediction? {entry.question} [{entry.unit}]"
    if not _in_notebook():
        print(plain)
        print(f'Answer in code: predict("{entry.key}", ..., value=...)')
        return
    from labkit.show import widgets

    asked = f"{html.escape(entry.question)} [{html.escape(entry.unit)}]"
    static = f'<div style="{_BOX}"><b>Your prediction?</b> {asked}</div>'
    widgets.display(_form(entry, commit), static=static, plain=plain)


def _form(entry: Entry, commit: Callable[[str, float], Any]) -> Any:
    import ipywidgets as widgets

    question = widgets.HTML(f"<b>Your prediction.</b> {html.escape(entry.question)}")
    field = widgets.Text(
        value="" if entry.predicted is None else f"{entry.predicted:g}",
        placeholder="a number",
        description="I expect",
        layout=widgets.Layout(width="16em"),
    )
    unit = widgets.HTML(html.escape(entry.unit))
    button = widgets.Button(
        description="Commit", button_style="primary", tooltip="Write this prediction down"
    )
    state = widgets.HTML(_state(entry))

    def on_commit(_: Any) -> None:
        try:
            state.value = _state(commit(entry.key, parse(field.value, entry.unit)))
        except ValueError as error:
            state.value = f"Not committed: {html.escape(str(error))}"

    button.on_click(on_commit)
    field.continuous_update = False  # so that a change means Enter or leaving the field
    box = widgets.VBox([question, widgets.HBox([field, unit, button]), state])
    box.add_class("labkit-prediction")
    box.layout.border_left = "4px solid #0072b2"
    box.layout.padding = "0.4em 1em"
    return box


def _state(entry: Entry) -> str:
    if entry.predicted is None:
        return "Commit a figure before you run on: a guess that you wrote down is worth ten."
    late = " (after a measurement was seen: it will not count)" if entry.late else ""
    return f"✔ Committed: {entry.predicted:g} {html.escape(entry.unit)}{late}"


def show_reconciled(entry: Entry) -> None:
    """Display prediction, model and measurement side by side."""
    text = reconciled_text(entry)
    if not _in_notebook():
        print(text)
        return
    from IPython.display import display

    display({"text/plain": text, "text/html": _reconciled_html(entry)}, raw=True)


def reconciled_text(entry: Entry) -> str:
    """Tell an entry in lines of text."""
    lines = [entry.question, *(f"  {name:<14}{value}" for name, value, _ in _rows(entry))]
    return "\n".join([*lines, f"  {verdict(entry)}"])


def _reconciled_html(entry: Entry) -> str:
    cell = "padding:.15em 1.2em .15em 0;text-align:left;background:none"
    rows = "".join(
        f'<tr><th scope="row" style="{cell};font-weight:normal">{html.escape(name)}</th>'
        f'<td style="{cell}"><b>{html.escape(value)}</b></td>'
        f'<td style="{cell}">{html.escape(note)}</td></tr>'
        for name, value, note in _rows(entry)
    )
    return (
        f'<div class="labkit-reconciled" style="{_BOX}"><div>{html.escape(entry.question)}</div>'
        f'<table style="border:none;margin:.3em 0"><tbody>{rows}</tbody></table>'
        f"<div>{html.escape(verdict(entry))}</div></div>"
    )


def _rows(entry: Entry) -> list[tuple[str, str, str]]:
    def figure(value: float | None) -> str:
        return "–" if value is None else f"{value:.4g} {entry.unit}".strip()

    def ratio(value: float | None) -> str:
        if value is None or not entry.measured:
            return ""
        return f"{value / entry.measured:.2f} × the measurement"

    rows = [("you", figure(entry.predicted), ratio(entry.predicted))]
    if entry.model is not None:
        rows.append(("the model", figure(entry.model), f"{ratio(entry.model)} (MODELLED)"))
    return [*rows, ("here and now", figure(entry.measured), entry.tier)]


def verdict(entry: Entry) -> str:
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
    shell = get_ipython()
    return shell is not None and hasattr(shell, "kernel")
