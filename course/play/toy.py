"""A toy in a notebook: drawn and played in the browser, without the kernel.

`toy("02.door")` shows `door.js` of lesson 02's folder, in the frame of `frame.js`. Beside it lies
what it shows at first, `door.svg`, for pages that run no script. `python -m tools.stills`
draws it with the toy's own script.
"""

import base64
import json
import os
import re
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from course import catalogue
from labkit.show import alt_text, widgets

_HERE = Path(__file__).parent
CSS = (_HERE / "frame.css").read_text(encoding="utf-8")
_STILL = (
    alt_text.LOOK + '<figure style="margin:0"><div class="labkit-card"><img class="labkit-picture" '
    'alt="{alt}" src="data:image/svg+xml;base64,{data}"></div></figure>'
)
_LINE = "A toy to play with. It moves in JupyterLab and in the web edition; here it stands still."


class Toy(anywidget.AnyWidget):
    """A toy's script, in its frame, and what the script reads as ``data``."""

    _esm = traitlets.Unicode().tag(sync=True)
    _css = CSS
    data = traitlets.Dict().tag(sync=True)


def toy(key: str, **data: Any) -> None:
    """Show a toy; `data` is what its script reads besides.

    Example:
        >>> toy("02.door")                                          # doctest: +SKIP
    """
    script, still = script_of(key), still_of(key)
    if not os.environ.get("LABKIT_STATIC"):
        static = f"{still}<p><small>{_LINE}</small></p>"
        box = Toy(_esm=script, data=data)
        return widgets.display(box, static=static, plain=_LINE, asleep=still)
    place = f"toy-{key.replace('.', '-')}"
    program = script.replace("export default", "const toy =")
    model = f"{{ get: () => ({json.dumps(data)}) }}"
    run = f'toy.render({{ model: {model}, el: document.getElementById("{place}") }});'
    page = f'<style>{CSS}</style><div id="{place}">{still}</div>'
    page += f'<script type="module">{program}{run}</script>'
    return widgets.display(None, static=page, plain=_LINE)


def path_of(key: str) -> Path:
    """Return where the script of a toy lies: ``02.door`` is `door.js` of lesson 02."""
    number, name = key.split(".")
    package = next(name for name, lesson in catalogue.find().items() if lesson.number == number)
    return catalogue.ROOT.joinpath(*package.split("."), f"{name}.js")


def script_of(key: str) -> str:
    """Return a toy's script with its frame."""
    frame = (_HERE / "frame.js").read_text(encoding="utf-8")
    return frame + path_of(key).read_text(encoding="utf-8")


def still_of(key: str) -> str:
    """Return what a toy shows at first, as HTML without a script."""
    drawing = path_of(key).with_suffix(".svg").read_text(encoding="utf-8")
    description = re.search("<desc>(.*?)</desc>", drawing)
    data = base64.b64encode(drawing.encode()).decode()
    return _STILL.replace("{alt}", description[1] if description else "").replace("{data}", data)
