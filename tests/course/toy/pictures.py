"""One picture."""

from labkit.show import plots


def draw(records):
    """Draw the ladder."""
    return plots.ladder(records, title="A toy, drawn").figure
