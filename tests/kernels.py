"""Kernels that are forked from a process that has imported torch, as labkit's ranks are.

A kernel takes some four seconds of a CPU until it has imported what a notebook needs, and the suite
starts some thirty of them. Each is a process of its own all the same.
"""

import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

MODULES = (
    *("ipykernel.kernelapp", "ipykernel.zmqshell", "ipywidgets", "matplotlib.pyplot"),
    *("matplotlib_inline.backend_inline", "torch.distributed"),
)
"""What is imported once, for all kernels; nothing of ours."""
LAUNCHER = "ipykernel_launcher"
MAIN = "from tests.kernels import serve; serve()"


class Forked:
    """As much of a `subprocess.Popen` as jupyter_client uses; its parent is the forking process."""

    stdin = stdout = stderr = None

    def __init__(self, pid):
        self.pid = pid

    def poll(self):
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 0
        return None

    def wait(self):
        while self.poll() is None:
            time.sleep(0.01)
        return 0

    def send_signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Forker:
    """A process that forks kernels."""

    def __init__(self, env):
        variables = {**env, "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
        command, pipe = [sys.executable, "-c", MAIN], subprocess.PIPE
        self.process = subprocess.Popen(command, env=variables, stdin=pipe, stdout=pipe)

    def launch_kernel(self, cmd, *, env, cwd, **ignored):
        """Do what `jupyter_client.launcher.launch_kernel` does, for ipykernel."""
        arguments = cmd[cmd.index(LAUNCHER) + 1 :]
        request = json.dumps([arguments, env, str(cwd)])
        self.process.stdin.write(f"{request}\n".encode())
        self.process.stdin.flush()
        return Forked(int(self.process.stdout.readline()))


def serve():
    """Fork a kernel for each line on stdin, and write its pid; end with stdin."""
    gc.disable()  # as in labkit's fork server
    for module in MODULES:
        importlib.import_module(module)
    gc.freeze()
    gc.enable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin.buffer:
        if os.fork() == 0:
            become_kernel(*json.loads(line))
            break


def become_kernel(arguments, env, cwd):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()  # interrupts are for it and its children
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    os.write(sys.stdout.fileno(), f"{os.getpid()}\n".encode())
    with Path(os.devnull).open("r+b") as nothing:
        for descriptor in range(3):
            os.dup2(nothing.fileno(), descriptor)
    kernelapp = importlib.import_module("ipykernel.kernelapp")
    kernelapp.launch_new_instance([*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])
