"""`python -m labkit start`: check the machine, make the learner's copies, open JupyterLab."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from labkit.course import copies
from labkit.course.lessons import ROOT
from labkit.launch import serverlink

FIRST = "notebooks/00_start_here.ipynb"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments; the names are JupyterLab's own."""
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    parser.add_argument("--port", type=int, help="JupyterLab's port (8888, or the next free one)")
    parser.add_argument("--ip", help="address to listen on (this machine only)")


def main(options: argparse.Namespace) -> int:
    """Do it all; return JupyterLab's exit status, or 1 when the course cannot run here."""
    from labkit.course import doctor, health

    findings = health.examine()
    for line in doctor.told(findings):
        print(line)
    if not health.can_run(findings):
        return 1
    for line in copies.told(copies.refresh(ROOT, ROOT / "work")):
        print(line)
    sys.stdout.flush()
    serverlink.discard()  # it started the doctor's two ranks
    os.chdir(ROOT)
    if os.name == "posix":  # become JupyterLab: Ctrl-C is its own, and nothing of ours stays behind
        os.execve(sys.executable, jupyter(options), environment())
    return subprocess.run(jupyter(options), env=environment(), check=False).returncode


def jupyter(options: argparse.Namespace) -> Sequence[str]:
    """Return the command that opens JupyterLab on the learner's first notebook."""
    command = [
        sys.executable, "-m", "jupyterlab",
        f"--ServerApp.root_dir={ROOT}",
        f"--LabApp.default_url=/lab/tree/work/{FIRST}",
    ]  # fmt: skip
    if options.no_browser:
        command.append("--no-browser")
    if options.port is not None:
        command.append(f"--port={options.port}")
    if options.ip is not None:
        command.append(f"--ip={options.ip}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # as in most containers
    return command


def environment() -> dict[str, str]:
    """Return the environment in which kernels find this labkit and this Python."""
    variables = dict(os.environ)
    paths = [str(ROOT), *filter(None, [variables.get("PYTHONPATH")])]
    variables["PYTHONPATH"] = os.pathsep.join(paths)
    variables["JUPYTER_PREFER_ENV_PATH"] = "1"  # not a python3 kernel of another environment
    return variables
