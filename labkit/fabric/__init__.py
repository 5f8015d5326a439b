"""A cluster on a laptop: hosts on one machine, joined by shaped links."""

from typing import TYPE_CHECKING

from labkit import _lazily

if TYPE_CHECKING:
    from labkit.fabric.errors import FabricUnavailable
    from labkit.fabric.fabric import Fabric
else:  # built by a process that does not need them
    __getattr__, __dir__ = _lazily.exports(__name__)

__all__ = ["Fabric", "FabricUnavailable"]
