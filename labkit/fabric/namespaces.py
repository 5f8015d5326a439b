"""The process that holds a fabric's hosts: `python -m labkit.fabric.namespaces`.

It reads a plan as one line of JSON, builds the hosts in namespaces of its own, answers with one
line of JSON, and then waits until its maker is gone. The hosts are nothing but open files of
this process: when it ends, for whatever reason, the kernel takes all of them down.
"""

import ctypes
import json
import os
import select
import signal
import sys
from pathlib import Path

from labkit.fabric import shaping
from labkit.fabric.plan import Plan

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *args: int) -> None:
    if getattr(_LIBC, name)(*args):
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def leave_the_machine() -> tuple[str, ...]:
    """Move this process into a user and a network namespace of its own; return what to enter.

    Root may do without the user namespace where those are switched off.
    """
    user, group = os.getuid(), os.getgid()
    here = f"/proc/{os.getpid()}/ns/user"
    try:
        _call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
    except OSError:
        if user != 0:
            raise
        _call("unshare", CLONE_NEWNET)
        return ()
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return (here,)


def new_network() -> int:
    """Move this process into a new network namespace and return the open file that keeps it."""
    _call("unshare", CLONE_NEWNET)
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


class Builder:
    """Builds the hosts of a plan; `step` says what it is doing, for the message if it fails."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.step = "start"

    def build(self) -> list[tuple[str, ...]]:
        """Return, for each host, the namespaces that a rank has to enter."""
        self.step = "import pyroute2"
        from pyroute2 import IPRoute

        self.step = "create namespaces"
        user = leave_the_machine()
        middle = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        networks = [new_network() for _ in range(self.plan.hosts)]
        _call("setns", middle, CLONE_NEWNET)
        with IPRoute() as ipr:  # speaks to the namespace in which it is opened
            self._lay_cables(ipr, networks)
        for host, network in enumerate(networks):
            _call("setns", network, CLONE_NEWNET)
            with IPRoute() as ipr:
                self._configure_host(ipr, host)
        _call("setns", middle, CLONE_NEWNET)
        return [(*user, f"/proc/{os.getpid()}/fd/{network}") for network in networks]

    def _lay_cables(self, ipr, networks: list[int]) -> None:
        self.step = "add a bridge"
        bridge = shaping.make_bridge(ipr)
        for host, network in enumerate(networks):
            self.step = "add a veth pair"
            port = shaping.plug_in(ipr, host=host, bridge=bridge, namespace=network, plan=self.plan)
            if self.plan.nics is not None:
                self.step = "shape with htb and u32"
                shaping.shape(ipr, index=port, plan=self.plan, host=host, by="src")

    def _configure_host(self, ipr, host: int) -> None:
        self.step = "configure a host"
        eth0 = shaping.configure_host(ipr, host=host)
        self.step = "shape with htb and u32"
        shaping.shape(ipr, index=eth0, plan=self.plan, host=host, by="dst")
        if self.plan.delay:
            self.step = "delay with netem"
            shaping.delay(ipr, index=eth0, plan=self.plan, host=host)


def main() -> int:
    """Build what standard input asks for and keep it until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Jupyter interrupts the whole process group
    maker = os.getppid()
    builder = Builder(Plan(**json.loads(sys.stdin.readline())))
    try:
        answer = {"hosts": builder.build()}
    except Exception as error:  # every failure goes to the maker, who explains it
        code = getattr(error, "code", None) or getattr(error, "errno", None)
        answer = {"step": builder.step, "errno": code, "error": f"{error}"}
    print(json.dumps(answer), flush=True)
    # The pipe ends with its maker, unless another process has inherited the writing end.
    while os.getppid() == maker:
        if select.select([sys.stdin], [], [], 1.0)[0]:
            break
    return 0


if __name__ == "__main__":
    sys.exit(main())
