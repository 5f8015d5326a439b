"""Kernels that are forked from a process that has imported torch, as labkit's ranks are.

A kernel takes some four seconds of a CPU until it has imported what a notebook needs, its fork
server two, and the suite starts some thirty of them. Each is a process of its own all the same.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from labkit.ranks import server

MODULES = (
    *("ipykernel.kernelapp", "ipykernel.zmqshell", "ipywidgets", "matplotlib.pyplot"),
    *("matplotlib_inline.backend_inline", "torch.distributed"),
)
"""What is imported once, for all kernels; of ours, only what starts ranks."""
LAUNCHER = "ipykernel_launcher"
MAIN = "from tests.kernels import serve; serve({})"


class Forked:
    """As much of a `subprocess.Popen` as is used of it; its parent is the process that forked."""

    stdin = stdout = stderr = None

    def __init__(self, pid):
        self.pid = pid

    def poll(self):
        with contextlib.suppress(ChildProcessError):  # it is one where a kernel forks its server
            os.waitpid(self.pid, os.WNOHANG)
        return None if Path(f"/proc/{self.pid}").exists() else 0

    def wait(self, timeout=None):
        while self.poll() is None:
            time.sleep(0.01)
        return 0

    def send_signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Forker:
    """A process that forks kernels, for whoever connects to its `address`."""

    def __init__(self, env):
        self.folder = tempfile.TemporaryDirectory(prefix="kernels-")
        self.address = f"{self.folder.name}/socket"
        variables = {**env, "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen()
            options = {"stdin": subprocess.PIPE, "pass_fds": [listener.fileno()]}
            command = [sys.executable, "-c", MAIN.format(listener.fileno())]
            self.process = subprocess.Popen(command, env=variables, **options)

    def close(self):
        self.process.communicate()
        self.folder.cleanup()


def launch_kernel(address, cmd, *, env, cwd, **ignored):
    """Do what `jupyter_client.launcher.launch_kernel` does, for ipykernel."""
    arguments = cmd[cmd.index(LAUNCHER) + 1 :]
    with socket.socket(socket.AF_UNIX) as forker, forker.makefile("rw") as lines:
        forker.connect(address)
        print(json.dumps([arguments, env, str(cwd)]), file=lines, flush=True)
        return Forked(int(lines.readline()))


def import_once(*modules):
    """Import what forks of this process need, as labkit's fork server does."""
    gc.disable()
    for module in modules:
        importlib.import_module(module)
    gc.freeze()
    server._use_huge_pages()
    gc.enable()


def serve(descriptor):
    """Fork a kernel for each connection, and write its pid; end with stdin."""
    import_once(*MODULES)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    listener = socket.socket(fileno=descriptor)
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as lines:
            request = json.loads(lines.readline())
            if os.fork() == 0:
                os.setsid()  # interrupts are for it and its children
                print(os.getpid(), file=lines, flush=True)
                break
    else:
        return
    listener.close()
    become_kernel(*request)


def become_kernel(arguments, env, cwd):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    with Path(os.devnull).open("r+b") as nothing:
        for descriptor in range(3):
            os.dup2(nothing.fileno(), descriptor)
    server._server = ForkedServer(env)
    kernelapp = importlib.import_module("ipykernel.kernelapp")
    kernelapp.launch_new_instance([*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])


class ForkedServer(server.Server):
    """A kernel's fork server, as a fork of the kernel: it has imported torch."""

    def _start(self, descriptor):
        if pid := os.fork():
            return Forked(pid)
        os.setsid()
        os.dup2(self._stderr.fileno(), 2)
        self._socket.close()
        server.serve(os.dup(descriptor), fresh=False)
        os._exit(0)
