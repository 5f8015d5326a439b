"""Start Python in a box of played GPUs (`box/sitecustomize.py`), alone or under torchrun."""

import subprocess
import sys
from pathlib import Path

from tests.ranks.nodes import ROOT, environment

BOX = Path(__file__).with_name("box")


def variables(gpus, **settings):
    """Return the environment of a box; the settings are those of its head, without `BOX_`."""
    of_the_box = {f"BOX_{name}": str(value) for name, value in settings.items()}
    paths = f"{BOX}:{ROOT}:{ROOT / 'examples'}"
    return environment(**of_the_box, BOX_GPUS=str(gpus), PYTHONPATH=paths)


def run(gpus, source, *, ranks=0, more=None, timeout=100, **settings):
    """Run a script in a box; with `ranks` under torchrun. Returns what it printed, and its end."""
    command = [sys.executable, "-c", source]
    if ranks:
        script = Path(settings.pop("FOLDER")) / "script.py"
        script.write_text(source)
        start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command = [sys.executable, *start, str(script)]
    given = variables(gpus, **settings) | (more or {})
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=timeout)
