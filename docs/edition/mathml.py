"""Formulas as MathML, which browsers draw themselves: no script, and nothing from elsewhere."""

import re

from docutils.nodes import SkipNode
from latex2mathml import converter
from sphinx.util.math import get_node_equation_number


def convert(formula, **options):
    """Convert a formula; in its words latex2mathml would show the backslash of an underscore."""
    plain = re.sub(r"\\text\{[^}]*\}", lambda words: words[0].replace(r"\_", "_"), formula)
    return converter.convert(plain, **options)


def _inline(self, node):
    self.body.append(convert(node.astext()))
    raise SkipNode


def _block(self, node):
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})</span>')
    self.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise SkipNode


def setup(app):
    """Register as the renderer of mathematics of the HTML builder."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True}
