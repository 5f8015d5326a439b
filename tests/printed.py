"""What a lesson's cells printed, read again."""

import re

CLAIM = re.compile(
    r"^[✔✘–] (?P<verdict>held|not on this run|not judged)(?P<recorded>, in the recording)?"
    r"(?: \(.*?\))?: (?P<expected>.+) \(measured: (?P<measured>.*)\)$",
    re.MULTILINE,
)


def claims(text):
    """The claims of a text: verdict, what was expected and measured, whether it was recorded."""
    return [
        match.groupdict() | {"recorded": bool(match["recorded"])} for match in CLAIM.finditer(text)
    ]
