"""A timeline of the phases that ranks went through: characters in a terminal, else a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit.lessons.casebook.observe import Span

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Lanes:
    """A timeline: text in a terminal, a picture in a notebook."""

    seen: list
    title: str

    def __str__(self) -> str:
        """Draw a lane of characters for each rank: the first letters of its phases."""
        begin, end = self.ends
        width, phases = 96, phases_of(self.seen)
        lines = [self.title] if self.title else []
        letters = _letters(phases)
        for one in self.seen:
            lane = ["."] * width
            for span in one["spans"]:  # inner phases end first, so outer ones must not cover them
                left, right = (int((t - begin) / (end - begin) * (width - 1)) for t in
                               (span.begin, span.end))  # fmt: skip
                for i in range(left, right + 1):
                    lane[i] = letters[span.phase] if lane[i] == "." else lane[i]
            lines.append(f"rank {one['rank']:>2} |{''.join(lane)}|")
        legend = ", ".join(f"{letter} {phase}" for phase, letter in letters.items())
        return "\n".join([*lines, f"{1e3 * (end - begin):.1f} ms in all; {legend}"])

    @property
    def ends(self) -> tuple[float, float]:
        """The first begin and the last end of all phases, in seconds."""
        spans = [span for one in self.seen for span in one["spans"]]
        return min(s.begin for s in spans), max(s.end for s in spans)

    def html(self) -> str:
        """Draw it as a picture, with its text alternative."""
        from labkit.show import alt_text  # the terminal does without matplotlib

        return alt_text.to_html(self.draw())

    def draw(self) -> Axes:
        """Draw it: phases as bars, a phase inside another one as a thin bar below."""
        from labkit.show import timeline

        begin, end = self.ends
        bars = [
            timeline.Bar(lane, s.phase, s.begin - begin, s.end - begin, behind=_inside(s, one))
            for lane, one in enumerate(self.seen)
            for s in one["spans"]
        ]
        said = f"{self.title} {1e3 * (end - begin):.1f} ms of {len(self.seen)} ranks."
        names = [f"rank {one['rank']}" for one in self.seen]
        return timeline.draw_lanes(names, bars, said=said, title=self.title, y="Rank")

    def _repr_html_(self) -> str:
        return self.html()


def phases_of(seen: list) -> list[str]:
    """Return the phases of all ranks, in the order in which they first appear."""
    return list(dict.fromkeys(span.phase for one in seen for span in one["spans"]))


def _letters(phases: list[str]) -> dict[str, str]:
    """Give each phase a letter of its own."""
    letters: dict[str, str] = {}
    for phase in phases:
        free = (c for c in phase + "0123456789" if c.isalnum() and c not in letters.values())
        letters[phase] = next(free)
    return letters


def _inside(span: Span, one: dict) -> bool:
    """Say whether a span lies within another one of the same rank."""
    return any(
        other is not span and other.begin <= span.begin and span.end <= other.end
        for other in one["spans"]
    )
