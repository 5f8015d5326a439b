"""A case as a panel of buttons, in a notebook."""

import html

from course.lessons.casebook.cases import reported_in
from course.lessons.casebook.observe import INSTRUMENTS
from course.lessons.casebook.ward import ROUNDS, Markdown, Ward
from course.predictions.form import Field, Form, Reply
from labkit.measure.tables import Table
from labkit.show import widgets

_TABLES = (
    "<style>.course-ward td,.course-ward th{padding:.15em .9em!important}"
    ".course-ward .figure{text-align:right!important}"
    ".course-ward pre{white-space:pre!important;overflow-x:auto}</style>"
)


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
        f"<li><code>{letter}</code>: {html.escape(suspect.says)}</li>"
        for letter, suspect in ward.suspects.items()
    )
    static = (
        f"{story}<p>Ask with <code>ward.ask(...)</code>: {', '.join(INSTRUMENTS)}. Commit with "
        f"<code>ward.diagnose(suspect, reason)</code>:</p><ul>{listed}</ul>"
    )
    shown, board = ipywidgets.VBox([]), ipywidgets.HTML()

    def add(summary: str, answer: Table | Markdown, text: str = "") -> None:
        folded = f"<details open><summary><b>{html.escape(summary)}</b></summary>"
        page = f"{folded}<p>{html.escape(text)}</p>{_html(answer)}</details>"
        shown.children = (ipywidgets.HTML(page), *shown.children)

    def ask(name: str, _: dict[str, str]) -> Reply:
        asks.say(Reply(f"{name}: running ...", running=True))
        try:
            add(name, ward.ask(name))
        except Exception as error:  # a run can fail in any way: say so in the panel
            return Reply(f"{name}: {error}", error=True)
        return Reply(f"Asked: {', '.join(ward.asked)}.", stay=True)

    def diagnose(_: str, given: dict[str, str]) -> Reply:
        suspect, reason = given.get("answer", ""), given.get("reason", "").strip()
        if not suspect or len(reason) < 3:
            return Reply("Choose a suspect and give a reason: what have you seen?", error=True)
        form.say(Reply(f"Its deciding instrument, {ROUNDS} times: running ...", running=True))
        try:
            verdict = ward.diagnose(suspect, reason)
        except Exception as error:
            return Reply(str(error), error=True)
        board.value = ward.board.html()
        add(f"{suspect} {verdict.state}", verdict.shown, verdict.text)
        if verdict.right and ward.case.cure is not None:
            source = html.escape(ward.fault())
            mend = "This is at fault. Mend it in a cell of yours, then "
            fold = f"<p>{mend}<code>ward.treat(your_function)</code>.</p><pre>{source}</pre>"
            shown.children = (ipywidgets.HTML(fold), *shown.children)
        kept = f"{ward.course()}. Your reason: {reason}"
        return Reply(
            f"{suspect} {verdict.state}: see the board below. {kept[0].upper()}{kept[1:]}."
        )

    asks = Form(
        "course-ward-asks",
        "Instruments.",
        "Which instrument would decide something?",
        buttons={name: name for name in INSTRUMENTS},
        act=ask,
        first=Reply(""),
    )
    form = Form(
        "course-ward-diagnosis",
        "Suspects.",
        "Which one does the evidence leave?",
        options={x: f"{x}) {suspect.says}" for x, suspect in ward.suspects.items()},
        rows=[("", [Field("reason", "Reason", hint="because ...", size=44, figure=False)])],
        buttons={"commit": "Commit the diagnosis"},
        act=diagnose,
        first=Reply(""),
    )
    box = ipywidgets.VBox([ipywidgets.HTML(_TABLES + story), asks, form, board, shown]).add_class(
        "course-ward"
    )
    widgets.display(box, static=static, plain=f"{ward.case.title}. {ward.case.story}")


def _html(answer: Table | Markdown) -> str:
    """Show a table, or the lanes of a timeline as they stand."""
    if isinstance(answer, Table):
        return answer.html()
    lanes = answer.removeprefix("```text\n").removesuffix("\n```")
    return f"<pre>{html.escape(lanes)}</pre>"
