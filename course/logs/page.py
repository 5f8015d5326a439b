"""Self-contained HTML pages: pictures with their alternatives, tables, nothing from the network."""

from dataclasses import dataclass, field
from typing import Any

import jinja2
from markupsafe import Markup

from labkit.measure.tables import Table

_TEMPLATE = jinja2.Environment(autoescape=True).from_string("""\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{ title }}</title><style>
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;color:#222;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{line-height:1.2} h2{margin-top:2.5rem;border-top:1px solid #8884;padding-top:1rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;margin:1rem 0;font-size:.9rem} caption{text-align:left;color:#666}
td,th{padding:.2rem .8rem;border-bottom:1px solid #8884;text-align:left;vertical-align:top}
td.figure,th.figure{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
figure{margin:1rem 0} figure img{background:#fff;border-radius:4px}
summary{cursor:pointer;color:#555}
@media (prefers-color-scheme:dark){
body{color:#ddd;background:#161616} caption,summary{color:#aaa!important}}
@media (max-width:40rem){td,th{padding:.2rem .4rem} table{font-size:.8rem}
.wide td:nth-child(n+4):not(.figure){min-width:9rem}}
@media print{details{display:none}}
</style></head>
<body><h1>{{ title }}</h1>
{% for part in parts %}{{ part }}
{% endfor %}</body></html>
""")


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
        html = Markup('<div class="wide">{}</div>').format(Markup(table.html()))
        if folded:
            html = Markup("<details><summary>{}</summary>{}</details>").format(folded, html)
        self._parts.append(html)

    def __str__(self) -> str:
        """Return the whole page as HTML."""
        return _TEMPLATE.render(title=self.title, parts=self._parts)
