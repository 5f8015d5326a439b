"""Sphinx's settings for the reading edition; `python -m course edition` runs it."""

import re
import sys
import tomllib
from pathlib import Path

from course.catalogue import ROOT

sys.path.insert(0, str(Path(__file__).parent))

project = "Why is my all-reduce slow?"
author = "the authors of labkit"
copyright = "the authors of labkit: text CC BY 4.0, code BSD-3-Clause"
release = version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

extensions = ["myst_nb", "mathml", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
default_role = "code"  # as docstrings write it
autodoc_default_options = {"members": True, "undoc-members": True, "exclude-members": "LOOK"}
autodoc_member_order = "bysource"
nb_execution_mode = "off"  # the notebooks come executed
nb_ipywidgets_js = {}  # sliders are drawn as small multiples; no script from elsewhere
nb_merge_streams = True
nb_render_markdown_format = "myst"  # the map of the course is a table
myst_enable_extensions = ["dollarmath", "colon_fence", "html_image", "attrs_inline"]
myst_heading_anchors = 3
myst_heading_slug_func = "course.notebooks.edition.slug"
suppress_warnings = [
    "mystnb.unknown_mime_type",
    "myst.header",
    "toc.not_included",
    "ref.python",  # a type's name that is a field's, too
]

html_theme = "sphinx_book_theme"
html_title = project
html_static_path = ["_static"]
html_css_files = ["edition.css"]
html_js_files = ["edition.js"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "use_download_button": False,
    "use_fullscreen_button": False,
    "home_page_in_toc": True,
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


def setup(app):
    """Have docstrings read as they are written, and what is built named."""

    def mark_code(app, what, name, value, options, lines):
        """Put `::` before an example: docstrings have it indented below a blank line."""
        lines.insert(0, "\\")  # nothing; or napoleon takes what precedes a colon for a type
        for at in range(len(lines) - 1, 1, -1):
            is_text = lines[at - 2] and lines[at - 2][0] != " " and lines[at - 2][-2:] != "::"
            if is_text and not lines[at - 1] and lines[at].startswith("    "):
                lines[at:at] = ["::", ""]

    def short(app, what, name, value, options, signature, returns):
        """Name a type without its module; autodoc does, but where a field's default is made."""
        return signature and re.sub(r"~(\w+\.)+", "", signature), returns

    def name_parts(app, failed):
        """Name what the theme leaves without a word: buttons that unfold, and the sidebar."""
        for page in Path(app.outdir).rglob("*.html"):
            text = page.read_text(encoding="utf-8")
            bare = '<summary><span class="toctree-toggle"'
            text = text.replace(bare, bare.replace(">", ' aria-label="unfold">', 1))
            bar = '<div id="pst-primary-sidebar"'
            page.write_text(text.replace(bar, f'{bar} role="complementary" aria-label="Contents"'))

    app.connect("autodoc-process-docstring", mark_code, priority=400)  # napoleon has 500
    app.connect("autodoc-process-signature", short)
    app.connect("build-finished", name_parts)
