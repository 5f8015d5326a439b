"""Two learners in a JupyterHub of docs/jupyterhub_config.py, from login to what they hand in."""

import json
import shutil
import sys
import time
from contextlib import contextmanager

from pytest import mark

from course.predictions import ledger_file
from tests.browser import lab
from tests.ranks.nodes import ROOT

NEEDS = {"jupyterhub": "pip install", "configurable-http-proxy": "npm install -g"}
pytestmark = [mark.exhaustive, mark.timeout(600), lab.needs_chromium]
for name, by in NEEDS.items():
    reason = f"no {name} here: {by} {name}"
    pytestmark.append(mark.skipif(not shutil.which(name), reason=reason))
OURS = """
c = get_config()
load_subconfig("{root}/docs/jupyterhub_config.py")
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.interrupt_timeout = c.SimpleLocalProcessSpawner.term_timeout = 2
c.SimpleLocalProcessSpawner.home_dir_template = "{folder}/{{username}}"
c.Spawner.environment = {{"{config}": "{folder}/{config}"}}
c.JupyterHub.bind_url = "http://127.0.0.1:{ports[0]}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{ports[1]}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{ports[2]}"
"""
PREDICT = """
from course.predictions.ledger import predict
predict("02.room", "How long?", "ms", value={})
"""
FIGURES = {"ada": 11, "ben": 22}
HAND_IN = "python -m course progress --hand-in mine.json --name {}\n"


@contextmanager
def room(folder):
    """Run the documented configuration, with homes in `folder`; yields the address."""
    left_out = shutil.ignore_patterns(".git", "work", "build", ".venv", "__pycache__")
    for name in FIGURES:
        shutil.copytree(ROOT, folder / name / "course", ignore=left_out)
    (folder / "cleo").mkdir()
    ports = [lab.PORT + number for number in (1, 2, 3)]
    config = folder / "config.py"
    config.write_text(OURS.format(root=ROOT, folder=folder, config=lab.CONFIG, ports=ports))
    command = [sys.executable, "-m", "jupyterhub", "-f", config]
    variables = lab.environment(folder) | {"CPUS_EACH": "1"}
    del variables["LABKIT_LEDGER"]
    with lab.running(command, folder, ports[1], "/hub/api", variables):
        yield f"http://127.0.0.1:{ports[0]}"


def log_in(started, address, name):
    page = started.new_context(viewport={"width": 1200, "height": 900}).new_page()
    page.goto(f"{address}/hub/login")
    page.get_by_label("Username").fill(name)
    page.get_by_role("button", name="Sign in").click()
    return page


def run(page, code):
    """Run code in the kernel of the notebook in front."""
    start = f"code => {lab.SESSION}.kernel.requestExecute({{code}})"
    page.evaluate(f"{start}.done.then(() => null)", code)


def hand_in_of(clone):
    for _ in range(300):
        if (clone / "mine.json").exists():
            break
        time.sleep(0.1)
    return json.loads((clone / "mine.json").read_text())


def test_each_has_exercises_answers_and_a_hand_in_of_their_own(tmp_path):
    with room(tmp_path) as address, lab.browser() as started:
        page = log_in(started, address, "cleo")
        page.get_by_text("is no clone of the course").first.wait_for(timeout=30_000)
        pages = {name: log_in(started, address, name) for name in ("ada", "ben")}
        for name, figure in FIGURES.items():
            lab.wait_for_notebook(pages[name], "work/start.ipynb")
            run(pages[name], PREDICT.format(figure))
        page = pages["ada"]
        page.locator("a[href*='exercises/02']:visible").first.click()
        lab.wait_for_notebook(page, "work/exercises/02_exercises.ipynb")
        lab.execute(page, "terminal:create-new")
        page.locator(".xterm-helper-textarea").wait_for(state="attached")
        page.wait_for_function(f"{lab.NOTEBOOK}.content.session.connectionStatus === 'connected'")
        page.locator(".jp-Terminal").click()
        page.keyboard.type(HAND_IN.format("ada"))
        lab.photograph(page, "hub-ada")
        run(pages["ben"], "!cd .. && " + HAND_IN.format("ben"))
        handed_in = {name: hand_in_of(tmp_path / name / "course") for name in FIGURES}
    for name, figure in FIGURES.items():
        clone = tmp_path / name / "course"
        entries = ledger_file.load(clone / "work/ledger.jsonl").entries
        assert entries["02.room"].answer == figure
        assert [entry["answer"] for entry in handed_in[name]["entries"]] == [figure]
        assert handed_in[name]["name"] == name
        assert (clone / "work/exercises/02_exercises.ipynb").exists()
