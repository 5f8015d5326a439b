"""Tests of the kit, of the course, and of what both say."""

import sys

sys.modules.setdefault(
    "rfc3987_syntax", None
)  # jsonschema's grammar of URLs: two seconds a process
