"""Text alternatives: every picture comes with a sentence and with its data as a table.

From the first figure that `plots` makes in a notebook, a `Figure` or `Axes` that is a cell's last
expression appears as an image with alt text, followed by a folded table of its data. No pyplot is
needed, so a picture appears once, where it was asked for, and leaves nothing behind.
"""

import base64
import functools
import io
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import jinja2
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import LogFormatter

from labkit.measure.tables import Table

_SHARPNESS = 2.0  # pixels drawn per pixel shown, for screens of high resolution
_MOST_ROWS = 400
LOOK = """\
<style>
.labkit-card{display:block;width:fit-content;max-width:100%;box-sizing:border-box;overflow-x:auto;\
background:#fff;border:1px solid rgba(128,128,128,.35);border-radius:6px;padding:4px}
.labkit-card input{position:absolute;opacity:0;pointer-events:none}
.labkit-card .labkit-picture{display:block;max-width:100%;height:auto;cursor:zoom-in;margin:0}
.labkit-card:has(:focus-visible){outline:2px solid #d55e00}
.labkit-card:has(:checked){padding-right:2em;\
mask-image:linear-gradient(to left,transparent,#000 2em)}
@media (max-width:700px){label.labkit-card:not(:has(:checked))::after\
{content:"tap to enlarge";font:11px sans-serif;color:#666}}
.labkit-card :checked~.labkit-picture{max-width:none;cursor:zoom-out}
[data-jp-theme-light="false"] .labkit-card,[data-theme="dark"] .labkit-card\
{filter:invert(.87) hue-rotate(180deg)}
</style>"""
"""A picture is drawn on white, and lies on a card; in the dark both are turned over. It fits the
width that there is: a tap shows it at its own size, with the edge that is cut off faded."""
_TEMPLATE = jinja2.Environment(autoescape=True).from_string(
    LOOK + '<figure style="margin:0"><label class="labkit-card"><input type="checkbox" '
    'aria-label="Enlarge the picture"><img class="labkit-picture" alt="{{ text }}" '
    'width="{{ width }}" src="data:image/png;base64,{{ data }}"></label>'
    '<details style="font-size:85%"><summary>Description and data</summary><p>{{ text }}</p>'
    "{% for table, rows in tables %}{{ table.html()|safe }}"
    "{% if rows > most %}<p>… and {{ rows - most }} more rows.</p>{% endif %}{% endfor %}"
    "</details></figure>"
)


@dataclass(slots=True)
class Alternative:
    """What stands for a figure where it cannot be seen."""

    text: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)  # as `describe` got them
    drawn: list[tuple[Axes, Table]] = field(default_factory=list)
    """What labkit drew into which axes; the title is the series' name."""
    stamps: dict[Axes, str] = field(default_factory=dict)
    """What each panel's stamp says about the origin of its figures."""


def describe(on: Axes | Figure, text: str, *, table: Table | None = None) -> None:
    """Give a picture, or one panel of it, its text alternative.

    The text has the figures that matter: it is what you would say over the telephone. The table has
    the data; without one, what `labkit.show.plots` drew stands for them.
    """
    alternative = of(on)
    alternative.text.append(" ".join(text.split()))
    if table is not None:
        heading = on.get_title(loc="left") if isinstance(on, Axes) else ""
        alternative.tables.append(replace(table, title=table.title or heading))


def of(on: Axes | Figure) -> Alternative:
    """Return the alternative of a figure, to be added to. The figure itself carries it."""
    return vars(figure_of(on)).setdefault("_labkit_alternative", Alternative())


def text_of(on: Axes | Figure) -> str:
    """Return a figure's text alternative: what `describe` got, else its titles and axes."""
    figure = figure_of(on)
    if texts := of(figure).text:
        return " ".join(texts)
    panels = []
    for ax in figure.axes:
        title, x, y = ax.get_title(loc="left"), ax.get_xlabel(), ax.get_ylabel()
        if title or x:
            panels.append(f"{title or 'Chart'} ({' against '.join(filter(None, [y, x]))})")
    return "; ".join(panels) or "Chart without a description."


def tables_of(on: Axes | Figure) -> list[Table]:
    """Return a figure's data tables."""
    alternative = of(on)
    if alternative.tables:
        return alternative.tables
    if len({ax for ax, _ in alternative.drawn}) < 2:
        return [table for _, table in alternative.drawn]
    return [
        replace(table, title=" – ".join(filter(None, [ax.get_title(loc="left"), table.title])))
        for ax, table in alternative.drawn
    ]


def to_html(on: Axes | Figure) -> str:
    """Return a figure as self-contained HTML: image, alt text, folded data."""
    figure = figure_of(on)
    return _TEMPLATE.render(
        text=text_of(figure),
        width=round(figure.get_figwidth() * 96),
        data=base64.b64encode(_png(figure, dpi=96 * _SHARPNESS)).decode(),
        tables=[(replace(t, rows=t.rows[:_MOST_ROWS]), len(t.rows)) for t in tables_of(figure)],
        most=_MOST_ROWS,
    )


def save(on: Axes | Figure, path: Path | str, *, dpi: float = 150) -> Path:
    """Save a figure as PNG with its text alternative in the file's metadata; return the path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_png(figure_of(on), dpi=dpi))
    return path


def _png(figure: Figure, *, dpi: float) -> bytes:
    _as_plain_text(figure)
    buffer = io.BytesIO()
    metadata = {"Description": text_of(figure), "Software": "labkit"}
    figure.savefig(buffer, format="png", dpi=dpi, metadata=metadata)
    return buffer.getvalue()


def _as_plain_text(figure: Figure) -> None:
    """Draw all text as it is: a stranger's dollar signs are no mathematics.

    Ticks that matplotlib labels itself, as powers of ten, keep their mathematics.
    """
    axes = [axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)]
    powers = [axis for axis in axes if isinstance(axis.get_major_formatter(), LogFormatter)]
    theirs = {text for axis in powers for text in axis.findobj(Text)}
    for text in figure.findobj(Text):
        text.set_parse_math(text in theirs)


def figure_of(on: Axes | Figure) -> Figure:
    """Return the figure that axes belong to, a panel's as well; a figure is its own."""
    figure = on if isinstance(on, Figure) else on.get_figure(root=True)
    if figure is None:
        raise ValueError("these axes were removed from their figure: draw on others.")
    return figure


def _html_of_axes(ax: Axes) -> str | None:
    """Show axes by their figure, unless pyplot shows it by itself at the end of the cell."""
    figure, pyplot = figure_of(ax), sys.modules.get("matplotlib.pyplot")
    shown = map(pyplot.figure, pyplot.get_fignums()) if pyplot is not None else ()
    return None if figure in shown else to_html(figure)


@functools.cache
def show_in_notebook() -> None:
    """Show figures with their alternatives in the notebook that runs this; nothing elsewhere."""
    if "IPython" not in sys.modules:
        return
    from IPython import get_ipython

    if (shell := get_ipython()) is not None:
        formatter = shell.display_formatter.formatters["text/html"]
        formatter.for_type(Figure, to_html)
        formatter.for_type(Axes, _html_of_axes)
