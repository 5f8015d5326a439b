"""Several learners play one lesson at once on this machine: `python -m tests.load`.

Not a test of pytest's: it takes minutes and the whole machine. It says for each learner how long
the lesson took and which cells failed, what an idle learner's processes hold in memory (their
proportional share, PSS), and what is left when all have gone. The exit status is 1 where a cell
failed otherwise than by a claim that names the load, or where something is left.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LESSON = "notebooks/01_gloo_scaling.ipynb"
MARK = "LABKIT_LOAD"


def main() -> int:
    """Play, tell, and look for what is left."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--learners", type=int, default=10)
    parser.add_argument("--notebook", type=Path, default=Path(LESSON))
    parser.add_argument("--play", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.play:
        return play(options.notebook)
    run = secrets.token_hex(4)
    print(f"{options.learners} learners, {options.notebook.name}, {os.cpu_count()} CPUs")
    players = [start(options.notebook, f"{run}-{i}") for i in range(options.learners)]
    told = [json.loads(player.stdout.readline() or "null") for player in players]
    time.sleep(2)
    processes = [marked(f"{run}-{i}") for i in range(options.learners)]
    memory = [sum(map(pss, of_one)) for of_one in processes]
    for player in players:
        player.communicate(input="")
    time.sleep(2)
    left = [path for i in range(options.learners) for path in marked(f"{run}-{i}")]
    ours = {process.name for of_one in processes for process in of_one}
    left += [path for path in Path("/dev/shm").glob("labkit-*") if path.name.split("-")[1] in ours]
    bare = 0
    for i, (one, held) in enumerate(zip(told, memory, strict=True)):
        if one is None:
            print(f"learner {i}: ended without a word")
            bare += 1
            continue
        failed = one["failed"]
        bare += sum(name != "ClaimFailed" for _, name, _ in failed)
        print(
            f"learner {i}: {one['seconds']:.0f} s, {held / 2**20:.0f} MiB when idle, "
            f"{len(failed)} of {one['cells']} cells failed"
        )
        for cell, name, text in failed:
            print(f"    {cell}: {name}: " + text.replace("\n", "\n        "))
    print(f"memory per idle learner: {sum(memory) / len(memory) / 2**20:.0f} MiB (PSS)")
    print(f"left: {', '.join(map(str, left)) or 'nothing'}")
    return 1 if bare or left else 0


def start(notebook: Path, mark: str) -> subprocess.Popen:
    """Start a learner: a process of its own with a kernel of its own."""
    command = [sys.executable, "-m", "tests.load", "--play", "--notebook", str(notebook)]
    variables = os.environ | {MARK: mark}
    return subprocess.Popen(
        command, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def play(notebook: Path) -> int:
    """Run all cells, also after one that fails; tell; keep the kernel until told to end."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    opened, failed, begin = nbformat.read(notebook, as_version=4), [], time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LABKIT_LEDGER"] = f"{folder}/ledger.json"
        client = NotebookClient(
            opened, timeout=900, kernel_name="python3", allow_errors=True,
            resources={"metadata": {"path": folder}},
        )  # fmt: skip
        client.reset_execution_trackers()
        with client.setup_kernel():
            for index, cell in enumerate(opened.cells):
                if cell.cell_type != "code":
                    continue
                try:
                    client.execute_cell(cell, index)
                except (CellTimeoutError, DeadKernelError) as error:
                    failed.append((cell.id, type(error).__name__, str(error)[-300:]))
                    break
                failed += [
                    (cell.id, output.ename, output.evalue[:600])
                    for output in cell.outputs
                    if output.output_type == "error"
                ]
            cells = sum(cell.cell_type == "code" for cell in opened.cells)
            seconds = time.perf_counter() - begin
            print(json.dumps({"seconds": seconds, "cells": cells, "failed": failed}), flush=True)
            sys.stdin.read()
    return 0


def marked(mark: str) -> list[Path]:
    """Return the processes that a learner started, the player itself left out."""
    found, wanted = [], f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            if wanted in variables and b"tests.load" not in (folder / "cmdline").read_bytes():
                found.append(folder)
        except OSError:
            continue
    return found


def pss(process: Path) -> int:
    """Return the bytes that a process holds, shared pages by their share."""
    try:
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
