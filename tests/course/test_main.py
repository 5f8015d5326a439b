"""The command line."""

from course.__main__ import main
from tests.ranks.nodes import python


def test_what_cannot_be_written_or_read_is_told_in_a_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.jsonl"))
    there = tmp_path / "a file" / "x.json"
    there.parent.touch()
    hand_in = tmp_path / "mine.json"
    assert main(["progress", "--hand-in", str(hand_in)]) == 0
    for words in (
        ["run", "passport", "--quick", "--out", str(there)],
        ["progress", "--hand-in", str(there)],
        ["class", str(hand_in), "--out", str(there)],
        ["sync", "--outputs", str(there)],
    ):
        assert main(words) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"course {words[0]}: {there.parent}")


HELP = """
import sys
from course import catalogue
from course.__main__ import COMMANDS, main
for words in ([], *zip(COMMANDS)):
    try:
        main([*words, "--help"])
    except SystemExit as ended:
        assert ended.code == 0, words
print("torch" in sys.modules, "matplotlib" in sys.modules)
"""


def test_every_command_has_help_and_only_its_module_is_imported():
    done = python("-c", HELP)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False False"
