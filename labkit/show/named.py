"""Names for sliders: what a screen reader says of a handle that has the focus.

The handles of ipywidgets' sliders have no accessible name, and their arrow keys are commands of
JupyterLab's as well. This invisible widget mends both for the box in which it lies, and dims the
picture while it belongs to other values than the sliders.
"""

from pathlib import Path

import anywidget
import ipywidgets
import traitlets


class Names(anywidget.AnyWidget):
    """Gives each slider's handle, in the explorer in which it lies, its label as a name."""

    _esm = Path(__file__).with_name("named.js")
    _css = (
        ".labkit-stale figure {opacity: 0.35}"
        ".labkit-explorer .widget-html-content {min-width: 0; max-width: 100%}"
    )
    fields = traitlets.Any([]).tag(sync=True, **ipywidgets.widget_serialization)
    drawn = traitlets.Any([]).tag(sync=True)
    """The fields' values that the picture shows; of a choice, its number."""
