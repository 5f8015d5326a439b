"""Axes that name their unit, and ticks that read as people say them: 4 KiB, 1 MiB, 250."""

from __future__ import annotations

from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def dress(axis: Axis, name: str, *, unit: str, scale: str) -> None:
    """Give an axis its name, unit, scale and ticks."""
    axis.set_label_text(f"{name} [{unit}]" if unit and unit != "bytes" else name, fontsize=10)
    set_scale = axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale
    in_bytes = unit == "bytes"
    if scale == "log":
        set_scale("log", base=2 if in_bytes else 10)
        axis.set_minor_formatter(FuncFormatter(lambda value, _: _between(axis, value)))
        if in_bytes:
            axis.set_major_locator(LogLocator(base=2, numticks=9))
            axis.set_minor_locator(LogLocator(base=2, numticks=1))
        axis.set_major_formatter(FuncFormatter(_as_bytes if in_bytes else _plain))
    elif in_bytes:
        axis.set_major_formatter(FuncFormatter(_as_bytes))


def human_bytes(nbytes: float) -> str:
    """Write a number of bytes with a binary unit.

    Example:
        >>> human_bytes(8 * 2**20)
        '8 MiB'
    """
    power = 0
    while abs(nbytes) >= 1024 and power < len(_BINARY) - 1:
        nbytes /= 1024
        power += 1
    return f"{nbytes:.3g} {_BINARY[power]}"


def _between(axis: Axis, value: float) -> str:
    """Label the twos and fives as well where the axis has hardly a decade to label."""
    low, high = axis.get_view_interval()
    wanted = high < 60 * low and f"{value:.0e}"[0] in "25"
    return _plain(value) if wanted else ""


def _as_bytes(value: float, _: int | None = None) -> str:
    return human_bytes(value)


def _plain(value: float, _: int | None = None) -> str:
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:,.10g}"
