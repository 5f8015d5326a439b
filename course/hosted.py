"""One click: badges, and the first cell of a lesson, which installs labkit where it is missing.

Both are written by `python -m course sync` from one setting, `Repository` of
`[project.urls]` in pyproject.toml. Where it is not set there are no badges, and the first cell
can only say what is missing.

The cell does nothing where labkit can be imported. Elsewhere (Colab, a cluster's module, a
container) it installs labkit without its dependencies and runs this file, by its path, because
`import labkit` needs what may still be missing. `prepare` adds that, never another torch, and says
what the machine can do.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from nbformat import NotebookNode

CELL, BADGES = "hosted", "badges"
"""The ids of the two cells that `fronted` puts into a lesson."""
FOLDED = "hide-cell"
"""The tag of a cell that JupyterLab and the reading edition show folded."""
DISTRIBUTION = "labkit-distributed"
NOT_ALONE = ("torch", "jupyterlab")
"""What a hosted notebook has in the version that fits it: `prepare` never installs these."""

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SAID = ("Python", "torch", "two ranks", "CPUs", "memory", "shared memory", "GPUs", "fabric")
_INSTALL = """\
# Where labkit is missing (Colab, a cluster's module) this installs it, and never another torch.
import importlib.util

if importlib.util.find_spec("labkit") is None:
    import runpy
    import subprocess
    import sys
    from pathlib import Path

    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "git+{address}"], check=True)
    importlib.invalidate_caches()
    folder = Path(importlib.util.find_spec("labkit").origin).parents[1]
    runpy.run_path(f"{{folder}}/course/hosted.py", run_name="__main__")"""
_NOWHERE = """\
# Where labkit is missing this says so. A copy that knows its address would install it.
import importlib.util

if importlib.util.find_spec("labkit") is None:
    print("labkit is missing, and this copy has no address to install it from: see README.md.")"""


def address(root: Path) -> str:
    """Return the repository's address as pyproject.toml has it; empty where it is not set.

    Raises:
        ValueError: It is not an address that a notebook's text may hold.
    """
    path = root / "pyproject.toml"
    if not path.exists():
        return ""
    project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    found = project.get("urls", {}).get("Repository", "").rstrip("/").removesuffix(".git")
    if found and not re.fullmatch(r"(https|file)://[\w./~+@:-]+", found):
        raise ValueError(f"pyproject.toml: Repository is no address of a repository: {found!r}")
    return found


def badges(repository: str, path: str = "notebooks/00_start_here.ipynb") -> str:
    """Return the badges of a notebook, as Markdown; nothing where a service cannot reach it."""
    match = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)", repository)
    if match is None:
        return ""
    name, file = match[1], quote(path)
    links = {
        "Colab": (
            "https://colab.research.google.com/assets/colab-badge.svg",
            f"https://colab.research.google.com/github/{name}/blob/HEAD/{file}",
        ),
        "Binder": (
            "https://mybinder.org/badge_logo.svg",
            f"https://mybinder.org/v2/gh/{name}/HEAD?urlpath={quote(f'lab/tree/{path}', safe='')}",
        ),
        "Codespaces": (
            "https://github.com/codespaces/badge.svg",
            f"https://codespaces.new/{name}",
        ),
    }
    return "\n".join(
        f"[![Open in {service}]({image})]({link})" for service, (image, link) in links.items()
    )


def fronted(notebook: NotebookNode, repository: str, path: str) -> NotebookNode:
    """Return a lesson with its badges and its first cell as they should be.

    Badges stand below the title, the cell before the first code cell.
    """
    from nbformat import v4

    cells = [cell for cell in notebook.cells if cell.id not in (CELL, BADGES)]
    source = _INSTALL.format(address=repository) if repository else _NOWHERE
    first = v4.new_code_cell(source, id=CELL, metadata={"tags": [FOLDED]})
    place = next((i for i, cell in enumerate(cells) if cell.cell_type == "code"), len(cells))
    cells.insert(place, first)
    if text := badges(repository, path):
        cells.insert(min(1, place), v4.new_markdown_cell(text, id=BADGES))
    return v4.new_notebook(cells=cells, metadata=notebook.metadata)


def prepare() -> None:
    """Install what labkit needs and is missing, never torch; say what the machine can do.

    Raises:
        RuntimeError: pip could not install something; with its last lines.
    """
    if wanted := list(missing()):
        print(f"installing {', '.join(wanted)}", flush=True)
        _install(wanted)
    from course import doctor

    findings = [doctor.examine(name, *doctor.CHECKS[name]) for name in _SAID]
    print("\n".join(doctor.told(findings)))


def missing() -> Iterator[str]:
    """Name the requirements of labkit that are not there, or older than it needs."""
    for requirement in metadata.requires(DISTRIBUTION) or ():
        needed, _, condition = (part.strip() for part in requirement.partition(";"))
        name = _NAME.match(needed)[0]
        if name in (*NOT_ALONE, DISTRIBUTION) or re.search("test|edition", condition):
            continue
        if "sys_platform" in condition and sys.platform not in condition:
            continue
        oldest = re.search(r">=\s*([\d.]+)", needed)
        try:
            found = _numbers(metadata.version(name))
        except metadata.PackageNotFoundError:
            yield needed
            continue
        if oldest and found < _numbers(oldest[1]):
            yield needed


def _install(wanted: list[str]) -> None:
    """Install, with torch held at the version that is there."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as held:
        for name in NOT_ALONE:
            try:
                version = metadata.version(name).partition("+")[0]
                held.write(f"{name}=={version}\n")
            except metadata.PackageNotFoundError:
                pass
        held.flush()
        command = [sys.executable, "-m", "pip", "install", "--quiet", "-c", held.name, *wanted]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"pip could not install {', '.join(wanted)}:\n{done.stderr[-2000:]}")
    importlib.invalidate_caches()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])[:3]))


if __name__ == "__main__":
    prepare()
