"""Tables: columns and rows, as text for a terminal and as HTML for a page or a notebook."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

_FADED = "mask-image:linear-gradient(to left,transparent,#000 1.5em);padding-right:1.5em"
"""A table may be wider than its place: the edge at which it is cut off fades."""


@dataclass(frozen=True, slots=True)
class Table:
    """What is laid out in columns. As a cell's last expression it is shown as a table.

    Example:
        >>> print(Table(["ranks", "ms"], [[2, 1.5], [4, 12.25]]))
        ranks     ms
        -----  -----
            2    1.5
            4  12.25
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    title: str = ""

    def __str__(self) -> str:
        """Lay it out for a terminal: text to the left, figures to the right."""
        cells = [[_shown(value) for value in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(self.columns, *cells, strict=True)]
        right = self.numeric
        lines = [
            "  ".join(
                text.rjust(width) if to_the_right else text.ljust(width)
                for text, width, to_the_right in zip(line, widths, right, strict=True)
            ).rstrip()
            for line in (list(self.columns), ["-" * width for width in widths], *cells)
        ]
        return "\n".join([self.title, *lines] if self.title else lines)

    @property
    def numeric(self) -> list[bool]:
        """Whether a column holds figures only, for each."""
        return [
            bool(self.rows) and all(isinstance(row[i], int | float | None) for row in self.rows)
            for i in range(len(self.columns))
        ]

    def html(self) -> str:
        """Return it as an HTML table; all text is escaped."""
        # JupyterLab sets every cell to the right; words are easier to read from the left.
        looks = [
            ' class="figure"' if figures else ' style="text-align:left"' for figures in self.numeric
        ]

        def cells(row: Sequence[Any], tag: str, end: str) -> str:
            pairs = zip(row, looks, strict=True)
            return "".join(f"<{tag}{look}>{escape(_shown(x))}{end}" for x, look in pairs)

        title = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        head = cells(self.columns, 'th scope="col"', "</th>")
        body = "".join(f"<tr>{cells(row, 'td', '</td>')}</tr>" for row in self.rows)
        table = f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f'<div style="overflow-x:auto;{_FADED}">{table}</div>'

    _repr_html_ = html


def _shown(value: Any) -> str:
    """Write a value for a reader: four digits of a float, 10,000,000 in full, nothing for None."""
    if value is None:
        return ""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    if abs(value) >= 9999.5:
        return f"{value:,.0f}" if isinstance(value, float) else f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
