"""A cluster on a laptop: hosts on one machine, joined by shaped links."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("Fabric", "FabricUnavailable"):  # built by a process that does not need them
        from labkit.fabric import fabric

        return getattr(fabric, name)
    raise AttributeError(f"module 'labkit.fabric' has no attribute {name!r}")
