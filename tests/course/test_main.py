"""The command line."""

from pytest import raises

from course import catalogue
from course.__main__ import COMMANDS, main
from tests.ranks.nodes import python


def test_every_command_has_help_and_only_its_module_is_imported():
    for name in (*COMMANDS, *catalogue.commands()):
        with raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
    program = "import sys, course.__main__ as m\ntry: m.main(['--help'])\nexcept SystemExit: pass"
    program += "\nprint('torch' in sys.modules, 'matplotlib' in sys.modules)"
    done = python("-c", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False False"
