"""Self-contained HTML pages: pictures with their alternatives, tables, nothing from the network."""

from __future__ import annotations

import html
from dataclasses import dataclass, field

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.measure.tables import Table
from labkit.show import alt_text

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#222;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{line-height:1.2} h2{margin-top:2.5rem;border-top:1px solid #ddd;padding-top:1rem}
table{border-collapse:collapse;margin:1rem 0;font-size:.9rem} caption{text-align:left;color:#666}
td,th{padding:.2rem .8rem;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}
td.figure,th.figure{text-align:right;font-variant-numeric:tabular-nums}
figure{margin:1rem 0} summary{cursor:pointer;color:#555} .note{color:#666;font-size:.9rem}
@media print{details{display:none}}
"""


@dataclass(slots=True)
class Page:
    """A page that is written from top to bottom."""

    title: str
    _parts: list[str] = field(default_factory=list)

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str, *, note: bool = False) -> None:
        """Add a paragraph; a note is set smaller."""
        kind = ' class="note"' if note else ""
        self._parts.append(f"<p{kind}>{html.escape(text)}</p>")

    def picture(self, picture: Axes | Figure) -> None:
        """Add a picture with its description and data."""
        self._parts.append(alt_text.to_html(picture))

    def table(self, table: Table) -> None:
        """Add a table; columns of figures stand to the right."""
        self._parts.append(table.html())

    def data(self, identifier: str, json_text: str) -> None:
        """Embed JSON that a program can read back from the page."""
        safe = json_text.replace("<", "\\u003c")
        self._parts.append(f'<script type="application/json" id="{identifier}">{safe}</script>')

    def __str__(self) -> str:
        title = html.escape(self.title)
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width">'
            f"<title>{title}</title><style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n"
            + "\n".join(self._parts)
            + "\n</body></html>\n"
        )
