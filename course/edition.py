"""The reading edition: the course as a web site, every lesson with what a calm run printed.

Sphinx with myst-nb makes the pages; here the notebooks are run and prepared for it. Results are
folded from a question to its reconciliation, until the reader commits in a box of our own script;
sliders become pictures with a switch; terms are linked to the glossary where a lesson first uses
them; exercises come without their solutions. A lesson with a module `pages` adds pages of its own.
"""

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib import util
from pathlib import Path, PurePosixPath

import nbformat
from nbformat import NotebookNode

from course import catalogue, hosted, notebooks
from course.catalogue import ROOT

SOURCE = "edition"
GUIDES = {
    "FIELD_GUIDE.md": "field-guide",
    "docs/labkit.md": "labkit",
    "docs/own-logs.md": "own-logs",
    "docs/hardware.md": "hardware",
    "docs/cluster.md": "cluster",
    "INSTRUCTORS.md": "instructors",
    "docs/rooms.md": "rooms",
    "docs/pictures.md": "pictures",
    "CONTRIBUTING.md": "contributing",
    "THANKS.md": "thanks",
    "CHANGELOG.md": "changelog",
}
"""File in the repository -> page of the site, in the order of its table of contents."""
_WIDGET = "application/vnd.jupyter.widget-view+json"
_CALL = re.compile(r'\b(predict|choose|reconcile)\(\s*"([^"]+)"')
_SHOWN = re.compile(r'class="course-(question|result)"[^>]* data-key="([^"]+)"')
_TERM = re.compile(r"^(\w[\w -]*)\n  ", re.MULTILINE)
_LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")
_NOT_PROSE = re.compile(
    r"(```.*?```|`[^`]*`|\[[^\]]*\]\([^)]*\)|\$\$.*?\$\$|\$[^$]*\$|<[^>]+>|^#.*?$|^\|.*?$)",
    re.DOTALL | re.MULTILINE,
)
"""Code, links, formulas, tags, headings, tables: nothing in them is linked to the glossary."""


def build(out: Path, *, executed: Path | None = None, say: Callable[[str], object] = print) -> Path:
    """Build the site in the folder `out`, whose content goes; return its first page.

    Lessons that are in the folder `executed` were run before; the others are run now.

    Raises:
        RuntimeError: Sphinx or what it needs is missing, or it found something wrong.
    """
    source = out.with_name(f"{out.name}-source")
    for folder in (source, out):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / SOURCE, source)
    for path in lesson_files():
        inside = path.relative_to(ROOT / "notebooks")
        if executed and (executed / inside).exists():
            say(f"reading {path.name}")
            page = nbformat.read(executed / inside, as_version=4)
        else:
            say(f"running {path.name}")
            page = notebooks.execute(path, LABKIT_EDITION="1")  # sliders: small multiples
        target, folder = source / "lessons" / inside, inside.parent.as_posix().strip(".")
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(prepared(page, terms(), folder=folder), target)
    shutil.copytree(ROOT / "pictures", source / "pictures")
    for path, text in {**_exercise_pages(), **_lesson_pages(), **_guides()}.items():
        target = source / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    (source / "index.md").write_text(_index(), encoding="utf-8")
    say("building the pages")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(source), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=catalogue.environment())
    if done.returncode:
        raise RuntimeError(
            f"Sphinx could not build the site:\n{done.stderr[-3000:]}\n"
            "If something is missing: pip install 'labkit[edition]'."
        )
    say(done.stderr.strip())
    return out / "index.html"


def lesson_files() -> list[Path]:
    """List the lessons' notebooks as we recommend them, then what goes deeper, then the others."""
    folder = ROOT / "notebooks"
    lessons = [path for one in catalogue.recommended() if (path := one.notebook(folder))]
    rest = [path for path in sorted(folder.glob("*.ipynb")) if path not in lessons]
    return [*lessons, *sorted((folder / "deeper").glob("*.ipynb")), *rest]


def terms() -> list[str]:
    """List the glossary's terms, the longest first."""
    text = (ROOT / SOURCE / "glossary.md").read_text(encoding="utf-8")
    return sorted(_TERM.findall(text.partition(":::{glossary}")[2]), key=len, reverse=True)


def prepared(notebook: NotebookNode, words: list[str], *, folder: str = "") -> NotebookNode:
    """Return an executed lesson as a page: no widgets, results folded, first terms linked.

    `folder` is where in `notebooks/` it lies.
    """
    waiting, unlinked = set(), list(words)
    ours = (hosted.CELL, hosted.BADGES)
    notebook.cells = [cell for cell in notebook.cells if cell.get("id") not in ours]
    for place, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            here = PurePosixPath("notebooks", folder), PurePosixPath("lessons", folder)
            text = _linked(_relinked(cell.source, *map(str, here)), unlinked)
            cell.source = re.sub(r"^# ", "## ", text, flags=re.MULTILINE) if place else text
            continue
        shown = "".join(one.get("data", {}).get("text/html", "") for one in cell.outputs)
        keys = [*_CALL.findall(cell.source), *_SHOWN.findall(shown)]  # some are asked in a loop
        asked = {key for verb, key in keys if verb in ("predict", "choose", "question")}
        tags = cell.metadata.setdefault("tags", [])
        if waiting - asked and not asked:
            tags += ["hide-output", *sorted(f"until-{key.replace('.', '-')}" for key in waiting)]
        waiting |= asked
        if seen := {key for verb, key in keys if verb in ("reconcile", "result")}:
            tags.append("hide-input")  # its code may name the right letter
        waiting -= seen
        if re.match(r"(ledger\.)?(predict|choose|warmup|inventory)\(", cell.source):
            tags.append("remove-input")
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.outputs:
            if "text/html" in output.get("data", {}):
                output.data.pop(_WIDGET, None)
    return notebook


def _linked(text: str, words: list[str]) -> str:
    """Link each word where it first stands in prose, and take it off the list."""
    parts = _NOT_PROSE.split(text)
    for i in range(0, len(parts), 2):
        for word in list(words):
            pattern = re.compile(rf"(?<![\w*{{`-]){re.escape(word)}(?![\w*`-])", re.IGNORECASE)
            parts[i], count = pattern.subn(lambda m: f"{{term}}`{m[0]} <{word}>`", parts[i], 1)  # noqa: B023
            if count:
                words.remove(word)
                return _linked("".join(parts), words)
    return "".join(parts)


def _relinked(text: str, folder: str, site: str) -> str:
    """Point a text's links at the site's pages instead of the repository's files.

    They start from a folder of the repository; the page lies in a folder of the site. A file
    without a page is linked in the repository, or, where its address is not set, not at all.
    """
    repository = hosted.address(ROOT)

    def link(match: re.Match) -> str:
        file = os.path.normpath(PurePosixPath(folder, match[1]))
        page = _page_of(file)
        if page:
            return f"]({os.path.relpath(page, site or '.')}{match[2] or ''})"
        return f"]({repository}/blob/HEAD/{file})" if repository else "]()"

    return re.sub(r"(?<!!)\[([^\[\]]*)\]\(\)", r"\1", _LINK.sub(link, text))


def _page_of(file: str) -> str:
    """Return the page of a file of the repository; empty where it has none."""
    path = PurePosixPath(file)
    if file == "README.md":
        return "index.md"
    if file in GUIDES:
        return f"{GUIDES[file]}.md"
    return {
        "notebooks": f"lessons/{path.name}",
        "notebooks/deeper": f"lessons/deeper/{path.name}",
        "exercises": f"exercises/{path.stem}.md",
        "pictures": file,
    }.get(str(path.parent), "")


def _exercise_pages() -> dict[str, str]:
    """Return the pages of the exercises, one per set."""
    pages = {}
    for path in sorted((ROOT / "exercises").glob("*.ipynb")):
        parts = [
            f"```python\n{cell.source}\n```"
            if cell.cell_type == "code"
            else _relinked(cell.source, "exercises", "exercises")
            for cell in notebooks.read(path).cells
            if cell.id not in (hosted.CELL, hosted.BADGES)
        ]
        hint = f"*To run it: `python -m course start`, then `work/exercises/{path.name}`.*"
        pages[f"exercises/{path.stem}.md"] = "\n\n".join([parts[0], hint, *parts[1:]]) + "\n"
    return pages


def _lesson_pages() -> dict[str, str]:
    """Return what lessons add: each page, and a list of them under `CAPTION`."""
    pages_by_path = {}
    for package in catalogue.find():
        if util.find_spec(f"{package}.pages") is None:
            continue
        module = importlib.import_module(f"{package}.pages")
        folder, pages = module.CAPTION.lower(), module.pages()
        pages_by_path |= {f"{folder}/{name}.md": text for name, text in pages.items()}
        pages_by_path[f"{folder}/index.md"] = f"# {module.CAPTION}\n\n{_toctree(pages)}"
    return pages_by_path


def _guides() -> dict[str, str]:
    """Return the guides, each case that they name linked to its page."""
    named = {f"`{PurePosixPath(page).stem}`": page for page in _lesson_pages()}

    def linked(match: re.Match) -> str:
        return f"[{match[0]}]({named[match[0]]})" if match[0] in named else match[0]

    return {
        f"{page}.md": re.sub(
            r"`[a-z-]+`",
            linked,
            _relinked(
                (ROOT / name).read_text(encoding="utf-8"), str(PurePosixPath(name).parent), ""
            ),
        )
        for name, page in GUIDES.items()
    }


def _index() -> str:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    opening = readme.partition("<!-- end of badges -->")[2].partition("## The lessons")[0]
    lessons = (path.relative_to(ROOT / "notebooks").with_suffix("") for path in lesson_files())
    paths = [f"lessons/{path.as_posix()}" for path in lessons]
    sets = [f"exercises/{path.stem}" for path in sorted((ROOT / "exercises").glob("*.ipynb"))]
    sets += [path[:-3] for path in _lesson_pages() if path.endswith("/index.md")]
    return (
        f"# Why is my all-reduce slow?\n{_relinked(opening, '', '')}\n"
        f"**Or read it here**: begin with [the first lesson]({paths[0]}.ipynb). Results are "
        "folded until you commit to an answer; what you commit stays in your browser.\n\n"
        f"{_toctree(paths, ':caption: Lessons')}\n"
        f"{_toctree(sets, ':caption: Exercises and cases', depth=2)}\n"
        f"{_toctree([*GUIDES.values(), 'glossary'], ':caption: Guides')}"
    )


def _toctree(pages: Iterable[str], *options: str, depth: int = 1) -> str:
    return "\n".join(["```{toctree}", *options, f":maxdepth: {depth}", "", *pages, "```\n"])
