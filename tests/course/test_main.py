"""The command line."""

from pytest import raises

from course import catalogue
from course.__main__ import COMMANDS, main
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


def test_every_command_has_help_and_only_its_module_is_imported():
    for name in (*COMMANDS, *catalogue.commands()):
        with raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
    program = "import sys, course.__main__ as m\nfor name in ['', *m.COMMANDS, 'case']:\n"
    program += " try: m.main([*filter(None, [name]), '--help'])\n except SystemExit: pass"
    program += "\nprint('torch' in sys.modules, 'matplotlib' in sys.modules)"
    done = python("-c", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False False"
