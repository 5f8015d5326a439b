"""Where a rank runs: the namespaces it enters and the network interface it uses."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


@dataclass(frozen=True, slots=True)
class Placement:
    """One rank's place.

    Without a fabric every rank stays where the fork server is, on the loopback interface.
    """

    namespaces: tuple[str, ...] = ()
    """Namespace files (``/proc/PID/ns/user``, ``/proc/PID/ns/net``), entered in this order."""
    interface: str = LOOPBACK
    """The network interface that gloo binds to."""

    def enter(self) -> None:
        """Move the calling process into the namespaces.

        A user namespace takes single-threaded processes only: call this right after the fork.

        Raises:
            OSError: If the kernel refuses, with the namespace file that it refused.
        """
        if not self.namespaces:
            return
        libc = ctypes.CDLL(None, use_errno=True)  # os.setns needs Python 3.12
        for path in self.namespaces:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if libc.setns(descriptor, 0) != 0:
                    code = ctypes.get_errno()
                    raise OSError(code, os.strerror(code), path)
            finally:
                os.close(descriptor)
