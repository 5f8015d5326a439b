"""A case as a panel of buttons, in a notebook."""

import html
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from course import forms
from course.lessons.casebook.cases import reported_in
from course.lessons.casebook.observe import INSTRUMENTS
from course.lessons.casebook.ward import Lanes, Ward
from labkit.measure.tables import Table
from labkit.show import widgets


def panel(ward: Ward) -> None:
    """Show a case: its story, a button for each instrument, the suspects, a line for the reason.

    What instruments have shown stays, the newest on top. Whoever cannot show widgets calls
    `ward.ask`, `ward.diagnose` and `ward.fault` instead; the text says so.
    """
    import ipywidgets

    story = f"<h4>{html.escape(ward.case.title)}</h4><p>{html.escape(ward.case.story)}</p>"
    if ward.case.symptom:
        story += f"<p><small>Reported in {html.escape(reported_in(ward.case))}.</small></p>"
    listed = "".join(
        f"<li><code>{key}</code>: {html.escape(suspect.says)}</li>"
        for key, suspect in ward.suspects.items()
    )
    static = (
        f"{story}<p>Ask with <code>ward.ask(...)</code>: {', '.join(INSTRUMENTS)}. Commit with "
        f"<code>ward.diagnose(suspect, reason)</code>:</p><ul>{listed}</ul>"
    )
    whole = ipywidgets.Layout(width="auto", flex="0 0 auto")
    line = ipywidgets.Layout(width="auto", max_width="40em")
    status = ipywidgets.HTML("Which instrument would decide something?")
    shown = ipywidgets.VBox([])
    suspects = ipywidgets.RadioButtons(
        options=[(suspect.says, key) for key, suspect in ward.suspects.items()],
        value=None,
        layout=whole,
        description="Suspects",
    )
    reason = ipywidgets.Text(placeholder="because ...", description="Reason", layout=line)
    commit = ipywidgets.Button(description="Commit the diagnosis", layout=whole)
    commit.button_style = "primary"
    asks = [ipywidgets.Button(description=name, layout=whole) for name in INSTRUMENTS]

    @contextmanager
    def busy(text: str) -> Iterator[None]:
        for one in (*asks, commit):
            one.disabled = True
        status.value = f"{html.escape(text)}: running ..."
        try:
            yield
        except Exception as error:
            status.value = html.escape(str(error))
        finally:
            for one in (*asks, commit):
                one.disabled = False

    def add(summary: str, answer: Table | Lanes, text: str = "") -> None:
        folded = f"<details open><summary><b>{html.escape(summary)}</b></summary>"
        page = f"{folded}<p>{html.escape(text)}</p>{answer.html()}</details>"
        shown.children = (ipywidgets.HTML(page), *shown.children)

    def ask(button: ipywidgets.Button) -> None:
        name = button.description
        with busy(name):
            add(name, ward.ask(name))
            status.value = f"Asked: {html.escape(', '.join(ward.asked))}."

    def diagnose(_: Any) -> None:
        if suspects.value is None or len(reason.value.strip()) < 3:
            status.value = "Choose a suspect and give a reason: what have you seen?"
            return
        with busy("the deciding instrument"):
            verdict = ward.diagnose(suspects.value, reason.value.strip())
            add("confirmed" if verdict.right else "refuted", verdict.shown, verdict.text)
            status.value = "Confirmed: see below." if verdict.right else "Refuted: see below."
            if verdict.right and ward.case.cure is not None:
                source = html.escape(ward.fault())
                mend = "This is at fault. Mend it in a cell of yours, then "
                fold = f"<p>{mend}<code>ward.treat(your_function)</code>.</p><pre>{source}</pre>"
                shown.children = (ipywidgets.HTML(fold), *shown.children)

    for button in asks:
        button.on_click(ask)
    commit.on_click(diagnose)
    buttons = ipywidgets.HBox(asks, layout=ipywidgets.Layout(flex_flow="row wrap"))
    rows = [ipywidgets.HTML(story), buttons, suspects, reason, commit, status, shown]
    box = forms.boxed(rows, "course-ward")
    widgets.display(box, static=static, plain=f"{ward.case.title}. {ward.case.story}")
