"""One click: badges, and the first cell of a lesson, which installs labkit where it is missing.

Both are written by `python -m course sync` from one setting, `Repository` of
`[project.urls]` in pyproject.toml. Where it is not set there are no badges, and the first cell
can only say what is missing.
"""

import re
import tomllib
from pathlib import Path
from urllib.parse import quote

from nbformat import NotebookNode, v4

CELL, BADGES = "hosted", "badges"  # the ids of the cells that `fronted` puts into a lesson
FOLDED = "hide-cell"  # the tag of a cell that JupyterLab and the reading edition show folded
ASKS = "hide-input"  # of one of which they fold the code alone: it asks, or sets up what is shown
DISTRIBUTION = "labkit-distributed"

_MISSING = """\
# First this cell, then all others in their order; after a restart of the kernel again.
import importlib.util

if importlib.util.find_spec("labkit") is None:
"""
# Colab and clusters' modules lack labkit: the cell installs it there, and never another torch.
_INSTALL = """\
    import subprocess
    import sys
    from importlib.metadata import version

    asked = ["{distribution}[lessons] @ git+{address}"]
    if importlib.util.find_spec("torch"):
        asked.append(f"torch=={{version('torch')}}")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *asked], check=True)
    importlib.invalidate_caches()"""
_NOWHERE = """\
    print("labkit is missing, and this copy has no address to install it from: see README.md.")"""


def address(root: Path) -> str:
    """Return the repository's address as pyproject.toml has it; empty where it is not set.

    Raises `ValueError` where it is not an address that a notebook's text may hold.
    """
    path = root / "pyproject.toml"
    if not path.exists():
        return ""
    project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    url = project.get("urls", {}).get("Repository", "").rstrip("/").removesuffix(".git")
    if url and not re.fullmatch(r"(https|file)://[\w./~+@:-]+", url):
        raise ValueError(f"pyproject.toml: Repository is no address of a repository: {url!r}")
    return url


def badges(repository: str, path: str = "notebooks/00_start_here.ipynb") -> str:
    """Return the badges of a notebook, as Markdown; nothing where a service cannot reach it."""
    match = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)", repository)
    if match is None:
        return ""
    name, file = match[1], quote(path)
    colab, binder = "https://colab.research.google.com", "https://mybinder.org"
    tree = quote(f"lab/tree/{path}", safe="")
    links = {
        "Colab": (f"{colab}/assets/colab-badge.svg", f"{colab}/github/{name}/blob/HEAD/{file}"),
        "Binder": (f"{binder}/badge_logo.svg", f"{binder}/v2/gh/{name}/HEAD?urlpath={tree}"),
        "Codespaces": ("https://github.com/codespaces/badge.svg", f"https://codespaces.new/{name}"),
    }
    each = (f"[![Open in {name}]({image})]({link})" for name, (image, link) in links.items())
    return "\n".join(each)


def fronted(notebook: NotebookNode, repository: str, path: str) -> NotebookNode:
    """Return a lesson with its badges, below the title, and its cell, before the first of code."""
    cells = [cell for cell in notebook.cells if cell.id not in (CELL, BADGES)]
    instead = _INSTALL.format(address=repository, distribution=DISTRIBUTION)
    source = _MISSING + (instead if repository else _NOWHERE)
    first = v4.new_code_cell(source, id=CELL, metadata={"tags": [FOLDED]})
    place = next((i for i, cell in enumerate(cells) if cell.cell_type == "code"), len(cells))
    cells.insert(place, first)
    if text := badges(repository, path):
        cells.insert(min(1, place), v4.new_markdown_cell(text, id=BADGES))
    return v4.new_notebook(cells=cells, metadata=notebook.metadata)
