"""labkit: run, measure and explain distributed communication from a notebook cell."""

from labkit.launch.errors import LaunchError, LaunchTimeout, RankDied, RankError
from labkit.launch.launcher import launch

__all__ = ["LaunchError", "LaunchTimeout", "RankDied", "RankError", "launch"]
