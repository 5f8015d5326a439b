"""Names for sliders: what a screen reader says of a handle that has the focus.

The handles of ipywidgets' sliders have no accessible name, and their arrow keys are commands of
JupyterLab's as well. This invisible widget mends both for the box in which it lies.
"""

import anywidget

_SCRIPT = """
export default { render({ el }) {
  const name = () => {
    const box = el.closest(".labkit-explorer");
    if (!box) return;
    box.dataset.lmSuppressShortcuts = "true";
    box.querySelectorAll(".widget-slider").forEach((slider) => {
      const label = slider.querySelector(".widget-label")?.textContent;
      slider.querySelectorAll("[role=slider], .widget-readout").forEach((part) => {
        part.setAttribute("aria-label", label);
      });
    });
    clearInterval(waiting);
  };
  const waiting = setInterval(name, 50);  // until it lies in the page
  return () => clearInterval(waiting);
} };
"""


class Names(anywidget.AnyWidget):
    """Gives each slider's handle, in the explorer in which it lies, its label as a name."""

    _esm = _SCRIPT
