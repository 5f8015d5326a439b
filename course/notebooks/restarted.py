"""What a new kernel says of a name that it does not know: which cells to run first.

`python -m course start` makes this file what each kernel reads when it starts. After a restart a
lesson's cells need what the cells above them define, and the folded ones are easily forgotten.
"""

import re
import sys
from typing import Any


def install() -> None:
    """Explain unknown names in the kernel that runs this; nothing without one."""
    if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()):
        shell.set_custom_exc((NameError,), _explain)


def _explain(shell: Any, kind: type, error: NameError, trace: Any, tb_offset: Any = None) -> None:
    """Show one line where no cell of this kernel has named it yet, else the traceback."""
    name = getattr(error, "name", None)
    before = shell.user_ns.get("In", [""])[:-1]
    if not name or any(re.search(rf"\b{re.escape(name)}\b", source) for source in before):
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
        return
    text = (
        f"NameError: no cell that this kernel has run names {name!r}. After a restart run the "
        "cells above first, the folded ones as well (in the menu: Run, Run All Above Selected "
        "Cell), then this cell again. What you committed is kept."
    )
    shell._showtraceback(kind, error, [text])


if __name__ == "__main__":  # as a startup file
    install()
