"""Run a notebook's cells in a box: `cells.py NOTEBOOK [ID ...] [OLD=>NEW ...]`; without ids, all.

What stands before `=>` must occur in the cells and is run as what stands behind it: smaller sizes.
A cell that fails is told, as it would be below it, and ends the script with status 1.
"""

import json
import os
import sys
from pathlib import Path

import matplotlib
from IPython.core.interactiveshell import InteractiveShell


def main(path, *wanted):
    """Return 1 if a cell failed."""
    sizes = dict(text.split("=>") for text in wanted if "=>" in text)
    ids = [text for text in wanted if "=>" not in text]
    cells = [c for c in json.loads(Path(path).read_text())["cells"] if c["cell_type"] == "code"]
    sources = {cell["id"]: "".join(cell["source"]) for cell in cells if cell["id"] != "hosted"}
    shell = InteractiveShell.instance(colors="nocolor")
    replaced = set()
    os.chdir(Path(path).parent)
    for name in ids or sources:
        for old in [old for old in sizes if old in sources[name]]:
            sources[name] = sources[name].replace(old, sizes[old])
            replaced.add(old)
        print(f"--- {name}", flush=True)
        result = shell.run_cell(sources[name])
        if error := result.error_before_exec or result.error_in_exec:
            print(f"--- {name} failed: {error!r}", flush=True)
            return 1
    assert replaced == sizes.keys(), f"no cell has {sizes.keys() - replaced}"
    return 0


if __name__ == "__main__":
    matplotlib.use("Agg")
    sys.exit(main(*sys.argv[1:]))
