"""labkit: run, measure and explain distributed communication from a notebook cell."""

from labkit.ranks.errors import LaunchError, LaunchTimeout, RankDied, RankError
from labkit.ranks.launcher import launch

__all__ = ["LaunchError", "LaunchTimeout", "RankDied", "RankError", "launch"]
