"""What the repository says of itself in several places agrees."""

import itertools
import json
import re
import shutil
import tomllib
import zipfile
from pathlib import Path

import yaml
from pytest import mark

import labkit
from course.__main__ import COMMANDS, FROM_A_CLONE
from course.notebooks import hosted
from tests.ranks.nodes import python

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
ZENODO = json.loads((ROOT / ".zenodo.json").read_text())
PIN = re.compile(r"^([\w-]+)==([\w.]+)", re.MULTILINE)


def pins(name):
    return dict(PIN.findall((ROOT / name).read_text()))


def names(requirements):
    return {re.match(r"[\w-]+", requirement)[0] for requirement in requirements}


def test_version_title_and_licence_agree():
    assert PROJECT["version"] == CITATION["version"] == ZENODO["version"]
    assert CITATION["title"] == ZENODO["title"]
    assert PROJECT["license"] in CITATION["license"] and PROJECT["license"] == ZENODO["license"]
    assert [a["name"] for a in CITATION["authors"]] == [c["name"] for c in ZENODO["creators"]]


def test_labkit_alone_needs_torch_numpy_and_cloudpickle():
    assert names(PROJECT["dependencies"]) == {"torch", "numpy", "cloudpickle"}
    assert PROJECT["version"] == labkit.__version__
    assert PROJECT["name"] == hosted.DISTRIBUTION


def test_what_is_needed_is_pinned():
    extras = PROJECT["optional-dependencies"]
    of_the_course = (extras[name] for name in ("fabric", "plots", "lessons", "course"))
    needed = names([*PROJECT["dependencies"], *itertools.chain(*of_the_course)]) - {PROJECT["name"]}
    assert needed | names(extras["test"]) <= set(pins("requirements.txt"))
    assert needed <= set(pins("binder/requirements.txt"))


@mark.slow
def test_the_kit_alone_is_a_wheel_without_the_course(tmp_path):
    kit = tomllib.loads((ROOT / "labkit/pyproject.toml").read_text())["project"]
    for field in ("name", "version", "license", "requires-python", "dependencies"):
        assert kit[field] == PROJECT[field]
    assert kit["optional-dependencies"].items() <= PROJECT["optional-dependencies"].items()
    shutil.copytree(ROOT / "labkit", tmp_path / "labkit", ignore=shutil.ignore_patterns("build"))
    sources = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.py")}
    command = ("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "./labkit")
    done = python(*command, cwd=tmp_path)
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if name.endswith(".py")} == sources, done.stderr
    assert "labkit/py.typed" in names


ALONE = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Nothing())
"""


SCRIPT = """
import os, sys
from labkit import Launcher, RankDied, __file__, launch
print("script starts")
def program(x, n=1):
    return int(os.environ["RANK"]) + x + n
print(*(launch(program, 10, n=5, world_size=2) for _ in range(2)))
print("torch" in sys.modules, __file__)
from labkit import time_calls, Tracer, wire
import matplotlib
"""


@mark.slow
def test_ranks_of_a_script_start_where_nothing_else_is_installed_and_nothing_is_set_up(tmp_path):
    """It has no main guard, does not import torch, and ignores a base image's variables in a line.

    `sitecustomize` blocks in the script, in the fork server and in each rank.
    """
    extras = PROJECT["optional-dependencies"].values()
    blocked = names(itertools.chain(*extras)) - {"networkx", "jinja2"}  # torch brings these
    (tmp_path / "sitecustomize.py").write_text(ALONE.format(blocked=blocked | {"IPython"}))
    (tmp_path / "labkit").symlink_to(ROOT / "labkit")
    variables = {"PYTHONPATH": str(tmp_path), "MASTER_ADDR": "10.1.1.1", "WORLD_SIZE": "16"}
    done = python("-c", SCRIPT, cwd="/", **variables)
    file = tmp_path / "labkit" / "__init__.py"
    assert done.stdout == f"script starts\n[15, 16] [15, 16]\nFalse {file}\n", done.stderr
    [line] = [line for line in done.stderr.splitlines() if "labkit:" in line]
    assert line.startswith("labkit: WORLD_SIZE, MASTER_ADDR")
    assert "without RANK and MASTER_PORT it is no job of torchrun's" in line
    assert "ModuleNotFoundError: matplotlib" in done.stderr


COMMANDS_ALONE = """
from course import catalogue
from course.__main__ import COMMANDS, main
from course.your_gpus import page
page.ROWS = page.ROWS[:1]
main(["start"])
del sys.meta_path[0]
files = {"record": ["passport"], "report": ["no.log"], "class": ["no.json"], "run": ["none"]}
for name in COMMANDS:
    print("exit status of", name, main([name, *files.get(name, [])]))
"""


@mark.slow
def test_without_notebooks_a_command_does_its_job_or_says_what_it_needs(tmp_path):
    for name in ("labkit", "course"):  # what a wheel installs
        shutil.copytree(ROOT / name, tmp_path / name)
    paths = {"PYTHONPATH": str(tmp_path), "LABKIT_LEDGER": str(tmp_path / "ledger.jsonl")}
    script = ALONE.format(blocked={"nbformat"}) + COMMANDS_ALONE
    done = python("-c", script, cwd=tmp_path, **paths)
    status = dict(re.findall(r"^exit status of (\S+) (\d)$", done.stdout, re.MULTILINE))
    assert status.keys() == COMMANDS.keys(), done.stderr
    wants = r"^course (\w+): there are no notebooks .* needs a clone"
    commands = re.findall(wants, done.stderr, re.MULTILINE)
    assert commands == ["start", *FROM_A_CLONE], "start says so before what is missing"
    assert {name for name in status if status[name] == "0"} == {"gpus", "progress", "case"}
    assert "First see to: notebooks." in done.stdout


def test_binder_installs_the_pinned_versions_and_no_test_packages():
    everywhere, binder = pins("requirements.txt"), pins("binder/requirements.txt")
    assert {name: everywhere[name] for name in binder} == binder
    assert not set(binder) & names(PROJECT["optional-dependencies"]["test"])
    assert "download.pytorch.org/whl/cpu" in (ROOT / "binder" / "requirements.txt").read_text()


def test_the_devcontainer_takes_the_cpu_build_of_the_pinned_torch():
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    cpu, everything, _ = container["postCreateCommand"].split(" && ")
    assert f"torch=={pins('requirements.txt')['torch']} " in cpu and "whl/cpu" in cpu
    assert everything == "pip install -r requirements.txt"


def test_the_paper_cites_what_its_bibliography_holds():
    paper, bibliography = ((ROOT / f"docs/paper.{kind}").read_text() for kind in ("md", "bib"))
    front = yaml.safe_load(paper.split("---")[1])
    assert front["title"] == CITATION["title"]
    assert [a["name"] for a in front["authors"]] == [a["name"] for a in CITATION["authors"]]
    cited = set(re.findall(r"@([a-z]+\d{4}[a-z]+)", paper))
    assert cited == set(re.findall(r"^@\w+\{(\w+),", bibliography, re.MULTILINE))


def test_ci_tries_each_python_that_is_promised_on_the_cpu_build():
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    promised = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if "3." in name]
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == promised
    assert workflow["env"]["PIP_EXTRA_INDEX_URL"].endswith("/whl/cpu")
    newest = " ".join(step.get("run", "") for step in workflow["jobs"]["newest"]["steps"])
    assert "pip install -e " in newest and "requirements" not in newest, "nothing is pinned there"


def test_the_two_commands_of_the_readme_are_a_line_each():
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    install, prove = (block.splitlines() for block in blocks[:2])
    assert len(install) == 1 and install[0].endswith("python -m course start")
    assert "pip install -r requirements.txt" in install[0] and prove == ["python -m pytest"]
