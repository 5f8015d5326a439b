"""The reading edition: the course as a web site, every lesson with what a calm run printed.

Sphinx with myst-nb makes the pages; here the notebooks are run and prepared for it. Results are
folded where a prediction precedes them, sliders become small multiples, terms are linked to the
glossary where a lesson first uses them, and exercises come without their solutions.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from labkit.course import exercises, notebooks
from labkit.course.lessons import ROOT

SOURCE = "edition"
KIT = ("launch", "fabric", "measure", "comm", "show")
GUIDES = {"FIELD_GUIDE.md": "field-guide", "INSTRUCTORS.md": "instructors", "THANKS.md": "thanks"}
_WIDGET = "application/vnd.jupyter.widget-view+json"
_TERM = re.compile(r"^(\w[\w -]*)\n  ", re.MULTILINE)
_NOT_PROSE = re.compile(
    r"(```.*?```|`[^`]*`|\[[^\]]*\]\([^)]*\)|\$[^$]*\$|<[^>]+>|^#.*?$|^\|.*?$)",
    re.DOTALL | re.MULTILINE,
)
"""Code, links, formulas, tags, headings, tables: nothing in them is linked to the glossary."""


def build(out: Path, *, executed: Path | None = None, say: Callable[[str], object] = print) -> Path:
    """Build the site; return its first page.

    Args:
        out: The folder to write; what is in it goes.
        executed: A folder with lessons that were run before; without it they are run now.
        say: Told what happens.

    Raises:
        RuntimeError: Sphinx or what it needs is missing, or it found something wrong.
    """
    source = out.with_name(f"{out.name}-source")
    for folder in (source, out):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / SOURCE, source)
    for path in lesson_files():
        run = (executed / path.name) if executed and (executed / path.name).exists() else None
        say(f"{'reading' if run else 'running'} {path.name}")
        page = nbformat.read(run, as_version=4) if run else _run(path)
        (source / "lessons").mkdir(exist_ok=True)
        nbformat.write(prepared(page, terms()), source / "lessons" / path.name)
    for path, text in {**_exercise_pages(), **_guides(), **_api()}.items():
        target = source / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    (source / "index.md").write_text(_index(), encoding="utf-8")
    say("building the pages")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(source), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment())
    if done.returncode:
        raise RuntimeError(
            f"Sphinx could not build the site:\n{done.stderr[-3000:]}\n"
            "If something is missing: pip install 'labkit[edition]'."
        )
    say(done.stderr.strip())
    return out / "index.html"


def lesson_files() -> list[Path]:
    """List the lessons' notebooks in their order."""
    return sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))


def terms() -> list[str]:
    """List the glossary's terms, the longest first."""
    text = (ROOT / SOURCE / "glossary.md").read_text(encoding="utf-8")
    return sorted(_TERM.findall(text.partition(":::{glossary}")[2]), key=len, reverse=True)


def prepared(notebook: NotebookNode, words: list[str]) -> NotebookNode:
    """Return an executed lesson as a page: no widgets, results folded, first terms linked."""
    waiting, unlinked = set(), list(words)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _linked(_relinked(cell.source), unlinked)
            continue
        keys = re.findall(r'ledger\.(predict|reconcile)\(\s*"([^"]+)"', cell.source)
        tags = cell.metadata.setdefault("tags", [])
        if waiting and not any(verb == "predict" for verb, _ in keys):
            tags.append("hide-output")
        waiting |= {key for verb, key in keys if verb == "predict"}
        waiting -= {key for verb, key in keys if verb == "reconcile"}
        if cell.get("id") == "imports":
            tags.append("hide-cell")
        cell.outputs = [_page_output(output) for output in cell.outputs if not _is_noise(output)]
    return notebook


def _run(path: Path) -> NotebookNode:
    before = os.environ.get("LABKIT_EDITION")
    os.environ["LABKIT_EDITION"] = "1"  # sliders draw small multiples
    try:
        return notebooks.execute(path).notebook
    finally:
        os.environ.pop("LABKIT_EDITION") if before is None else None


def _is_noise(output: NotebookNode) -> bool:
    return output.output_type == "stream" and output.name == "stderr"


def _page_output(output: NotebookNode) -> NotebookNode:
    if "text/html" in output.get("data", {}):
        output.data.pop(_WIDGET, None)
    return output


def _linked(text: str, words: list[str]) -> str:
    """Link each word where it first stands in prose, and take it off the list."""
    parts = _NOT_PROSE.split(text)
    for i in range(0, len(parts), 2):
        for word in list(words):
            pattern = re.compile(rf"(?<![\w*{{`-]){re.escape(word)}(?![\w*`-])", re.IGNORECASE)
            parts[i], found = pattern.subn(lambda m: f"{{term}}`{m[0]} <{word}>`", parts[i], 1)  # noqa: B023
            if found:
                words.remove(word)
                return _linked("".join(parts), words)
    return "".join(parts)


def _relinked(text: str) -> str:
    """Point links at the site's pages instead of the repository's files."""
    text = re.sub(r"\]\((?:\.\./)?exercises/(\w+)\.ipynb\)", r"](../exercises/\1.md)", text)
    text = re.sub(r"\]\((?:\.\./)?notebooks/(\w+\.ipynb)\)", r"](../lessons/\1)", text)
    for name, page in GUIDES.items():
        text = text.replace(f"](../{name})", f"](../{page}.md)").replace(
            f"]({name})", f"]({page}.md)"
        )
    return text


def _exercise_pages() -> dict[str, str]:
    """Return the pages of the exercises: one per set, one per exercise."""
    pages = {}
    for path in sorted((ROOT / "exercises").glob("*.ipynb")):
        notebook, names = notebooks.read(path), []
        title, texts = f"# {path.stem}", {}
        for cell in notebook.cells:
            part = exercises.part_of(cell)
            if part is None:
                if cell.cell_type == "markdown" and cell.source.startswith("# "):
                    title = cell.source
                continue
            page = texts.setdefault(part.number, [])
            if cell.cell_type == "markdown":
                page.append(re.sub(r"^## ", "# ", _relinked(cell.source)))
            else:
                page.append(f"```python\n{cell.source}\n```")
        for number, parts in texts.items():
            name = f"{path.stem}-{number.replace('.', '-')}"
            names.append(name)
            pages[f"exercises/{name}.md"] = "\n\n".join(parts) + "\n"
        toc = "\n".join(names)
        pages[f"exercises/{path.stem}.md"] = (
            f"{title}\n\n```{{toctree}}\n:maxdepth: 1\n\n{toc}\n```\n"
        )
    return pages


def _guides() -> dict[str, str]:
    return {
        f"{page}.md": _relinked((ROOT / name).read_text(encoding="utf-8"))
        for name, page in GUIDES.items()
        if (ROOT / name).exists()
    }


def _api() -> dict[str, str]:
    """Return a page for each module of the kit, from its docstrings."""
    pages, names = {}, []
    for folder in KIT:
        for path in sorted((ROOT / "labkit" / folder).glob("[!_]*.py")):
            module = f"labkit.{folder}.{path.stem}"
            names.append(module)
            pages[f"api/{module}.md"] = (
                f"# {module}\n\n```{{eval-rst}}\n.. automodule:: {module}\n   :members:\n```\n"
            )
    toc = "\n".join(names)
    pages["api/index.md"] = f"# The kit\n\n```{{toctree}}\n:maxdepth: 1\n\n{toc}\n```\n"
    return pages


def _index() -> str:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    opening = readme.partition("\n## ")[0].partition("\n")[2].partition("In a clone")[0]
    found = "\n".join(f"lessons/{path.stem}" for path in lesson_files())
    sets = "\n".join(f"exercises/{p.stem}" for p in sorted((ROOT / "exercises").glob("*.ipynb")))
    guides = "\n".join(page for page in GUIDES.values())
    return (
        f"# Why is my all-reduce slow?\n{opening}\n"
        f"```{{toctree}}\n:caption: Lessons\n:maxdepth: 1\n\n{found}\n```\n\n"
        f"```{{toctree}}\n:caption: Exercises\n:maxdepth: 2\n\n{sets}\n```\n\n"
        f"```{{toctree}}\n:caption: Guides\n:maxdepth: 1\n\n{guides}\nglossary\napi/index\n```\n"
    )


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}
