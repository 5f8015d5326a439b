"""The notebooks as one tree: what people write, and what `course sync` derives from it."""

import re
from collections.abc import Iterator
from pathlib import Path

from nbformat import NotebookNode

from course.catalogue import ROOT
from course.notebooks import exercises, files, hosted

LESSONS, SOLUTIONS, EXERCISES = "notebooks", "solutions", "exercises"
"""Folders, and the ends of their notebooks' names, so that tabs can be told apart."""
DEEPER = "deeper"  # in the lessons' folder: what nobody needs for the next lesson
UNNUMBERED = ("gpus", "inventory", "workshop_two_hours")  # no lessons of their own

_NAME = re.compile(r"(\d\d[a-z]?)_[a-z0-9_]+\.ipynb")
_COUNTS = re.compile(rf"\[\d+\]\({EXERCISES}/(\S+\.ipynb)\)")
_CELL = re.compile(r"`(\w+)#([\w-]+)`")
"""How `docs/questions.md` names a cell: `01#cpus`, `01d#ladder` of a deeper page, `gpus#send`."""
_BADGES = re.compile(r"(?<=<!-- badges -->\n).*?(?=<!-- end of badges -->)", re.DOTALL)


def kept(root: Path = ROOT) -> list[Path]:
    """List the notebooks that people write: lessons and solutions, in order of their names."""
    folders = (LESSONS, f"{LESSONS}/{DEEPER}", SOLUTIONS)
    return [path for folder in folders for path in sorted((root / folder).glob("*.ipynb"))]


def without_outputs(root: Path = ROOT) -> list[Path]:
    """List the solutions whose checks keep nothing that nbval could compare."""
    solutions = (path for path in kept(root) if path.parent.name == SOLUTIONS)
    return [path for path in solutions if _silent(files.read(path))]


def _silent(notebook: NotebookNode) -> list[str]:
    parts = ((cell, exercises.part_of(cell)) for cell in notebook.cells)
    return [cell.id for cell, part in parts if part and part.role == "check" and not cell.outputs]


def with_outputs(path: Path) -> NotebookNode:
    """Run a solutions notebook; return it with what its checks print, which nbval compares."""
    notebook, ran = files.read(path), files.execute(path)
    for cell, done in zip(notebook.cells, ran.cells, strict=True):
        if cell.cell_type == "code":
            cell.outputs = done.outputs
    return files.canonical(exercises.with_grading(notebook))


def derived(root: Path = ROOT) -> dict[Path, str]:
    """Return what every file that `course sync` writes should contain.

    These are notebooks in canonical form, exercises, the README's badges and INSTRUCTORS.md's rows.
    `ValueError` names the file whose solution regions do not pair, or whose address is none.
    """
    contents, repository = {}, hosted.address(root)
    for source in kept(root):
        given, path = files.read(source), source
        if source.parent.name == SOLUTIONS:
            try:
                graded = exercises.with_grading(files.canonical(given))
                contents[source] = files.dumps(files.canonical(graded))
                given = exercises.derive(graded)
            except ValueError as error:
                raise ValueError(f"{source.name}: {error}") from error
            path = root / EXERCISES / source.name.replace(SOLUTIONS, EXERCISES)
        notebook = hosted.fronted(given, repository, path.relative_to(root).as_posix())
        contents[path] = files.dumps(files.canonical(notebook))
    readme = root / "README.md"
    if readme.exists():
        text = readme.read_text(encoding="utf-8")
        text = _COUNTS.sub(lambda match: _counted(match, root), text)
        badges = "".join(f"{line}\n" for line in hosted.badges(repository).splitlines())
        contents[readme] = _BADGES.sub(lambda _: badges, text)
    return contents


def _counted(link: re.Match[str], root: Path) -> str:
    source = root / SOLUTIONS / link[1].replace(EXERCISES, SOLUTIONS)
    count = len(exercises.numbers(source)) if source.exists() else 0
    return f"[{count}]({EXERCISES}/{link[1]})"


def sync(root: Path = ROOT) -> list[Path]:
    """Write what is derived, drop exercises without a solution; return what changed."""
    contents = derived(root)
    changed = [path for path in sorted((root / EXERCISES).glob("*.ipynb")) if path not in contents]
    for path in changed:
        path.unlink()
    for path, text in contents.items():
        if _text(path) != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def problems(root: Path = ROOT) -> Iterator[str]:
    """Name everything that `course check` objects to, one line each, with the file in front."""
    for path in kept(root):
        notebook, match = files.read(path), _NAME.fullmatch(path.name)
        complaints = list(files.problems(notebook))
        if match is None and path.stem not in UNNUMBERED:
            complaints.append("a notebook's name is like 01_gloo_scaling.ipynb")
        elif path.parent.name == SOLUTIONS:
            complaints += exercises.problems(notebook, lesson=match[1].lstrip("0"))
            remedy = "run 'python -m course sync --outputs'"
            complaints += [f"{cell_id} keeps no output; {remedy}" for cell_id in _silent(notebook)]
        yield from (f"{path.relative_to(root)}: {problem}" for problem in complaints)
    yield from _unanswered(root)
    yield from _without_row(root)
    try:
        contents = derived(root)
    except ValueError as error:
        yield str(error)
        return
    for path in sorted((root / EXERCISES).glob("*.ipynb")):
        if path not in contents:
            yield f"{EXERCISES}/{path.name}: has no solutions notebook"
    for path, text in contents.items():
        if _text(path) != text:
            yield f"{path.relative_to(root)}: not up to date; run 'python -m course sync'"


def _unanswered(root: Path) -> Iterator[str]:
    """Name each cell of the page of questions that is in no notebook."""
    page = root / "docs/questions.md"
    named = set(_CELL.findall(page.read_text(encoding="utf-8"))) if page.exists() else set()
    for lesson, cell_id in sorted(named):
        folder = f"{LESSONS}/{DEEPER}" if lesson.endswith("d") else LESSONS
        paths = (root / folder).glob(f"{lesson.removesuffix('d')}*.ipynb")
        if not any(cell.id == cell_id for path in paths for cell in files.read(path).cells):
            yield f"docs/questions.md: there is no cell `{lesson}#{cell_id}`"


def _without_row(root: Path) -> Iterator[str]:
    """Name each lesson that a page's table of lessons leaves out."""
    for path in sorted((root / LESSONS).glob("*.ipynb")):
        match = _NAME.fullmatch(path.name)
        if match is None:
            continue
        for page in ("README.md", "INSTRUCTORS.md"):
            row = re.compile(rf"^\| {match[1]} \|", re.MULTILINE)
            if (root / page).exists() and not row.search((root / page).read_text(encoding="utf-8")):
                yield f"{page}: its table of lessons has no row that begins with '| {match[1]} |'"


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
