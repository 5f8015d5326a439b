"""The forms in which a learner commits, and how a result is shown beside what was committed.

Every form has three shapes: widgets, where there are some; HTML, where a page is only read; and a
line of code, which does the same. Each field has a label of its own; Enter commits.
"""

import html
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from course.ledger_file import Entry

LETTERS = "abcdefgh"
_BOX = (
    "border-left:4px solid #0072b2;padding:.6em 1em;margin:.4em 0;max-width:46em;"
    "background:rgba(0,114,178,.07)"
)
_RESULT = """\
{% set cell = "padding:.15em 1.2em .15em 0;text-align:left;background:none" -%}
<div class="course-result" data-key="{{ entry.key }}" style="{{ box }}">
<div>{{ entry.question }}</div><div class="course-you"></div>
<table style="border:none;margin:.3em 0"><tbody>{% for name, value, note in rows %}
<tr style="background:none"><th scope="row" style="{{ cell }};font-weight:normal">{{ name }}</th>
<td style="{{ cell }}"><b>{{ value }}</b></td><td style="{{ cell }}">{{ note }}</td></tr>
{%- endfor %}</tbody></table><div>{{ verdict }}</div></div>"""
_TALL = "display: flex; flex-flow: row-reverse; justify-content: left; height: auto"
_WHERE = {
    "MEASURED": "here and now",
    "EMULATED": "here and now",
    "RECORDED": "the recorded run",
    "MODELLED": "the model",
    "PUBLISHED": "the published figure",
}


def show_question(
    entry: Entry,
    *,
    also: Sequence[str],
    on_commit: Callable[[dict[str, str]], str],
    on_skip: Callable[[], None] | None = None,
) -> None:
    """Display the form of a prediction or a vote; outside a notebook print it.

    Args:
        entry: The question.
        also: What to ask besides the answer: `range`, `reason`.
        on_commit: Gets what the fields hold, says what became of it, or raises ValueError.
        on_skip: What a button "Skip" does; without it there is none.
    """
    code = _code(entry)
    unit = f" [{entry.unit}]" if entry.unit else ""
    plain = [f"Your {'vote' if entry.options else 'prediction'}? {entry.question}{unit}"]
    plain += [f"  {option}" for option in lettered(entry.options)]
    plain += [f"In code: {code}"]
    if on_skip:
        plain.append(f'To see it without: gate("{entry.key}", skip=True)')
    _display(
        lambda: _question_form(entry, also, on_commit, on_skip),
        static=_static(entry, also, code),
        plain="\n".join(plain),
    )


def show_quiz(
    question: str,
    options: Sequence[str],
    answered: Callable[[str], str],
    solution: str,
    *,
    code: str,
    heading: str = "Warm-up.",
) -> None:
    """Display a question that has a right answer, with the solution folded.

    Args:
        question: The question.
        options: In the order of their letters.
        answered: Gets the letter that was chosen; returns what to say.
        solution: What stands in the fold where there are no widgets.
        code: How to answer in code.
        heading: What stands before the question.
    """
    listed = [f"  {option}" for option in lettered(options)]
    items = "".join(f"<li>{html.escape(option)}</li>" for option in options)
    fold = f"<details><summary>The answer</summary>{html.escape(solution)}</details>"
    asked = f"<b>{heading}</b> {html.escape(question)}"
    _display(
        lambda: _quiz_form(asked, options, answered),
        static=f'<div class="course-quiz" style="{_BOX}">{asked}<ol type="a">{items}</ol>{fold}'
        "</div>",
        plain="\n".join([question, *listed, f"In code: {code}"]),
    )


def _display(form: Callable[[], Any], *, static: str, plain: str) -> None:
    """Display what fits the place: widgets in a notebook, HTML on a page to read, else text."""
    if not in_notebook():
        print(plain)
        return
    from labkit.show import widgets

    widgets.display(None if _reading() else form(), static=static, plain=plain)


def show_result(entry: Entry) -> None:
    """Display what was committed, what a model says, and the result."""
    if not in_notebook():
        print(_as_text(entry))
        return
    import jinja2
    from IPython.display import display

    template = jinja2.Environment(autoescape=True).from_string(_RESULT)
    page = template.render(box=_BOX, entry=entry, rows=_rows(entry), verdict=_verdict(entry))
    display({"text/plain": _as_text(entry), "text/html": page}, raw=True)


def answer_of(entry: Entry, which: str = "answer") -> str:
    """Put what was committed, or the result, into words: `80 µs`, `b) none`."""
    value = getattr(entry, which)
    if value is None:
        return "–"
    if isinstance(value, str):
        place = LETTERS.find(value)
        return f"{value}) {entry.options[place]}" if entry.options else value
    text = f"{value:.4g} {entry.unit}".strip()
    if which == "answer" and entry.low is not None:
        text += f" ({entry.low:.4g} to {entry.high:.4g})"
    return text


def state_of(entry: Entry) -> str:
    """Say whether something is committed."""
    if entry.after is not None:
        return f"noted, but the result has been seen: {answer_of(entry, 'after')}"
    if entry.committed:
        return f"committed: {answer_of(entry)}"
    return "Commit before you run on: a guess in writing is worth ten in hindsight."


def lettered(options: Sequence[str]) -> list[str]:
    """Return the options with their letters: `a) the network`."""
    return [f"{letter}) {option}" for letter, option in zip(LETTERS, options, strict=False)]


def in_notebook() -> bool:
    """Tell whether there is a notebook to display in."""
    return "IPython" in sys.modules and hasattr(sys.modules["IPython"].get_ipython(), "kernel")


def _reading() -> bool:
    return bool(os.environ.get("LABKIT_EDITION"))  # a page to read has no kernel behind its forms


def _code(entry: Entry) -> str:
    if entry.options:
        return f'choose("{entry.key}", ..., answer="a", reason="...")'
    return f'predict("{entry.key}", ..., value=...)'


def _static(entry: Entry, also: Sequence[str], code: str) -> str:
    """Return the form as HTML; a script of the reading edition makes fields of it."""
    asked = html.escape(entry.question)
    unit = html.escape(entry.unit)
    items = "".join(f"<li>{html.escape(option)}</li>" for option in entry.options)
    listed = f'<ol type="a">{items}</ol>' if items else ""
    kind = "vote" if entry.options else "prediction"
    return (
        f'<div class="course-question" style="{_BOX}" data-key="{html.escape(entry.key)}" '
        f'data-unit="{unit}" data-also="{" ".join(also)}"><b>Your {kind}.</b> {asked}'
        f"{f' [{unit}]' if unit else ''}{listed}"
        f'<p class="course-code-form"><small>In code: <code>{html.escape(code)}</code>'
        "</small></p></div>"
    )


def _question_form(
    entry: Entry,
    also: Sequence[str],
    on_commit: Callable[[dict[str, str]], str],
    on_skip: Callable[[], None] | None,
) -> Any:
    import ipywidgets

    kind = "vote" if entry.options else "prediction"
    question = ipywidgets.HTML(f"<b>Your {kind}.</b> {html.escape(entry.question)}")
    fields = {"answer": _options(entry.options, entry.answer)} if entry.options else {}
    if not entry.options:
        value = "" if entry.answer is None else f"{entry.answer:g}"
        fields["answer"] = _text("I expect", "a number", value=value)
    if "range" in also:
        fields["low"] = _text("at least", "80 % sure", value=_number(entry.low))
        fields["high"] = _text("at most", "80 % sure", value=_number(entry.high))
    if "reason" in also:
        fields["reason"] = _text("because", "one line", value=entry.reason, width="40em")
    button = ipywidgets.Button(description="Commit", button_style="primary")
    button.tooltip = "Write this answer down; it is locked until you have seen the result"
    skip = ipywidgets.Button(description="Skip this question")
    skip.tooltip = "See the result without an answer; the ledger notes that you skipped"
    state = ipywidgets.HTML(html.escape(state_of(entry)))
    state.add_class("course-state")
    run_again = " Now run this cell again." if on_skip else ""

    def lock() -> None:
        for widget in (*fields.values(), button, skip):
            widget.disabled = True

    def committed(*_: Any) -> None:
        try:
            text = on_commit({name: field.value or "" for name, field in fields.items()})
        except ValueError as error:
            state.value = f"Not committed: {html.escape(str(error))}"
            return
        state.value = f"✔ {html.escape(text.rstrip('.'))}.{run_again}"
        lock()

    def skipped(*_: Any) -> None:
        on_skip()
        state.value = f"Skipped.{run_again}"
        lock()

    if entry.committed and entry.measured is None:
        lock()
    button.on_click(committed)
    skip.on_click(skipped)
    for name, field in fields.items():
        if name != "answer" or not entry.options:
            field.on_msg(lambda _, content, __: content.get("event") == "submit" and committed())
    rows: list[Any] = [question]
    if entry.options:
        rows += [fields["answer"], *([fields["reason"]] if "reason" in fields else [])]
    else:
        unit = ipywidgets.HTML(html.escape(entry.unit), layout={"margin": "2px 1em 2px 2px"})
        ends = [field for name, field in fields.items() if name in ("low", "high")]
        rows.append(ipywidgets.HBox([fields["answer"], unit, *ends], layout={"flex_flow": "wrap"}))
    rows += [ipywidgets.HBox([button, skip] if on_skip else [button]), state]
    return boxed(rows, "course-question-form")


def _quiz_form(asked: str, options: Sequence[str], answered: Callable[[str], str]) -> Any:
    import ipywidgets

    heading = ipywidgets.HTML(asked)
    choice, state = _options(options, None), ipywidgets.HTML()
    button = ipywidgets.Button(description="Answer", button_style="primary")
    button.tooltip = "Answer; then the reason unfolds"

    def on_click(_: Any) -> None:
        if choice.value is None:
            state.value = "Choose one first."
            return
        choice.disabled = button.disabled = True
        state.value = html.escape(answered(choice.value))

    button.on_click(on_click)
    return boxed([heading, choice, button, state], "course-quiz-form")


def _options(options: Sequence[str], chosen: str | None) -> Any:
    import ipywidgets

    return ipywidgets.RadioButtons(
        options=list(zip(lettered(options), LETTERS, strict=False)),
        value=chosen,
        layout={"width": "auto", "max_width": "46em"},
    )


def _text(label: str, placeholder: str, *, value: str, width: str = "14em") -> Any:
    import ipywidgets

    return ipywidgets.Text(
        value=value, placeholder=placeholder, description=label,
        style={"description_width": "5em"}, layout={"width": width},
    )  # fmt: skip


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def boxed(rows: list[Any], name: str) -> Any:
    """Frame a form's rows."""
    import ipywidgets

    style = ipywidgets.HTML(f"<style>.widget-radio-box > label {{{_TALL}}}</style>")
    layout = {"border_left": "4px solid #0072b2", "padding": "0.4em 1em"}
    return ipywidgets.VBox([style, *rows], layout=layout).add_class(name)


def _as_text(entry: Entry) -> str:
    rows = [f"  {name:<22}{value}  {note}".rstrip() for name, value, note in _rows(entry)]
    return "\n".join([entry.question, *rows, f"  {_verdict(entry)}"])


def _rows(entry: Entry) -> list[tuple[str, str, str]]:
    where = "the evidence" if entry.options else _WHERE.get(entry.tier, "the result")

    def ratio(value: float | str | None) -> str:
        if value is None or isinstance(value, str) or not entry.measured:
            return ""
        return f"{value / entry.measured:.2f} × {where}"

    you = entry.reason if isinstance(entry.measured, str) else ratio(entry.answer)
    rows = [] if _reading() else [("you", answer_of(entry), you)]  # a reader's is put in there
    if entry.after is not None:
        rows.append(("you, afterwards", answer_of(entry, "after"), ""))
    if entry.model is not None:
        rows.append(("the model", answer_of(entry, "model"), f"{ratio(entry.model)} (MODELLED)"))
    return [*rows, (where, answer_of(entry, "measured"), entry.tier)]


def _verdict(entry: Entry) -> str:
    """Say in a sentence or two how the learner did."""
    because = (
        f" {entry.because[:1].upper()}{entry.because[1:].rstrip('.')}." if entry.because else ""
    )
    if not entry.committed:
        if _reading():
            return because.strip()
        none = "You skipped this one." if entry.skipped else "Nothing was committed beforehand."
        return none + because
    if isinstance(entry.measured, str):
        text = "Your vote stands." if entry.right else "The evidence is against your vote."
        if entry.disturbed:
            because += (
                f" (Other programs used {entry.others:.1f} CPUs meanwhile: where your own pictures "
                "do not show it, a calm run does.)"
            )
        return text + because
    if entry.disturbed:
        return f"Not judged: other programs used {entry.others:.1f} CPUs meanwhile." + because
    if not entry.counts:
        return "Compare the two figures yourself: a ratio makes no sense for them." + because
    side, miss = "above" if entry.answer > entry.measured else "below", entry.miss
    if miss < 1.1:
        text = "Within 10 %: well predicted."
    elif miss < 2:
        text = f"{miss:.2f} times {side}: the right size."
    elif entry.inside:
        text = f"{miss:.1f} times {side}."
    elif miss < 10:
        text = f"{miss:.1f} times {side}: what did your reasoning leave out?"
    else:
        text = f"{miss:.3g} times {side}: something essential is different from what you thought."
    if entry.inside is not None:
        text = f"Inside your range. {text}" if entry.inside else f"{text} Outside your range."
    return text + because
