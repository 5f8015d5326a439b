"""What authors do: `python -m course sync|pictures|record|edition|check`."""

import argparse
import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from course import catalogue, edition, exercises, hosted, notebooks
from course.catalogue import ROOT, Experiment
from labkit.measure import records
from labkit.measure.records import Tier

LESSONS, SOLUTIONS, EXERCISES, PICTURES = "notebooks", "solutions", "exercises", "pictures"
DEEPER = "deeper"
"""In the lessons' folder: what nobody needs for the next lesson."""
UNNUMBERED = ("gpus", "inventory", "workshop_two_hours")
"""Notebooks that are no lesson of their own."""
CALM = 0.1
"""CPUs that other programs may use while a run is recorded."""

_NAME = re.compile(r"(\d\d[a-z]?)_[a-z0-9_]+\.ipynb")
_BADGES = re.compile(r"(?<=<!-- badges -->\n).*?(?=<!-- end of badges -->)", re.DOTALL)


def kept(root: Path = ROOT) -> list[Path]:
    """List the notebooks that people write: lessons and solutions, in order of their names."""
    folders = (LESSONS, f"{LESSONS}/{DEEPER}", SOLUTIONS)
    return [path for folder in folders for path in sorted((root / folder).glob("*.ipynb"))]


def derived(root: Path = ROOT) -> dict[Path, str]:
    """Return what every file that `course sync` writes should contain.

    These are notebooks in canonical form, with badges and first cell, exercises, and the README's
    badges.

    Raises:
        ValueError: A solution region is nested or unclosed, or the repository's address is none;
            names the file.
    """
    wanted, repository = {}, hosted.address(root)
    for path in kept(root):
        notebook = notebooks.read(path)
        if path.parent.name == SOLUTIONS:
            graded = exercises.with_grading(notebook)
            wanted[path] = notebooks.dumps(notebooks.canonical(graded))
            try:
                notebook = exercises.derive(graded)
            except ValueError as error:
                raise ValueError(f"{path.name}: {error}") from error
            path = root / EXERCISES / path.name
        notebook = hosted.fronted(notebook, repository, path.relative_to(root).as_posix())
        wanted[path] = notebooks.dumps(notebooks.canonical(notebook))
    readme = root / "README.md"
    if readme.exists():
        text = readme.read_text(encoding="utf-8")
        badges = "".join(f"{line}\n" for line in hosted.badges(repository).splitlines())
        wanted[readme] = _BADGES.sub(lambda _: badges, text)
    return wanted


def sync(root: Path = ROOT) -> list[Path]:
    """Write what is derived, drop exercises without a solution; return what changed."""
    wanted = derived(root)
    changed = [path for path in sorted((root / EXERCISES).glob("*.ipynb")) if path not in wanted]
    for path in changed:
        path.unlink()
    for path, text in wanted.items():
        if _text(path) != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def problems(root: Path = ROOT) -> Iterator[str]:
    """Name everything that `course check` objects to, one line each, with the file in front."""
    for path in kept(root):
        name, match = path.relative_to(root), _NAME.fullmatch(path.name)
        notebook = notebooks.read(path)
        yield from (f"{name}: {problem}" for problem in notebooks.problems(notebook))
        if match is None and path.stem not in UNNUMBERED:
            yield f"{name}: a notebook's name is like 01_gloo_scaling.ipynb"
        elif path.parent.name == SOLUTIONS:
            lesson = match[1].lstrip("0")
            for problem in exercises.problems(notebook, lesson=lesson):
                yield f"{name}: {problem}"
    try:
        wanted = derived(root)
    except ValueError as error:
        yield str(error)
        return
    for path in sorted((root / EXERCISES).glob("*.ipynb")):
        if path not in wanted:
            yield f"{EXERCISES}/{path.name}: has no solutions notebook"
    for path, text in wanted.items():
        if _text(path) != text:
            yield f"{path.relative_to(root)}: not up to date; run 'python -m course sync'"


def pictures(folder: Path = ROOT / PICTURES) -> Iterator[Path]:
    """Draw every recorded experiment, and README's step, into `folder`; yield each file written."""
    from labkit.show import alt_text

    for name, experiment in catalogue.experiments().items():
        if recorded := experiment.recorded():
            yield alt_text.save(experiment.draw(recorded), folder / f"{name}.png", dpi=110)
    pipeline = catalogue.experiment("pipeline-p2p")
    mystery = importlib.import_module(f"{pipeline.package}.pictures").mystery(pipeline.recorded())
    yield alt_text.save(mystery, folder / "one-step.png", dpi=110)


def record(experiment: Experiment) -> Path:
    """Run an experiment on a calm machine and keep its records in its lesson.

    Raises:
        RuntimeError: Other programs used more than `CALM` CPUs, or something could not run here;
            nothing is written. Wait until the machine is calm, and record again.
    """
    print(f"{experiment.name}:")
    made = experiment.module.run(quick=False, progress=lambda text: print(f"  {text}"))
    if not made:
        raise RuntimeError(f"{experiment.name} is not recorded: nothing was measured here.")
    doubts = [doubt for record in made if (doubt := why_not_to_keep(record))]
    if doubts:
        raise RuntimeError("\n".join([f"{experiment.name} is not recorded:", *doubts]))
    return records.save(made, experiment.recording)


def why_not_to_keep(record: records.Record) -> str:
    """Say why a record cannot stand in a lesson's `recording.json`; empty where it can."""
    if record.tier is Tier.RECORDED:
        return f"  {record.case}: could not run here"
    if record.samples and record.others is None:
        return f"  {record.case}: nobody watched what other programs did meanwhile"
    if record.samples and record.others > CALM:
        return f"  {record.case}: other programs used {record.others:.2f} CPUs, {CALM} may be used"
    return ""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of one of the commands here."""
    command = parser.prog.split()[-1]
    if command == "record":
        names = catalogue.experiments()
        parser.add_argument("names", nargs="+", metavar="NAME", choices=names, help="as for run")
    if command == "edition":
        site = Path("build/edition")
        parser.add_argument("--out", type=Path, default=site, help=f"folder to write ({site})")


def main(options: argparse.Namespace) -> int:
    """Do what the command says; return the exit status."""
    try:
        match options.command:
            case "sync":
                _print_paths(sync())
            case "pictures":
                _print_paths(pictures())
            case "record":
                _print_paths(record(catalogue.experiment(name)) for name in options.names)
            case "edition":
                print(edition.build(options.out))
            case "check":
                objections = list(problems())
                summary = f"{len(kept())} notebooks checked, {len(objections)} problems"
                print(*objections, summary, sep="\n")
                return int(bool(objections))
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _print_paths(paths: Iterable[Path]) -> None:
    for path in paths:
        print(f"{'written' if path.exists() else 'removed'}: {path.relative_to(ROOT)}")


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
