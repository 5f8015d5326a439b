"""`python -m labkit doctor`: what this machine can do for the course, and what to do about it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from labkit.course import health
from labkit.course.health import Finding

_SIGNS = {"ok": "✔ ", "note": "! ", "missing": "✘ "}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments: none."""


def main(options: argparse.Namespace) -> int:
    """Print every finding; return 0 when the course can run."""
    findings = health.examine()
    for line in told(findings):
        print(line)
    return 0 if health.can_run(findings) else 1


def told(findings: Iterable[Finding]) -> list[str]:
    """Put findings into lines: what was found, then what it means and what to do."""
    findings = list(findings)
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{_SIGNS[finding.state]}{finding.name:<{width}}  {finding.found}")
        indent = " " * (width + 4)
        lines += [indent + text for text in (finding.meaning, finding.remedy) if text]
    worst = [finding.name for finding in findings if finding.state == "missing"]
    lines.append("")
    if health.can_run(findings):
        limits = f" What is marked {_SIGNS['note'].strip()} is a limit, not a fault." if any(
            finding.state == "note" for finding in findings
        ) else ""  # fmt: skip
        lines.append(f"The course can run here.{limits}")
    else:
        lines.append(f"The course cannot run yet. First see to: {', '.join(worst)}.")
    return lines
