"""`python -m course start`: check the machine, make the learner's copies, open JupyterLab.

Copies are made once in `work/`, without any output; they are refreshed when the course changes, and
never overwritten. A copy is the learner's own as soon as a cell's text differs from the copied.
When the course changes a notebook that the learner changed too, the new version is put beside it
as `NAME.new.ipynb`. A copy that was deleted is made again: that is how to start afresh.
"""

import argparse
import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from nbformat import v4

from course.catalogue import ROOT, environment
from course.commands import doctor, progress
from course.notebooks import files
from labkit.ranks import server

FIRST = "start.ipynb"  # the start page, in `work/`: made anew at each start
_WELCOME = """\
# Your course

{course_map}

New here? Begin with [00 · Start here](notebooks/00_start_here.ipynb). Back again? Questions of
lessons that you have finished are due after some days: run the next cell (Shift+Enter) to answer
them, and to see the map as it is now.
"""
_NOW = """\
from course.commands.progress import show_due, show_map

show_due()
show_map()
"""
FOLDERS = ("notebooks", "notebooks/deeper", "exercises", "solutions")
PAGES = (  # what notebooks and the field guide link; copied too, so that a learner's click finds it
    *("FIELD_GUIDE.md", "INSTRUCTORS.md", "CHANGELOG.md", "docs/glossary.md"),
    *("docs/pipelines-on-nccl.md", "docs/sick-host.md", "examples/why_is_send_slow.py"),
)
_MANIFEST = ".copies.json"  # in `work/`: what was copied last, as fingerprints by name
_SETTINGS = ROOT / "work" / ".jupyterlab"
_OVERRIDES = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false"},  # nobody came for news
    "@jupyterlab/docmanager-extension:plugin": {"autosaveInterval": 20},  # seconds; its own are 120
}
_COPIED, _RENEWED = "copied", "brought up to date"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments; the names are JupyterLab's own."""
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    parser.add_argument("--port", type=int, help="JupyterLab's port (8888, or the next free one)")
    parser.add_argument("--ip", help="address to listen on (this machine only)")
    parser.add_argument("--hub", action="store_true", help="be a learner's server in a JupyterHub")


def main(options: argparse.Namespace) -> int:
    """Do it all; return JupyterLab's exit status, or 1 when the course cannot run here."""
    if doctor.main(options):
        return 1
    for line in in_lines(refresh(ROOT, ROOT / "work")):
        print(line)
    write_start_page(ROOT, ROOT / "work")
    _SETTINGS.mkdir(exist_ok=True)  # a learner's own settings override these
    (_SETTINGS / "overrides.json").write_text(json.dumps(_OVERRIDES))
    sys.stdout.flush()
    server.discard()  # it started the doctor's two ranks
    os.chdir(ROOT)
    kernels = environment(JUPYTER_PREFER_ENV_PATH="1")  # not a python3 of another environment
    kernels.setdefault("PYTHONSTARTUP", str(ROOT / "course/notebooks/restarted.py"))
    # Become JupyterLab: Ctrl-C is its own, and nothing of ours stays behind.
    return os.execve(sys.executable, jupyter(options), kernels)


def jupyter(options: argparse.Namespace) -> Sequence[str]:
    """Return the command that opens JupyterLab on the start page."""
    server_module = "jupyterhub.singleuser" if options.hub else "jupyterlab"
    command = [
        sys.executable, "-m", server_module,
        f"--ServerApp.root_dir={ROOT}", f"--LabApp.default_url=/lab/tree/work/{FIRST}",
        f"--LabApp.app_settings_dir={_SETTINGS}",
    ]  # fmt: skip
    wanted_of = {
        # a login shell, the default there, would forget our PATH
        "--ServerApp.terminado_settings=shell_command=['bash']": options.hub,
        "--no-browser": options.no_browser,
        f"--port={options.port}": options.port is not None,
        f"--ip={options.ip}": options.ip is not None,
        "--allow-root": os.geteuid() == 0,  # as in most containers
    }
    return command + [option for option, wanted in wanted_of.items() if wanted]


def write_start_page(course: Path, work: Path) -> None:
    """Write the page on which JupyterLab opens: the map of the course, and what is due."""
    text = _WELCOME.format(course_map=progress.course_map(course))
    cells = [v4.new_markdown_cell(text, id="map"), v4.new_code_cell(_NOW, id="due")]
    files.write(files.canonical(v4.new_notebook(cells=cells)), work / FIRST)


def in_lines(touched: dict[str, str]) -> list[str]:
    """Count in one line what was copied; say in one each what stands beside the learner's own."""
    counts = Counter(touched.values())
    counted = [f"{counts[what]} {what}" for what in (_COPIED, _RENEWED) if what in counts]
    beside = [what for what in touched.values() if what not in (_COPIED, _RENEWED)]
    own = [f"work/{name}: {what}" for name, what in touched.items() if what in beside]
    return [f"work/: {', '.join(counted) or 'up to date'}.", *own]


def refresh(course: Path, work: Path) -> dict[str, str]:
    """Bring the learner's folder up to date; say by name what was done to each copy."""
    work.mkdir(exist_ok=True)
    try:
        manifest = dict(json.loads((work / _MANIFEST).read_text()))
    except (OSError, ValueError, TypeError):
        manifest = {}
    sources = [path for folder in FOLDERS for path in sorted((course / folder).glob("*.ipynb"))]
    done = {
        source.relative_to(course).as_posix(): _copy(source, course, work, manifest)
        for source in sources
    }
    for page in filter(Path.exists, (course / name for name in PAGES)):
        copy = work / page.relative_to(course)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(page.read_bytes())
    (work / _MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    return {name: what for name, what in done.items() if what is not None}


def _copy(source: Path, course: Path, work: Path, manifest: dict[str, str]) -> str | None:
    """Bring one copy up to date, without outputs; say what was done, if anything."""
    name = source.relative_to(course).as_posix()
    copy, now, copied = work / name, _fingerprint(source), manifest.get(name)
    mine = _fingerprint(copy) if copy.exists() else None
    manifest[name] = now
    if mine == now or (mine is not None and copied == now):
        return None
    new = files.canonical(files.read(source))
    if mine in (None, copied):
        files.write(new, copy)
        return _COPIED if mine is None else _RENEWED
    beside = copy.with_suffix(".new.ipynb")  # the learner's own stays
    files.write(new, beside)
    return f"yours, kept; the course's new version is beside it as {beside.name}"


def _fingerprint(path: Path) -> str:
    """Hash the cells' kinds and texts; a file that cannot be read as a notebook by its bytes."""
    try:
        cells = [(cell.cell_type, cell.source) for cell in files.read(path).cells]
        content = json.dumps(cells).encode()
    except ValueError:
        content = path.read_bytes()
    return hashlib.sha256(content).hexdigest()
