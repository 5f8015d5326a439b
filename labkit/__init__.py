"""labkit: run, measure and explain distributed communication from a notebook cell."""

from labkit.run.failures import LaunchError, LaunchTimeout, RankDied, RankError
from labkit.run.launcher import launch

__all__ = ["LaunchError", "LaunchTimeout", "RankDied", "RankError", "launch"]
