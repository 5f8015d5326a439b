"""Figures that somebody else published: each with its unit, its words and its address."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """Where something was published."""

    title: str
    address: str
    """A URL: whoever follows it finds the figure."""
    when: str
    """The date, or the commit, of what was read."""

    def __str__(self) -> str:
        return f"{self.title} ({self.when}), {self.address}"


@dataclass(frozen=True, slots=True)
class Published:
    """A figure, or several that stand together, as a source states it."""

    value: float | tuple[float, ...]
    unit: str
    """As the source writes it: ``"ms"``, ``"GB/s"``."""
    quotation: str
    """The source's own words around the figure, verbatim and short."""
    source: Source
