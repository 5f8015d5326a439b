"""The reading edition: the course as a web site, every lesson with what a calm run printed.

Sphinx with myst-nb makes the pages, from files that lie as in the repository, so that links
between them hold; here the notebooks are run and prepared for it. Results are folded from a
question to its reconciliation, and with them the text that tells of them, until the reader commits
in a box of our own script; sliders become pictures with a switch; terms are linked to the glossary
where a lesson first uses them; exercises come without their solutions.
"""

import ast
import hashlib
import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from importlib import util
from pathlib import Path

from nbformat import NotebookNode, v4

from course import catalogue
from course.catalogue import ROOT
from course.notebooks import files, hosted

SETTINGS, GLOSSARY, REFERENCE = "docs/edition", "docs/glossary.md", "docs/reference.md"
GUIDES = (
    *("FIELD_GUIDE.md", "docs/sick-host.md", "docs/labkit.md", "docs/own-logs.md"),
    *("docs/hardware.md", "docs/pipelines-on-nccl.md", "docs/cluster.md", "INSTRUCTORS.md"),
    *("docs/rooms.md", "docs/pictures.md", "CONTRIBUTING.md", "docs/THANKS.md"),
    "CHANGELOG.md",
)
"""In the order of the site's table of contents."""
FILES = (  # what pages link besides
    *("docs/pictures/*", "examples/*.py", "docs/*.py"),
    *("course/predictions/questions/*", "course/play/frame.js", "Dockerfile"),
    "LICENSE*",
)
CODE = "course-code"  # of a kept run: the digest of the code that it ran with
_WIDGET = "application/vnd.jupyter.widget-view+json"
_FOLDED_TEXT = re.compile("<details><summary>When you have run it")
_SEEN = "When you have seen the result"
_TERM = re.compile(r"^## (\w[\w -]*)$", re.MULTILINE)
_NOT_PROSE = re.compile(
    r"(```.*?```|`[^`]*`|\[[^\]]*\]\([^)]*\)|\$\$.*?\$\$|\$[^$]*\$|<[^>]+>|^#.*?$|^\|.*?$)",
    re.DOTALL | re.MULTILINE,
)
"""Code, links, formulas, tags, headings, tables: nothing in them is linked to the glossary."""


def build(out: Path, *, calm: Path | None = None, anew: bool = False) -> Path:
    """Run the lessons, build the site in the folder `out`, whose content goes; return its front.

    The same site lies beside it as `out`.zip, to be handed on: unpacked, it opens without a server.
    Each executed lesson is kept, in `out`-runs, and runs again only when its cells or the code of
    course or labkit have changed since, or all are to run `anew`. From a folder `calm`, an
    `out`-runs of another machine, a lesson is taken whose cells are the same; only others run.

    What Sphinx reads stays beside it, in `out`-source, and is built again without running anything
    by `python -m sphinx -c docs/edition SOURCE OUT`. `RuntimeError` says that Sphinx or what it
    needs is missing, that a lesson did not run to its end, or that Sphinx found something wrong.
    """
    if util.find_spec("myst_nb") is None:
        raise RuntimeError("The edition needs Sphinx and more: pip install -r requirements-dev.txt")
    source = out.with_name(f"{out.name}-source")
    for folder in (source, out):
        shutil.rmtree(folder, ignore_errors=True)
    runs = calm or out.with_name(f"{out.name}-runs")
    beside = {_name(path): path.read_bytes() for pattern in FILES for path in ROOT.glob(pattern)}
    for name, content in [*beside.items(), *pages(runs, calm=calm is not None, anew=anew)]:
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    print("building the pages", flush=True)
    command = [
        sys.executable, "-m", "sphinx", "-q", "-b", "html", "-c", str(ROOT / SETTINGS),
        "-d", str(out.with_name(f"{out.name}-doctrees")), str(source), str(out),
    ]  # fmt: skip
    done = subprocess.run(command, env=catalogue.environment())
    if done.returncode:
        raise RuntimeError("Sphinx could not build the site.")
    shutil.make_archive(str(out), "zip", out.parent, out.name)
    return out / "index.html"


def pages(runs: Path, *, calm: bool = False, anew: bool = False) -> Iterator[tuple[str, str]]:
    """Run the lessons, or take kept runs as `_ran` does; yield what Sphinx reads: paths, texts."""
    code = _code()
    lessons, exercises = lesson_files(), sorted((ROOT / "exercises").glob("*.ipynb"))
    for path in lessons:
        lesson = _ran(path, runs, code, calm=calm, anew=anew)
        yield _name(path), files.dumps(prepared(lesson, terms()))
    for path in exercises:
        page = prepared(files.read(path), [])
        hint = f"*To run it: `python -m course start`, then `work/{_name(path)}`.*"
        page.cells.insert(1, v4.new_markdown_cell(hint, id="to-run-it"))
        yield _name(path), files.dumps(page)
    cases = importlib.import_module("course.lessons.casebook.cases").pages()
    for name, text in cases.items():
        yield f"cases/{name}.md", text
    yield "cases/index.md", f"# Cases\n\n{_toctree(cases)}"
    for name in (*GUIDES, GLOSSARY):
        text = (ROOT / name).read_text(encoding="utf-8")
        for case in cases:
            text = text.replace(f"`{case}`", f"[`{case}`](/cases/{case}.md)")
        yield name, text.replace("`docs/reference.html`", f"[a page of its own](/{REFERENCE})")
    yield REFERENCE, reference()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    opening = readme.partition("<!-- end of badges -->")[2].partition("## The lessons")[0]
    sets = [*map(_name, exercises), "cases/index.md"]
    front = (
        "# Why is my all-reduce slow?\n\n"
        f"**Read it here**, without installing anything: begin with [the first lesson]"
        f"({_name(lessons[0])}). Results are folded until you commit to an answer; what you commit "
        f"stays in your browser. To run it on a machine of yours, read on.\n{opening}\n"
        f"{_toctree(map(_name, lessons), ':caption: Lessons')}\n"
        f"{_toctree(sets, ':caption: Exercises and cases', depth=2)}\n"
        f"{_toctree([*GUIDES, REFERENCE, GLOSSARY], ':caption: Guides')}"
    )
    yield "index.md", front


def _ran(
    path: Path, runs: Path, code: str, *, calm: bool = False, anew: bool = False
) -> NotebookNode:
    """Run a lesson and keep it, or take the kept one where neither cells nor `code` have changed.

    Of a `calm` machine's runs the cells alone decide.
    """
    kept = runs / path.relative_to(ROOT)
    if kept.exists() and not anew:
        before, now = files.read(kept), files.read(path)
        same_cells = [cell.source for cell in before.cells] == [cell.source for cell in now.cells]
        if same_cells and (calm or before.metadata.get(CODE) == code):
            when = datetime.fromtimestamp(kept.stat().st_mtime)
            print(f"{_name(path)}: as it ran on {when:%Y-%m-%d at %H:%M}")
            return before
    print(f"running {_name(path)}", flush=True)  # a log shows it at once, too
    ran = files.execute(path, LABKIT_STATIC="1")  # no sliders
    ran.metadata[CODE] = code
    files.write(ran, kept)
    return ran


def _code() -> str:
    """Return a digest of all files of course and labkit, which lessons run with."""
    digest = hashlib.sha256()
    for folder in ("course", "labkit"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def lesson_files() -> list[Path]:
    """List the lessons' notebooks by number, then what goes deeper, then the others."""
    patterns = "[0-9]*.ipynb", "deeper/*.ipynb", "[!0-9]*.ipynb"
    return [path for each in patterns for path in sorted((ROOT / "notebooks").glob(each))]


def terms() -> list[str]:
    """List the glossary's terms, the longest first."""
    text = (ROOT / GLOSSARY).read_text(encoding="utf-8")
    return sorted(_TERM.findall(text), key=len, reverse=True)


def anchor(heading: str) -> str:
    """Return the anchor of a heading of the glossary, as JupyterLab makes it."""
    return heading.replace(" ", "-")


def slug(heading: str) -> str:
    """Return the anchor of a heading of the site, for its settings."""
    from myst_parser.mdit_to_docutils.base import default_slugify

    return anchor(heading) if heading in terms() else default_slugify(heading)


def prepared(notebook: NotebookNode, words: list[str]) -> NotebookNode:
    """Return an executed lesson as a page: no widgets, results folded, first terms linked."""
    waiting, unlinked, ours = set(), list(words), (hosted.CELL, hosted.BADGES)
    folded: list[str] = []  # the questions behind which the last output lies
    notebook.cells = [cell for cell in notebook.cells if cell.get("id") not in ours]
    for place, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            fold = f'<details data-until="{" ".join(folded)}"><summary>{_SEEN}'
            text = _FOLDED_TEXT.sub(fold, _linked(cell.source, unlinked))
            cell.source = re.sub(r"^# ", "## ", text, flags=re.MULTILINE) if place else text
            continue
        roles = [output.get("metadata", {}).get("course", {}) for output in cell.outputs]
        asks = {role["asks"] for role in roles if role.get("asks")}
        seen = {role["tells"] for role in roles if "tells" in role}
        tags = cell.metadata.setdefault("tags", [])
        folded = []
        if waiting - asks and not asks:
            tags += ["hide-output", *sorted(f"until-{key.replace('.', '-')}" for key in waiting)]
            folded = [f"tag_{tag}" for tag in tags if tag.startswith("until-")]
        waiting |= asks
        if seen:
            tags.append("hide-input")  # its code may name the right letter
        waiting -= seen
        if any("asks" in role for role in roles) and _is_one_call(cell.source):
            tags.append("remove-input")
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.outputs:
            if "text/html" in output.get("data", {}):
                output.data.pop(_WIDGET, None)
    return notebook


def _is_one_call(source: str) -> bool:
    body = ast.parse(source).body
    return len(body) == 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Call)


def _linked(text: str, words: list[str]) -> str:
    """Link each word where it first stands in prose, and take it off the list."""
    for word in [word for word in words if word.lower() in text.lower()]:
        pattern = re.compile(rf"(?<![\w*{{`-]){re.escape(word)}(?![\w*`-])", re.IGNORECASE)
        link = rf"[\g<0>](/{GLOSSARY}#{anchor(word)})"
        parts = _NOT_PROSE.split(text)
        place = next((i for i in range(0, len(parts), 2) if pattern.search(parts[i])), None)
        if place is not None:
            parts[place] = pattern.sub(link, parts[place], 1)
            text = "".join(parts)
            words.remove(word)
    return text


def reference() -> str:
    """Write the page of labkit's instruments and pictures; Sphinx takes their docstrings."""
    paths = [*ROOT.glob("labkit/measure/[a-z]*.py"), *ROOT.glob("labkit/show/[a-z]*.py")]
    modules = [f"labkit.{path.parent.name}.{path.stem}" for path in sorted(paths)]
    parts = [f"## {x}\n\n```{{eval-rst}}\n.. automodule:: {x}\n```" for x in modules]
    return "\n\n".join(["# Reference of labkit.measure and labkit.show", *parts]) + "\n"


def _toctree(pages: Iterable[str], *options: str, depth: int = 1) -> str:
    return "\n".join(["```{toctree}", *options, f":maxdepth: {depth}", "", *pages, "```\n"])
