"""What the pages tell a reader to type: it is typed here to the letter, or read by its command."""

import importlib
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from pytest import mark

from course.__main__ import main
from tests.course.logs.test_logs import V2_13
from tests.ranks.nodes import ROOT, environment

PAGES = sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
PAGES.remove(Path("CHANGELOG.md"))  # it tells of commands that are gone
MODULES = {"class": "classroom"}
COMMAND = re.compile(r"python -m course (\w[^`\n']*)")


def blocks(page):
    """What a page has a shell do: the text of each block."""
    return re.findall(r"^```bash\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)


def typed(command, folder, **variables):
    """What a shell prints that is given these lines, each of which has to succeed."""
    given = environment(LABKIT_LEDGER=str(folder / "ledger.jsonl"), **variables)
    options = {"cwd": folder, "env": given, "capture_output": True, "text": True, "timeout": 100}
    done = subprocess.run(["bash", "-ec", command], **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@mark.parametrize("page", PAGES, ids=str)
def test_each_command_is_taken_as_it_is_written(page, monkeypatch):
    """By its own parser; nothing is done. NAME stands for a name."""
    text, asked = (ROOT / page).read_text(), []
    for written in COMMAND.findall(text):
        command, *words = shlex.split(written.replace("case NAME", "case stretches"), comments=True)
        module = importlib.import_module(f"course.commands.{MODULES.get(command, command)}")
        monkeypatch.setattr(module, "main", lambda options: asked.append(options) or 0)
        assert main([command, *words]) == 0, written
    assert len(asked) == len(COMMAND.findall(text))


@mark.slow
def test_what_nccl_tests_printed_becomes_a_page(tmp_path):
    """Its program is played: it prints a log."""
    (block,) = blocks("docs/own-logs.md")
    (tmp_path / "log").write_text(V2_13)
    program = tmp_path / "all_reduce_perf"
    program.write_text(f"#!/bin/sh\ncat {tmp_path / 'log'}\n")
    program.chmod(0o755)
    paths = f"{tmp_path}:{environment()['PATH']}"
    assert "4 records of 1 files, no problems: cluster.html" in typed(block, tmp_path, PATH=paths)
    assert "4 x NVIDIA A100-SXM4-40GB" in (tmp_path / "cluster.html").read_text()


@mark.slow
def test_what_a_learner_hands_in_becomes_the_page_of_a_class(tmp_path):
    hand_in, of_a_class = blocks("INSTRUCTORS.md")[-2:]
    typed(hand_in, tmp_path)
    (tmp_path / "handed-in").mkdir()
    shutil.move(tmp_path / "mine.json", tmp_path / "handed-in")
    assert "1 hand-ins: class.html" in typed(of_a_class, tmp_path)
    assert "A class of 1" in (tmp_path / "class.html").read_text()
