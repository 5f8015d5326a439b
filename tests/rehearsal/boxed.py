"""A box of played GPUs (`box/sitecustomize.py`), and scripts started in it, alone or as ranks."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.ranks.nodes import ROOT, environment, free_port

BOX = Path(__file__).with_name("box")


class Done(NamedTuple):
    """What a script printed, and how each of its processes ended."""

    stdout: str
    stderr: str
    statuses: list[int]

    @property
    def output(self):
        return self.stdout + self.stderr

    @property
    def returncode(self):
        return next(filter(None, self.statuses), 0)


def variables(gpus, **settings):
    """Return the environment of a box; the settings are those of its head, without `BOX_`."""
    of_the_box = {f"BOX_{name}": str(value) for name, value in settings.items()}
    paths = f"{BOX}:{ROOT}:{ROOT / 'examples'}"
    return environment(**of_the_box, BOX_GPUS=str(gpus), PYTHONPATH=paths)


def of_ranks(ranks, nodes=1):
    """Return the variables of each rank of a job, as torchrun sets them on each of its nodes."""
    here, port = ranks // nodes, str(free_port())
    return [
        {
            "RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "LOCAL_RANK": str(rank % here),
            "LOCAL_WORLD_SIZE": str(here),
            "GROUP_RANK": str(rank // here),
            "BOX_HOST": f"box-{rank // here}",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        for rank in range(ranks)
    ]


class Starter:
    """A process of a box from which scripts are forked (`tests.rehearsal.starter`)."""

    def __init__(self, folder):
        self.folder = folder
        command = [sys.executable, "-m", "tests.rehearsal.starter"]
        given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
        self.process = subprocess.Popen(command, env=variables(0), **given)

    def run(self, gpus, script, *arguments, ranks=(), more=None, timeout=100, **settings):
        """Run a script, a text or a path or `-m` and a module; with `ranks` as those of a job.

        `ranks` are their number, or the variables of each; `more` are variables for all of them.
        """
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        argv = [str(script), *map(str, arguments)]
        if "\n" in argv[0]:
            (folder / "script.py").write_text(argv[0])
            argv[0] = str(folder / "script.py")
        own = of_ranks(ranks) if isinstance(ranks, int) else ranks
        common = variables(gpus, **settings) | (more or {})
        job = {"argv": argv, "variables": [common | mine for mine in own or [{}]]}
        job |= {"folder": str(ROOT), "timeout": timeout}
        job |= {name: str(folder / name) for name in ("out", "err")}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        statuses = json.loads(self.process.stdout.readline())
        return Done(Path(job["out"]).read_text(), Path(job["err"]).read_text(), statuses)

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()
