"""Words and figures that nobody vouches for: what a stranger's file says, fit to be shown."""

import re

MOST_DIGITS = 18
_WHOLE = re.compile(r"-?\d{1,18}(?:\.0*)?")


def one_line(text: object, most: int = 400) -> str:
    """Return a text that may be a stranger's as one line that any terminal shows as it is."""
    return "".join(c if c.isprintable() else " " for c in str(text))[:most]


def whole(number: object) -> int:
    """Return a whole number of at most `MOST_DIGITS` digits, as a text or a number has it.

    Raises:
        ValueError: It is none.
    """
    if isinstance(number, bool) or not _WHOLE.fullmatch(str(number)[:40].strip()):
        raise ValueError(f"no whole number: {str(number)[:20]!r}")
    return int(float(number)) if "." in str(number) else int(number)
