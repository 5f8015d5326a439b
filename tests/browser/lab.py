"""JupyterLab in headless Chromium, as far as the tests use it."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from pytest import importorskip

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "build" / "browser"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
NOTEBOOK = "window.jupyterapp.shell.currentWidget"
SESSION = f"{NOTEBOOK}.sessionContext.session"
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},  # cells out of sight are rendered too
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


def chromium():
    """Where the browser is, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def environment(folder):
    variables = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "LABKIT_LEDGER": str(folder / "ledger.jsonl"),
        "COURSE_GATES": "closed",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    own = "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR"
    for name in (settings := "JUPYTERLAB_SETTINGS_DIR", *own):
        (folder / name).mkdir()
        variables[name] = str(folder / name)
    for name, value in SETTINGS.items():
        path = folder / settings / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    return variables


@contextmanager
def server(folder):
    """Serve `folder / "course"` with JupyterLab; yields the address."""
    (folder / "course").mkdir(exist_ok=True)
    port = 10_000 + os.getpid() % 20_000  # the kernel gives such a port to nobody else meanwhile
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
        f"--port={port}", "--IdentityProvider.token=", "--LabApp.expose_app_in_browser=True",
        f"--ServerApp.root_dir={folder / 'course'}",
        "--KernelManager.transport=ipc",  # a port may be taken before the kernel has started
    ]  # fmt: skip
    with (folder / "lab.log").open("w") as log, TemporaryDirectory(prefix="lab-") as runtime:
        variables = environment(folder) | {"JUPYTER_RUNTIME_DIR": runtime}  # short, for sockets
        process = subprocess.Popen(
            command, env=variables, stdout=log, stderr=log, start_new_session=True
        )
        try:
            wait_for(port, process, folder / "lab.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


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


def wait_for(port, process, log, page="/api"):
    for _ in range(600):
        if process.poll() is not None:
            raise RuntimeError(f"JupyterLab ended:\n{log.read_text()[-2000:]}")
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}{page}", timeout=5):
            return
        time.sleep(0.1)
    raise RuntimeError("JupyterLab does not answer")


class Notebook:
    """One notebook, open in the browser with its kernel idle."""

    def __init__(self, page, address, name):
        self.page = page
        page.goto(f"{address}/doc/tree/{name}?reset", wait_until="domcontentloaded")
        page.wait_for_function(
            "window.jupyterapp && document.querySelector('.jp-Notebook .jp-Cell')"
        )
        page.wait_for_function(f"{SESSION}?.kernel?.status === 'idle'", timeout=90_000)

    def run_all(self):
        self.run_commands("run-all-cells")
        self.wait_until_idle()

    def run_from(self, place):
        """Run one cell, by its place, and all below it."""
        self.page.evaluate(f"{NOTEBOOK}.content.activeCellIndex = {place}")
        self.run_commands("run-all-below")
        self.wait_until_idle()

    def run_commands(self, *names):
        """Start JupyterLab's `notebook:` commands, one after the other."""
        chain = "Promise.resolve()" + "".join(
            f".then(() => window.jupyterapp.commands.execute('notebook:{name}'))" for name in names
        )
        self.page.evaluate(
            f"() => {{ window.labkitRunning = true; {chain}"
            ".finally(() => { window.labkitRunning = false }) }"
        )

    def wait_until_idle(self, timeout=300.0):
        idle = f"() => !window.labkitRunning && {SESSION}.kernel.status === 'idle'"
        self.page.wait_for_function(idle, timeout=timeout * 1000, polling=100)
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
