"""Words that nobody vouches for: what a stranger's file says, fit to be shown."""


def one_line(text: object, most: int = 400) -> str:
    """Return a text that may be a stranger's as one line that any terminal shows as it is."""
    return "".join(c if c.isprintable() else " " for c in str(text))[:most]
