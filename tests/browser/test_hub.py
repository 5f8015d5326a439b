"""Two learners in the JupyterHub of docs/rooms.md, which is followed to the letter, as root."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager
from pathlib import Path

from pytest import mark

from tests.browser import lab
from tests.marks import is_closed_to_others
from tests.ranks.nodes import ROOT

NEEDS = {"jupyterhub": "pip install", "configurable-http-proxy": "npm install -g"}
pytestmark = [mark.exhaustive, mark.timeout(600), lab.needs_chromium]
for name, by in NEEDS.items():
    reason = f"no {name} here: {by} {name}"
    pytestmark.append(mark.skipif(not shutil.which(name), reason=reason))
MADE = [*(Path("/srv", name) for name in ("course", "venv", "hub")), Path("/etc/skel/course")]
in_the_way = os.getuid() != 0 or any(map(os.path.lexists, MADE))
pytestmark.append(mark.skipif(in_the_way, reason="needs root, and a machine without such a room"))
closed = "learners could not start this Python: make the environment where all can read it"
pytestmark.append(mark.skipif(is_closed_to_others(), reason=closed))

PAGE = (ROOT / "docs" / "rooms.md").read_text()
BLOCKS = re.findall(r"^   ```bash\n(.*?)^   ```$", PAGE, re.DOTALL | re.MULTILINE)
INSTALL, ACCOUNTS, HUB, CLASS = map(textwrap.dedent, BLOCKS)
DOCTOR, HAND_IN = re.findall(r"`(python -m course [^`]+)`", PAGE.partition("\n4. ")[2])
PASSWORD = "a-first-password"
PREDICT = """
from course.predictions.ledger import predict
predict("02.room", "How long?", "ms", value={})
"""
FIGURES = {"ada": 11, "ben": 22}
HOMES = {lab.CONFIG: ".jupyter", lab.SETTINGS: ".jupyter/lab/user-settings"}


def shell(command, **options):
    return subprocess.run(["bash", "-ec", command], **{"check": True} | options)


@contextmanager
def room(folder):
    """Do what the page says, and undo it. Step 1 ends in this environment and this clone."""
    shell(f"git clone --quiet {ROOT} /srv/course && ln -s {sys.prefix} /srv/venv")
    variables = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    try:
        shell(ACCOUNTS)
        shell("useradd --create-home --skel /nowhere --groups learners cleo")
        shell(f"echo cleo:{PASSWORD} | chpasswd")
        for name in FIGURES:
            let_us_look(name)
        hub = HUB.replace("CPUS_EACH=2", "CPUS_EACH=1 exec")  # this machine may have two CPUs
        with lab.running(["bash", "-c", hub], folder, 8000, "/hub/api", variables):
            yield "http://127.0.0.1:8000"
    finally:
        for name in (*FIGURES, "cleo"):
            shell(f"pkill -KILL -u {name} || true; userdel --force --remove {name}", check=False)
        shell("groupdel learners || true; rm -rf /srv/course /srv/venv /srv/hub /etc/skel/course")


def let_us_look(name):
    """Have the learner's JupyterLab show the test what it does; nothing of it is the hub's."""
    for setting, value in lab.FILES.items():
        home, _, rest = setting.partition("/")
        path = Path("/home", name, HOMES[home], rest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    shell(f"chown -R {name}: /home/{name}/.jupyter")


def log_in(started, address, name):
    page = started.new_context(viewport={"width": 1200, "height": 900}).new_page()
    page.goto(f"{address}/hub/login")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    return page


def open_terminal(page):
    lab.execute(page, "terminal:create-new")
    page.locator(".xterm-helper-textarea").wait_for(state="attached")
    page.wait_for_function(f"{lab.NOTEBOOK}.content.session.connectionStatus === 'connected'")
    page.locator(".jp-Terminal").click()


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


def readable(path, by):
    """Whether the learner `by` can read a file by a shell."""
    return shell(f"runuser -u {by} -- cat {path}", check=False, capture_output=True).returncode == 0


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
        open_terminal(page)
        page.keyboard.type(f"{DOCTOR}\n")
        lines = page.locator(".xterm-accessibility-tree")
        lines.get_by_text(re.compile(r"CPUs\s+1 usable of \d")).wait_for(state="attached")
        lines.get_by_text(re.compile("fabric")).wait_for(state="attached")
        page.keyboard.type(f"{HAND_IN}\n")
        lab.photograph(page, "hub-ada")
        open_terminal(pages["ben"])
        pages["ben"].keyboard.type(f"{HAND_IN}\n")
        clones = {name: Path("/home", name, "course") for name in FIGURES}
        handed_in = {name: hand_in_of(clone) for name, clone in clones.items()}
        for name, figure in FIGURES.items():
            lines = (clones[name] / "work/ledger.jsonl").read_text().splitlines()
            assert figure in [json.loads(line).get("answer") for line in lines]
            assert [entry["answer"] for entry in handed_in[name]["entries"]] == [figure]
            assert (clones[name] / "work/exercises/02_exercises.ipynb").exists()
            assert readable(clones[name] / "mine.json", by=name)
        assert not readable(clones["ada"] / "mine.json", by="ben")
        Path("/home/ada").chmod(0o755)  # as on a system whose homes are open
        for file in ("mine.json", "work/ledger.jsonl"):
            assert not readable(clones["ada"] / file, by="ben"), file
        answer = pages["ben"].goto(f"{address}/user/ada/files/mine.json")
        assert answer.status in (403, 404)
        shell(CLASS)
        shown = Path("/srv/course/class.html")
        database = Path("/srv/hub/jupyterhub.sqlite")
        assert database.exists() and not readable(database, by="ben")
        assert "A class of 2" in shown.read_text() and not readable(shown, by="ben")
