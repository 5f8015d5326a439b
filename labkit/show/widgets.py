"""Sliders around a picture: move an assumption, see what follows.

A widget computes nothing. It calls a pure function that a test calls too, and shows what that
returns. Sliders take the keyboard: Tab to reach one, arrows to move it. Where widgets are not
rendered (a static page, a printed copy) the picture at the starting values stands in their place.
With LABKIT_STATIC in the environment, for a page that no kernel will stand behind, it is a row of
pictures instead: each control at its ends.
"""

import html
import math
import os
from collections.abc import Callable
from typing import Any

from labkit.show import alt_text

Control = tuple[Any, ...] | list[Any]
_LIVE = "labkit-live"  # class of what a kernel stands behind
_ASLEEP = f"""\
<style>.labkit-asleep{{display:none}}
.jp-OutputArea:not(:has(.{_LIVE})) .labkit-asleep{{display:block}}
.jp-OutputArea:has(.labkit-asleep) .jupyter-widgets:not(:has(*)){{display:none}}</style>
<div class="labkit-asleep">%s<p>What stood here belongs to a kernel that has ended. To bring it \
back, run this cell again. A question or a toy needs only the first two cells before that; a \
picture with sliders all that are above it (<i>Run, Run All Above Selected Cell</i>).</p></div>"""
"""JupyterLab shows it where a notebook was opened again, instead of an error."""


def log(low: float, high: float, start: float) -> Control:
    """Make a control for `explore` that spans decades: `alpha=log(1e-6, 1e-3, 1e-5)`."""
    return ("log", low, high, start)


def explore(draw: Callable[..., Any], *, title: str = "", **controls: Control) -> Any:
    """Show a picture with a control for each of its assumptions.

    Args:
        draw: A pure function of the controls' values that returns `Axes` or a `Figure`.
        title: What one can find out with it.
        **controls: By name of `draw`'s argument: `(low, high, step, start)` is a slider, `log(low,
            high, start)` one over powers of ten; a list is a choice that starts at its first item,
            `(list, start)` one that starts at that item.

    Returns:
        The widget, when nothing can display it; in a notebook it displays itself.

    Raises:
        ValueError: A control is none of these; names it.

    Example:
        >>> from labkit.show.plots import new_axes
        >>> box = explore(lambda n, S: new_axes(f"{n} ranks"), n=(2, 64, 1, 8), S=[1e6, 1e9])

        Two controls: a slider from 2 to 64 that starts at 8, and a choice of two sizes.
    """
    import ipywidgets
    from IPython import get_ipython

    from labkit.show.named import Names

    fields = {name: _field(name, control) for name, control in controls.items()}
    if os.environ.get("LABKIT_STATIC"):
        return display(None, static=_small_multiples(draw, title, fields), plain=title)
    picture, names = ipywidgets.HTML(), Names(fields=[*fields.values()])

    def redraw(_: Any = None) -> None:
        drawn = [getattr(field, "index", field.value) for field in fields.values()]
        values = {name: field.value for name, field in fields.items()}
        picture.value = alt_text.to_html(draw(**values))
        names.drawn = drawn

    redraw()
    for field in fields.values():
        field.observe(redraw, names="value")
    heading = ipywidgets.HTML(f"<b>{html.escape(title)}</b>" if title else "")
    box = ipywidgets.VBox([heading, *fields.values(), picture, names])
    box.add_class("labkit-explorer")
    if get_ipython() is None:
        return box
    static = f"<b>{html.escape(title)}</b>{picture.value}"
    return display(box, static=static, plain="a picture with sliders")


def _small_multiples(draw: Callable[..., Any], title: str, fields: dict[str, Any]) -> str:
    """Return `explore` as HTML without widgets: each control at its ends and its start."""
    start = {name: field.value for name, field in fields.items()}
    shown = [("as it starts", start)]
    for name, field in fields.items():
        if hasattr(field, "options"):
            ends = [value for _, value in field.options][:3]
        else:
            ends = [10**v if hasattr(field, "base") else v for v in (field.min, field.max)]
        shown += [(_named(name, x), {**start, name: x}) for x in ends if x != start[name]]
    pictures = "".join(
        f"<div><p>{html.escape(heading)}</p>{alt_text.to_html(draw(**values))}</div>"
        for heading, values in shown
    )
    others = ", ".join(_named(name, value) for name, value in start.items())
    return (
        f"<p><b>{html.escape(title)}</b> One assumption at a time; the others stay at "
        f'{html.escape(others)}.</p><div class="small-multiples">{pictures}</div>'
    )


def _named(name: str, value: Any) -> str:
    return f"{name.replace('_', ' ')} = {_shown(value)}"


def _shown(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def display(
    box: Any, *, static: str, plain: str, metadata: dict[str, Any] | None = None, asleep: str = ""
) -> None:
    """Display a widget, with HTML and text for whoever cannot show it; None: only these.

    `metadata` becomes the output's own, in a notebook that is saved. `asleep` is HTML that stands
    for the widget once its kernel has ended.
    """
    from IPython import display as ipython

    bundle: Any = (box.add_class(_LIVE)._repr_mimebundle_() or {}) if box is not None else {}
    bundle = bundle[0] if isinstance(bundle, tuple) else bundle  # anywidget adds metadata
    data = bundle | {"text/html": static, "text/plain": plain}
    ipython.display(data, metadata=metadata, raw=True)
    if box is not None:
        ipython.display({"text/html": _ASLEEP % asleep, "text/plain": ""}, raw=True)


def _field(name: str, control: Control) -> Any:
    import ipywidgets

    look = {
        "description": name.replace("_", " "),
        "style": {"description_width": "10em"},
        "layout": ipywidgets.Layout(width="36em", max_width="100%"),
    }
    match control:
        case ("log", low, high, start):
            look |= {"min": math.log10(low), "max": math.log10(high), "step": 0.05}
            return ipywidgets.FloatLogSlider(value=start, readout_format=".3g", **look)
        case list() if control:
            return _field(name, (control, control[0]))
        case (list() as choices, start) if start in choices:
            options = [(_shown(choice), choice) for choice in choices]
            return ipywidgets.Dropdown(options=options, value=start, **look)
        case (low, high, step, start) if all(isinstance(x, int | float) for x in control):
            whole = all(isinstance(x, int) for x in control)
            kind = ipywidgets.IntSlider if whole else ipywidgets.FloatSlider
            return kind(min=low, max=high, step=step, value=start, **look)
    raise ValueError(
        f"{name}={control!r} is no control: give (low, high, step, start), log(low, high, start), "
        "a list of choices, or (list, start)."
    )
