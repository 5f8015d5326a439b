"""Every relative link in texts and notebooks leads to a file; every web address is well formed."""

import re
from pathlib import Path
from urllib.parse import unquote, urlparse

from pytest import mark

from course.notebooks import files

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("*.md", "docs/*.md", "notebooks/*.ipynb", "solutions/*.ipynb")
TEXTS = [path for place in PLACES for path in sorted(ROOT.glob(place))]
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
_ADDRESS = re.compile(r"https?://[^\s)>\"'`]+")


def text_of(path):
    if path.suffix == ".md":
        return path.read_text()
    cells = files.read(path).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def without_code(text):
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.S)


def broken(path, text):
    """Name the links that lead nowhere."""
    for target in _LINK.findall(without_code(text)):
        if urlparse(target).scheme or target.startswith("#"):
            continue
        if not (path.parent / unquote(target.partition("#")[0])).exists():
            yield target


@mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    text = text_of(path)
    assert list(broken(path, text)) == []
    for address in _ADDRESS.findall(without_code(text)):
        assert "." in urlparse(address).netloc, address


def test_a_broken_link_would_be_seen():
    text = "[a](README.md) [b](no/such.md) `[c](code.md)` [d](https://x.org/y) ![e](README.md#top)"
    assert list(broken(ROOT / "README.md", text)) == ["no/such.md"]
