"""The README's pictures, drawn from runs that are committed with their provenance."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

from labkit import experiments
from labkit.measure import records
from labkit.show import alternatives

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "labkit" / "recordings"
FOLDER = "pictures"


def recorded() -> list[str]:
    """List the experiments of which a run is kept, in the order of the lessons."""
    return [
        name
        for name, module in experiments.MODULES.items()
        if (RECORDINGS / f"{module}.json").exists()
    ]


def draw_all(folder: Path = ROOT / FOLDER) -> Iterator[Path]:
    """Draw every recorded experiment into `folder`; yield the files as they are written."""
    for name in recorded():
        module = experiments.MODULES[name]
        kept = records.load(RECORDINGS / f"{module}.json", recorded=True)
        figure = importlib.import_module(f"labkit.show.{module}").draw(kept)
        yield alternatives.save(figure, folder / f"{name}.png", dpi=110)
