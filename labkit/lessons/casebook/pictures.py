"""A case with buttons, and its law drawn up to the scale that was reported."""

from __future__ import annotations

import html
from collections.abc import Mapping

from matplotlib.axes import Axes

from labkit.lessons.casebook.cases import INSTRUMENTS, Ward
from labkit.measure.published import Published
from labkit.show import plots, widgets


def buttons(ward: Ward) -> None:
    """Show a case with a button for each instrument and each suspect.

    Whoever cannot show widgets calls `ward.ask` and `ward.diagnose` instead; the text says so.
    """
    import ipywidgets

    shown = ipywidgets.HTML()

    def show(answer: object) -> None:
        text = answer.html() if hasattr(answer, "html") else html.escape(str(answer))
        shown.value = f"<p>asked: {html.escape(', '.join(ward.asked))}</p>{text}"

    def button(text: str, act) -> ipywidgets.Button:
        one = ipywidgets.Button(description=text, layout=ipywidgets.Layout(width="auto"))
        one.on_click(lambda _: show(act(text)))
        return one

    ask = ipywidgets.HBox([button(name, ward.ask) for name in INSTRUMENTS])
    commit = ipywidgets.HBox([button(name, ward.diagnose) for name in ward.case.suspects])
    suspects = "".join(
        f"<li><b>{html.escape(key)}</b>: {html.escape(suspect.says)}</li>"
        for key, suspect in ward.case.suspects.items()
    )
    label = ipywidgets.HTML(f"<p>Your diagnosis:</p><ul>{suspects}</ul>")
    static = (
        f"<p>Ask with <code>ward.ask(...)</code>: {', '.join(INSTRUMENTS)}. Then "
        f"<code>ward.diagnose(...)</code>:</p><ul>{suspects}</ul>"
    )
    box = ipywidgets.VBox([ask, label, commit, shown])
    widgets.display(box, static=static, plain=f"the case {ward.case.name}, with buttons")


def law(
    seen: Mapping[int, float], model: Mapping[int, float], report: Published, ranks: tuple[int, ...]
) -> Axes:
    """Draw a phase's time against the ranks: measured, by its law, and as reported.

    Args:
        seen: ranks -> seconds, measured here.
        model: ranks -> seconds, the fitted law up to the reported scale.
        report: The reported times, in seconds.
        ranks: The world sizes of the report.
    """
    ax = plots.new_axes("From a few ranks here to the reported scale", x="Ranks", xscale="log",
                        y="Time", yunit="s", yscale="log")  # fmt: skip
    plots.line(ax, list(seen), list(seen.values()), label="here (MEASURED)")
    plots.model_line(ax, list(model), list(model.values()), label="a line through it (MODELLED)")
    plots.published(ax, list(ranks), list(report.value), label="as reported")
    plots.stamp_published(ax, report, note="the law fitted here is MODELLED, its points MEASURED")
    first, last = min(seen), max(seen)
    plots.describe(ax, f"Here {seen[first]:.2g} s with {first} ranks, {seen[last]:.2g} s with "
                   f"{last}; reported {report.value[-1]:g} s with {ranks[-1]}.")  # fmt: skip
    return ax
