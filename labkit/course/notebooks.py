"""Keep the course in order: `python -m labkit course format|run|sync|pictures|check`.

- `format`: bring notebooks into canonical form (`labkit.course.canonical`) and write the metadata
  of exercises (`labkit.course.exercises`, which tells the convention of an exercise).
- `run NOTEBOOK...`: execute from start to end and store the outputs of exactly the marked cells.
- `sync`: derive `exercises/` from `solutions/`.
- `pictures`: draw the README's pictures from the runs that lessons keep.
- `check`: say everything that is not as it should be; change nothing.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from labkit.course import canonical, exercises
from labkit.course.lessons import ROOT

LESSONS, SOLUTIONS, EXERCISES = "notebooks", "solutions", "exercises"

_NAME = re.compile(r"(\d\d[a-z]?)_[a-z0-9_]+\.ipynb")


def kept(root: Path = ROOT) -> list[Path]:
    """List the notebooks that people write: lessons and solutions, in order of their names."""
    return [
        path for folder in (LESSONS, SOLUTIONS) for path in sorted((root / folder).glob("*.ipynb"))
    ]


def formatted(path: Path) -> str:
    """Return what a lesson's or a solution's file should contain."""
    notebook = canonical.read(path)
    if path.parent.name == SOLUTIONS:
        notebook = exercises.with_grading(notebook)
    return canonical.dumps(canonical.canonical(notebook))


def derived(solution: Path) -> str:
    """Return what the exercises file of a solutions notebook should contain.

    Raises:
        ValueError: A solution region is nested or unclosed; names the file and the cell.
    """
    notebook = exercises.with_grading(canonical.canonical(canonical.read(solution)))
    try:
        return canonical.dumps(canonical.canonical(exercises.derive(notebook)))
    except ValueError as error:
        raise ValueError(f"{solution.name}: {error}") from error


def sync(root: Path = ROOT) -> list[Path]:
    """Write `exercises/` from `solutions/`, drop those without a solution; return what changed."""
    wanted = {
        root / EXERCISES / path.name: derived(path) for path in (root / SOLUTIONS).glob("*.ipynb")
    }
    changed = [path for path in sorted((root / EXERCISES).glob("*.ipynb")) if path not in wanted]
    for path in changed:
        path.unlink()
    for path, text in sorted(wanted.items()):
        if _text(path) != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def problems(root: Path = ROOT) -> Iterator[str]:
    """Name everything that `course check` objects to, one line each, with the file in front."""
    for path in kept(root):
        name = path.relative_to(root)
        notebook = canonical.read(path)
        match = _NAME.fullmatch(path.name)
        if match is None:
            yield f"{name}: a notebook's name is like 01_gloo_scaling.ipynb"
        found = [*canonical.problems(notebook)]
        if path.parent.name == SOLUTIONS and match:
            found += exercises.problems(notebook, lesson=match[1].lstrip("0"))
        if found:
            yield from (f"{name}: {problem}" for problem in found)
        elif path.read_text(encoding="utf-8") != formatted(path):
            yield f"{name}: not in canonical form; run 'python -m labkit course format'"
        for cell in notebook.cells:
            if canonical.is_marked(cell) and not (cell.outputs and cell.execution_count):
                yield (
                    f"{name}: cell {cell.id!r} is marked and has no stored output; "
                    f"run 'python -m labkit course run {name}'"
                )
    yield from _drift(root)


def _drift(root: Path) -> Iterator[str]:
    """Name exercises that are not what their solutions give."""
    solutions = {path.name: path for path in (root / SOLUTIONS).glob("*.ipynb")}
    for path in sorted((root / EXERCISES).glob("*.ipynb")):
        if path.name not in solutions:
            yield f"{EXERCISES}/{path.name}: has no solutions notebook"
    for name, path in sorted(solutions.items()):
        try:
            text = derived(path)
        except ValueError as error:
            yield str(error)
            continue
        if _text(root / EXERCISES / name) != text:
            yield f"{EXERCISES}/{name}: differs from its solution; run 'labkit course sync'"


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `python -m labkit course`."""
    commands = parser.add_subparsers(dest="action", required=True)
    about = {
        "format": "bring notebooks into canonical form (all of them when none is named)",
        "run": "execute notebooks and store the outputs of exactly the marked cells",
        "sync": "derive exercises/ from solutions/",
        "pictures": "draw the README's pictures from the recorded runs",
        "check": "say what is not as it should be; exit status 1 when something is not",
    }
    for name, text in about.items():
        command = commands.add_parser(name, help=text, description=text)
        if name in ("format", "run"):
            command.add_argument("notebooks", nargs="+" if name == "run" else "*", type=Path)


def main(options: argparse.Namespace) -> int:
    """Do what `configure`'s arguments ask; return the exit status."""
    match options.action:
        case "format":
            return _format(options.notebooks or kept())
        case "run":
            return _run(options.notebooks)
        case "pictures":
            from labkit.course import pictures

            for path in pictures.draw_all():
                print(path.relative_to(ROOT))
            return 0
        case "sync":
            changed = sync()
            for path in changed:
                print(f"{'written' if path.exists() else 'removed'}: {path.relative_to(ROOT)}")
            print(f"{len(changed)} of the exercises changed")
            return 0
    found = list(problems())
    for problem in found:
        print(problem)
    print(f"{len(kept())} notebooks checked, {len(found)} problems")
    return 1 if found else 0


def _format(paths: Sequence[Path]) -> int:
    for path in paths:
        text = formatted(path.resolve())
        if text != _text(path):
            path.write_text(text, encoding="utf-8")
            print(f"formatted: {path}")
    return 0


def _run(paths: Sequence[Path]) -> int:
    from labkit.course import execute

    for path in map(Path.resolve, paths):
        start = time.perf_counter()
        executed = execute.execute(path)
        canonical.write(execute.store(executed, into=canonical.read(path)), path)
        path.write_text(formatted(path), encoding="utf-8")
        print(f"{path.name}: {time.perf_counter() - start:.1f} s; slowest cells:")
        for cell_id, seconds in sorted(executed.seconds.items(), key=lambda item: -item[1])[:5]:
            print(f"  {seconds:6.2f} s  {cell_id}")
    return 0
