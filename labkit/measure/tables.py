"""Tables: columns and rows, as text for a terminal and as HTML for a page or a notebook."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


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
        figures = self.numeric
        return _template().render(
            title=self.title,
            columns=list(zip(self.columns, figures, strict=True)),
            rows=[list(zip(map(_shown, row), figures, strict=True)) for row in self.rows],
        )

    def _repr_html_(self) -> str:
        return self.html()


def _shown(value: Any) -> str:
    """Write a value for a reader: four digits of a float, nothing for None."""
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"


@functools.cache
def _template() -> Any:
    import jinja2

    return jinja2.Environment(autoescape=True).from_string(
        # JupyterLab sets every cell to the right; words are easier to read from the left.
        "{% set left = ' style=\"text-align:left\"' | safe %}"
        "<table>{% if title %}<caption>{{ title }}</caption>{% endif %}<thead><tr>"
        '{% for name, figure in columns %}<th scope="col"'
        '{% if figure %} class="figure"{% else %}{{ left }}{% endif %}>{{ name }}</th>{% endfor %}'
        "</tr></thead><tbody>"
        "{% for row in rows %}<tr>{% for value, figure in row %}"
        '<td{% if figure %} class="figure"{% else %}{{ left }}{% endif %}>{{ value }}</td>'
        "{% endfor %}</tr>{% endfor %}</tbody></table>"
    )
