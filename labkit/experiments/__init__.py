"""One experiment per problem: the rank programs and `run(...) -> records`; nothing is drawn.

Each module has `NAME`, `TITLE`, `run(*, quick=False, progress=None) -> list[Record]` and
`table(records) -> (columns, rows)`. Its picture is drawn by the module of the same name in
`labkit.show`: `draw(records) -> Figure`.
"""

from __future__ import annotations

import importlib
from types import ModuleType

MODULES = {
    "passport": "passport",
    "gloo-scaling": "gloo_scaling",
    "gradient-all-reduce": "gradient_all_reduce",
    "coalesced-broadcast": "coalesced_broadcast",
    "p2p-topology": "p2p_topology",
    "pipeline-p2p": "pipeline_p2p",
    "equivalent-collectives": "equivalent_collectives",
    "rounds-or-bytes": "rounds_or_bytes",
}
"""Name on the command line -> module, in the order of the lessons."""


def load(name: str) -> ModuleType:
    """Import the experiment of that name.

    Raises:
        ValueError: There is none; the message lists those there are.
    """
    if name not in MODULES:
        raise ValueError(f"there is no experiment {name!r}; there are: {', '.join(MODULES)}.")
    return importlib.import_module(f"labkit.experiments.{MODULES[name]}")
