"""Figures and votes as people write them, and as they type them."""

import math
import re
from collections.abc import Iterable
from typing import Any

LETTERS = "abcdefgh"  # of options
RATIOS = ("x", "×", "times")  # units of a ratio, which is above 0
_FIGURE = re.compile(
    r"([-+]?(?:[1-9]\d{0,2}(?:[,_\u2009\u202f ]\d{3})+(?:\.\d*)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    r"\s*([^\s\d,.].*)?",
    re.DOTALL,
)
"""A number, perhaps in groups of three digits, and perhaps a unit."""


def written(value: float, digits: int = 4) -> str:
    """Write a figure with so many digits, or all those before the point: `123,456`, `0.0123`.

    Example:
        >>> written(123456.0), written(1250.0), written(0.012344), written(137.58, digits=3)
        ('123,456', '1,250', '0.01234', '138')
    """
    size = abs(value)
    if value == 0 or not 1e-9 <= size < 1e15:
        return f"{value:g}"
    places = max(digits - 1 - math.floor(math.log10(size)), 0)
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def in_words(entry: Any, which: str = "answer") -> str:
    """Put a field of a `ledger_file.Entry` into words, like its `measured`: `80 µs`, `b) none`."""
    value = getattr(entry, which)
    if value is None:
        return "–"
    if isinstance(value, str):
        return lettered(entry.options).get(value, value)
    text = f"{written(value)} {entry.unit}".strip()
    if which == "answer" and entry.low is not None:
        text += f" ({written(entry.low)} to {written(entry.high)})"
    return text


def lettered(options: Iterable[str]) -> dict[str, str]:
    """Return the options with their letters: `{"a": "a) the network", ...}`."""
    return {letter: f"{letter}) {text}" for letter, text in zip(LETTERS, options, strict=False)}


def beside(value: Any, measured: Any) -> str:
    """Say where a figure lies beside a result; empty where a ratio makes no sense.

    Example:
        >>> beside(100, 250)
        '2.5 times below'
    """
    no_figures = isinstance(value, str | None) or isinstance(measured, str | None)
    if no_figures or not value > 0 < measured:
        return ""
    ratio = value / measured
    factor = written(max(ratio, 1 / ratio), 3)
    return "equal" if factor == "1" else f"{factor} times {'above' if ratio > 1 else 'below'}"


def read(text: str, unit: str) -> float:
    """Read a figure as people type it: `250`, `2.5e2`, `1,000`, `250 µs`.

    `ValueError`: it is no number, names another unit, or has a comma that may be a decimal one.
    """
    parts = parted(text)
    if parts is None:
        hint = " A decimal comma is a point here." if "," in text else ""
        raise ValueError(f"'{text}' is not a number. Write it like 250 or 2.5e2 (in {unit}).{hint}")
    value, other = parts
    if other and _ascii(other) != _ascii(unit):
        raise ValueError(f"the answer is asked in {unit}, not in '{other}'.")
    return value


def parted(text: str) -> tuple[float, str] | None:
    """Part a text that begins with a figure: `"2.5 ms"` is 2.5 and `"ms"`; None for any other."""
    match = _FIGURE.fullmatch(text.strip())
    return match and (float(re.sub(r"[,_\s]", "", match[1])), match[2] or "")


def _ascii(unit: str) -> str:
    return unit.replace("μ", "u").replace("µ", "u").replace("×", "x").strip().lower()
