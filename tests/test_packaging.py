"""What the repository says of itself in several places agrees."""

import json
import re
import tomllib
from pathlib import Path

import yaml

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


def test_what_is_needed_is_pinned():
    needed = names(PROJECT["dependencies"])
    tested = names(PROJECT["optional-dependencies"]["test"])
    assert needed | tested <= set(pins("requirements.txt"))
    assert needed <= set(pins("binder/requirements.txt"))


def test_binder_installs_the_pinned_versions_and_no_test_packages():
    everywhere, binder = pins("requirements.txt"), pins("binder/requirements.txt")
    assert {name: everywhere[name] for name in binder} == binder
    assert not set(binder) & names(PROJECT["optional-dependencies"]["test"])
    assert "download.pytorch.org/whl/cpu" in (ROOT / "binder" / "requirements.txt").read_text()


def test_the_devcontainer_takes_the_cpu_build_of_the_pinned_torch():
    command = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())[
        "postCreateCommand"
    ]
    cpu, everything, _ = command.split(" && ")
    assert f"torch=={pins('requirements.txt')['torch']} " in cpu and "whl/cpu" in cpu
    assert everything == "pip install -r requirements.txt"


def test_the_paper_cites_what_its_bibliography_holds():
    paper, bibliography = ((ROOT / f"paper.{kind}").read_text() for kind in ("md", "bib"))
    front = yaml.safe_load(paper.split("---")[1])
    assert front["title"] == CITATION["title"]
    assert [author["name"] for author in front["authors"]] == [
        a["name"] for a in CITATION["authors"]
    ]
    cited = set(re.findall(r"@([a-z]+\d{4}[a-z]+)", paper))
    assert cited == set(re.findall(r"^@\w+\{(\w+),", bibliography, re.MULTILINE))
