"""JupyterLab in headless Chromium, as far as the tests use it."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from pytest import importorskip, mark

from tests.ranks import nodes

PICTURES = nodes.ROOT / "build" / "browser"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PORT = 10_000 + 4 * (os.getpid() % 5_000)
"""The first of four: the kernel gives such a port to nobody else meanwhile."""
NOTEBOOK = "window.jupyterapp.shell.currentWidget"
"""What is in front."""
SESSION = f"{NOTEBOOK}.sessionContext.session"
CONFIG, SETTINGS = "JUPYTER_CONFIG_DIR", "JUPYTERLAB_SETTINGS_DIR"
OTHERS = "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR"
OF_PLUGIN = SETTINGS + "/@jupyterlab/{}.jupyterlab-settings"
NO_NEWS = {"fetchNews": "false", "checkForUpdates": False}
FILES = {
    OF_PLUGIN.format("notebook-extension/tracker"): {"windowingMode": "none"},  # renders every cell
    OF_PLUGIN.format("apputils-extension/notification"): NO_NEWS,
    OF_PLUGIN.format("terminal-extension/plugin"): {"screenReaderMode": True},  # lines as text
    f"{CONFIG}/labconfig/page_config.json": {"buildCheck": False},  # it would ask npm
    f"{CONFIG}/jupyter_server_config.json": {"LabApp": {"expose_app_in_browser": True}},
}
"""What JupyterLab is told, by file."""


def chromium():
    """Where the browser is, or None; Debian's without windows takes less time."""
    names = "chromium-headless-shell", "chromium", "chromium-browser"
    return next(filter(None, map(shutil.which, names)), None)


needs_chromium = mark.skipif(not chromium(), reason="no Chromium here: apt-get install chromium")


def environment(folder):
    learner = {"LABKIT_LEDGER": str(folder / "ledger.jsonl"), "COURSE_GATES": "closed"}
    variables = nodes.environment(JUPYTER_PREFER_ENV_PATH="1", **learner)
    for name in (CONFIG, SETTINGS, *OTHERS):
        (folder / name).mkdir()
        variables[name] = str(folder / name)
    for name, value in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    return variables


@contextmanager
def server(folder):
    """Serve `folder / "course"` with JupyterLab; yields the address."""
    (folder / "course").mkdir(exist_ok=True)
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
        f"--port={PORT}", "--IdentityProvider.token=",
        f"--ServerApp.root_dir={folder / 'course'}",
        "--KernelManager.transport=ipc",  # a port may be taken before the kernel has started
    ]  # fmt: skip
    with TemporaryDirectory(prefix="lab-") as runtime:
        variables = environment(folder) | {"JUPYTER_RUNTIME_DIR": runtime}  # short, for sockets
        with running(command, folder, PORT, "/api", variables):
            yield f"http://127.0.0.1:{PORT}"


@contextmanager
def running(command, folder, port, page, variables):
    """Run a server, with its log in `folder`, from when its page is there until the block ends."""
    log = folder / "server.log"
    with log.open("w") as file:
        started = {"stdout": file, "stderr": file, "start_new_session": True}
        process = subprocess.Popen(command, cwd=folder, env=variables, **started)
        try:
            for _ in range(600):
                ended = process.poll() is not None
                assert not ended, f"the server ended:\n{log.read_text()[-2000:]}"
                with suppress(OSError), urlopen(f"http://127.0.0.1:{port}{page}", timeout=5):
                    break
                time.sleep(0.1)
            yield
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def browser():
    """Headless Chromium; what asks for it is skipped where playwright is missing."""
    sync = importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield started
        started.close()


def photograph(page, name, **options):
    """Keep a screenshot, to be looked at."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", **options)


def wait_for_notebook(page, path):
    """Wait until the notebook is the tab in front, with its kernel idle."""
    in_front = f"window.jupyterapp && {NOTEBOOK}?.context?.path === '{path}'"
    idle = f"{SESSION}?.kernel?.status === 'idle'"
    page.wait_for_function(f"{in_front} && {idle}", timeout=150_000)


def execute(page, command, **arguments):
    """Execute a command of JupyterLab's; what it returns stays there: it may be all of a widget."""
    start = "([command, arguments]) => window.jupyterapp.commands.execute(command, arguments)"
    page.evaluate(f"{start}.then(() => null)", [command, arguments])


class Notebook:
    """One notebook, open in JupyterLab in place of the one before, with its kernel idle."""

    def __init__(self, page, address, name):
        self.page = page
        if page.url == "about:blank":
            page.goto(f"{address}/doc/tree/{name}", wait_until="domcontentloaded")
        else:
            page.evaluate(f"{NOTEBOOK}.dispose()")
            execute(page, "docmanager:open", path=name)
        wait_for_notebook(page, name)

    def run(self, command):
        """Run cells by a `notebook:` command of JupyterLab's, to their end."""
        execute(self.page, f"notebook:{command}")
        self.wait_until_idle()

    def run_from(self, place):
        """Run one cell, by its place, and all below it."""
        self.page.evaluate(f"{NOTEBOOK}.content.activeCellIndex = {place}")
        self.run("run-all-below")

    def wait_until_idle(self):
        self.page.wait_for_function(f"{SESSION}.kernel.status === 'idle'", timeout=300_000)
        self.page.wait_for_timeout(500)  # the last outputs are on their way

    def errors(self):
        """Name each cell that failed, with its error."""
        return self.page.evaluate(
            f"{NOTEBOOK}.content.widgets.filter(cell => cell.model.type === 'code').flatMap(cell =>"
            " cell.model.outputs.toJSON().filter(output => output.output_type === 'error').map("
            "output => `${cell.model.id}: ${output.ename}: ${output.evalue}`))"
        )

    def text(self):
        """What the outputs show, as text."""
        return "\n".join(self.page.locator(".jp-OutputArea-output").all_inner_texts())
