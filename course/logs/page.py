"""Self-contained HTML pages: pictures with their alternatives, tables, nothing from the network."""

from dataclasses import dataclass, field
from typing import Any

import jinja2
from markupsafe import Markup

from labkit.measure.tables import Table

_TEMPLATES = jinja2.Environment(loader=jinja2.PackageLoader(__package__, ""), autoescape=True)


@dataclass(slots=True)
class Page:
    """A page that is written from top to bottom. All text is escaped."""

    title: str
    _parts: list[Markup] = field(default_factory=list)

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._parts.append(Markup("<h2>{}</h2>").format(text))

    def picture(self, picture: Any) -> None:
        """Add axes or a figure with its description and data."""
        from labkit.show import alt_text

        self._parts.append(Markup(alt_text.to_html(picture)))

    def table(self, table: Table, *, folded: str = "") -> None:
        """Add a table; columns of figures stand to the right. Folded, it is under that title."""
        wide = Markup('<div class="wide">{}</div>').format(Markup(table.html()))
        if folded:
            fold = Markup("<details><summary>{}</summary>{}</details>")
            self._parts.append(fold.format(folded, wide))
        else:
            self._parts.append(wide)

    def plain(self, text: str) -> None:
        """Add what a program printed, as it stands."""
        self._parts.append(Markup('<div class="wide"><pre>{}</pre></div>').format(text))

    def __str__(self) -> str:
        """Return the whole page as HTML."""
        return _TEMPLATES.get_template("page.html").render(title=self.title, parts=self._parts)
