"""A case as a panel of buttons, in a notebook."""

from html import escape

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

    case, says = ward.case, {letter: suspect.says for letter, suspect in ward.suspects.items()}
    story = f"<h4>{escape(case.title)}</h4><p>{escape(case.story)}</p>"
    if case.symptom:
        story += f"<p><small>Reported in {escape(reported_in(case))}.</small></p>"
    listed = [f"<li><code>{letter}</code>: {escape(text)}</li>" for letter, text in says.items()]
    static = (
        f"{story}<p>Call this case's <code>ask(...)</code>: {', '.join(INSTRUMENTS)}. Commit with "
        f"its <code>diagnose(suspect, reason)</code>:</p><ul>{''.join(listed)}</ul>"
    )
    shown, board = ipywidgets.VBox([]), ipywidgets.HTML()

    def add(page: str) -> None:
        shown.children = (ipywidgets.HTML(page), *shown.children)

    def fold(summary: str, answer: Table | Markdown, text: str = "") -> None:
        head = f"<summary><b>{escape(summary)}</b></summary><p>{escape(text)}</p>"
        add(f"<details open>{head}{answer.html()}</details>")

    def ask(name: str, _: dict[str, str]) -> Reply:
        asks.say(Reply(f"{name}: running ...", running=True))
        try:
            fold(name, ward.ask(name))
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
        board.value, became = ward.board.html(), f"{suspect} {verdict.state}"
        fold(became, verdict.shown, verdict.text)
        if verdict.right and case.cure is not None:
            mend = "This is at fault. Mend it in the next cell, then call this case's "
            source = f"<pre>{escape(ward.fault())}</pre>"
            add(f"<p>{mend}<code>treat(your_function)</code>.</p>{source}")
        course = ward.course()
        sentence = f"{course[0].upper()}{course[1:]}."
        return Reply(f"{became}: see the board below. {sentence} Your reason: {reason}.")

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
        options={letter: f"{letter}) {text}" for letter, text in says.items()},
        rows=[("", [Field("reason", "Reason", hint="because ...", size=44, figure=False)])],
        buttons={"commit": "Commit the diagnosis"},
        act=diagnose,
        first=Reply(""),
    )
    box = ipywidgets.VBox([ipywidgets.HTML(_TABLES + story), asks, form, board, shown])
    plain = f"{case.title}. {case.story}"
    widgets.display(box.add_class("course-ward"), static=static, plain=plain)
