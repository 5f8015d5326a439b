"""Start ranks: the launcher, the hosts they run on, and what this machine is."""
