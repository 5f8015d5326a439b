"""Why a fabric cannot be made here, and how to allow it."""

import errno
from pathlib import Path
from typing import Any


class FabricUnavailable(RuntimeError):
    """Hosts cannot be made on this machine; says why and what to do."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(f"No fabric can be made here: {cause}. {remedy}")
        self.cause = cause
        """What stands in the way, as a clause."""
        self.remedy = remedy
        """What would allow it, as sentences."""

    def __reduce__(self) -> tuple[Any, ...]:  # two arguments, where an exception has one
        return type(self), (self.cause, self.remedy), self.__dict__


_SYSCTLS = Path("/proc/sys")
_SWITCHES = {  # the value that forbids, a value that allows, and what the first one means
    "kernel.apparmor_restrict_unprivileged_userns": (
        "1",
        "0",
        "AppArmor keeps unprivileged programs from using user namespaces (Ubuntu's default)",
    ),
    "kernel.unprivileged_userns_clone": ("0", "1", "this kernel keeps user namespaces for root"),
    "user.max_user_namespaces": ("0", "10000", "the number of user namespaces is limited to 0"),
    "user.max_net_namespaces": ("0", "10000", "the number of network namespaces is limited to 0"),
}
_MODULES = {
    "add a bridge": "bridge",
    "add a veth pair": "veth",
    "shape with htb and u32": "sch_htb cls_u32",
}
_FORBIDDEN = {errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EUSERS}


def explain(answer: dict[str, Any], stderr: str) -> FabricUnavailable:
    """Turn the holder's answer into an error that a caller can act on.

    The answer has what the holder was doing (`step`), the `errno` and text of the `error`; it is
    empty when the holder died without one, and then its stderr tells.
    """
    if not answer:
        last = (stderr.strip().splitlines() or ["it said nothing"])[-1]
        return FabricUnavailable(f"the process that makes the hosts died ({last})", "Report this.")
    step, code, error = answer["step"], answer["errno"], answer["error"]
    if step == "import pyroute2":
        return FabricUnavailable(
            f"pyroute2 cannot be imported ({error})", "Install it: pip install pyroute2"
        )
    if code in _FORBIDDEN:
        for name, (forbids, allows, cause) in _SWITCHES.items():
            file = _SYSCTLS / name.replace(".", "/")
            if file.is_file() and file.read_text().strip() == forbids:
                remedy = f"Allow it until the next boot: sudo sysctl {name}={allows}"
                return FabricUnavailable(cause, remedy)
        return FabricUnavailable(
            f"this process may not {step} ({error})",
            "In a container, start it with --security-opt seccomp=unconfined "
            "(Docker's default profile forbids new namespaces).",
        )
    if step in _MODULES:
        return FabricUnavailable(
            f"the kernel could not {step} ({error})",
            f"Load what it needs: sudo modprobe -a {_MODULES[step]}",
        )
    return FabricUnavailable(f"the attempt to {step} failed ({error})", "Report this.")
