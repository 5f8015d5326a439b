"""A plugin for nbval: keep the notebook as it was executed, in the file that LABKIT_KEEP names.

The states of its widgets are kept too, so that JupyterLab can render them without the kernel.
"""

import json
import os
import sys
from pathlib import Path
from queue import Empty

from pytest import hookimpl

sys.modules.setdefault("rfc3987_syntax", None)  # a grammar of addresses that takes a second to load
import nbformat  # noqa: E402

STATES = """
import json, sys
if "ipywidgets" in sys.modules:
    print(json.dumps(sys.modules["ipywidgets"].Widget.get_manager_state()))
"""
MIME = "application/vnd.jupyter.widget-state+json"


@hookimpl(tryfirst=True)
def pytest_runtest_teardown(item, nextitem):
    item.cell.outputs = [nbformat.from_dict(output) for output in getattr(item, "test_outputs", [])]
    item.cell.execution_count = item.cell_num + 1
    if nextitem is None:  # the kernel is still there
        notebook = item.parent.nb
        if states := printed(item.parent.kernel, STATES):
            notebook.metadata.widgets = {MIME: json.loads(states)}
        nbformat.write(notebook, Path(os.environ["LABKIT_KEEP"]))


def printed(kernel, code):
    """Run code in the kernel of a notebook; return what it prints."""
    asked, text = kernel.execute_cell_input(code, allow_stdin=False), ""
    while True:
        try:
            message = kernel.get_message("iopub", timeout=30)
        except Empty:
            return ""
        if message["parent_header"].get("msg_id") == asked:
            text += message["content"].get("text", "")
            if message["content"].get("execution_state") == "idle":
                return text
