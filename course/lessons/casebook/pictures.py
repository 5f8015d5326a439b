"""A case with buttons, and its law drawn up to the scale that was reported."""

import html
from collections.abc import Mapping

from matplotlib.axes import Axes

from course.lessons.casebook.observe import INSTRUMENTS
from course.lessons.casebook.ward import Lanes, Ward
from course.published import Published
from labkit.measure.tables import Table
from labkit.show import plots, widgets


def buttons(ward: Ward) -> None:
    """Show a case with a button for each instrument and each suspect.

    Whoever cannot show widgets calls `ward.ask` and `ward.diagnose` instead; the text says so.
    """
    import ipywidgets

    shown = ipywidgets.HTML()

    def show(answer: Table | Lanes) -> None:
        shown.value = f"<p>asked: {html.escape(', '.join(ward.asked))}</p>{answer.html()}"

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
    seen: Mapping[int, float],
    model: Mapping[int, float],
    report: Published,
    ranks: tuple[int, ...],
    *,
    y: str = "Time",
) -> Axes:
    """Draw a phase's time against the ranks: measured, by its law, and as reported.

    `seen` and `model` are ranks -> seconds, the law's up to the reported scale; `ranks` are the
    report's world sizes; `y` says what is measured.
    """
    ax = plots.new_axes("From a few ranks here to the reported scale", x="Ranks", xscale="log",
                        y=y, yunit="s", yscale="log")  # fmt: skip
    plots.line(ax, list(seen), list(seen.values()), label="here (MEASURED)")
    plots.model_line(ax, list(model), list(model.values()), label="its law (MODELLED)")
    plots.published(ax, list(ranks), list(report.value), label="as reported")
    plots.stamp_published(ax, report, note="the law fitted here is MODELLED, its points MEASURED")
    first, last, far = min(seen), max(seen), max(model)
    plots.describe(ax, f"Here {seen[first]:.2g} s with {first} ranks, {seen[last]:.2g} s with "
                   f"{last}; the law gives {model[far]:.2g} s with {far}. Reported: "
                   f"{report.value[-1]:g} s with {ranks[-1]}.")  # fmt: skip
    return ax


def hosts(
    seen: Mapping[str, Mapping[int, float]],
    model: Mapping[str, Mapping[int, float]],
    report: Published,
    card: float,
) -> Axes:
    """Draw busbw against the number of hosts, as multiples of what the cards of a host carry.

    `seen` (on shaped links) and `model` (hosts of eight GPUs) are algorithm -> hosts -> busbw over
    a card's rate; `report` begins with two hosts, and `card` is what the cards of one carry there.
    """
    ax = plots.new_axes("Two hosts flatter", x="Hosts", y="busbw / what the cards carry",
                        size=(10, 4.6))  # fmt: skip
    for series, (name, points) in enumerate(seen.items()):
        plots.line(ax, list(points), list(points.values()), label=f"{name}, here (EMULATED)",
                   series=series)  # fmt: skip
    for series, (name, points) in enumerate(model.items(), start=len(seen)):
        plots.model_line(ax, list(points), list(points.values()), series=series,
                         label=f"{name}, 8 GPUs a host (MODELLED)")  # fmt: skip
    reported = [value / card for value in report.value]
    hosts = list(range(2, 2 + len(reported)))
    plots.published(ax, hosts, reported, label="as reported")
    ax.set_xticks(hosts)
    plots.stamp_published(ax, report, note="here: EMULATED, two ranks a host; the lines MODELLED")
    told = "; ".join(
        f"{name}: " + ", ".join(f"{value:.2f} with {n}" for n, value in points.items())
        for name, points in seen.items()
    )
    plots.describe(ax, f"{told} hosts. Reported: {report.value[0]:g} GB/s with 2 hosts, "
                   f"{report.value[-1]:g} with {1 + len(reported)}.")  # fmt: skip
    return ax
