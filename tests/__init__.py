"""Tests of the kit, of the course, and of what both say."""

import sys

# jsonschema's grammar of URLs takes two seconds of each process, and no test needs it.
sys.modules.setdefault("rfc3987_syntax", None)
