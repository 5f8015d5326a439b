"""JupyterHub for a room: each learner gets CPUs of their own, in the order in which they come.

    CPUS_EACH=2 jupyterhub -f docs/jupyterhub_config.py

A kernel and the ranks that it starts inherit the CPUs of the server. Two learners share CPUs only
when there are more learners than shares; the hub's log says so.
"""

import os

CPUS_EACH = int(os.environ.get("CPUS_EACH", "2"))
CPUS = sorted(os.sched_getaffinity(0))
SHARES = [
    ",".join(map(str, CPUS[start : start + CPUS_EACH]))
    for start in range(0, len(CPUS) - CPUS_EACH + 1, CPUS_EACH)
]
given = {}
"""Learner -> CPUs."""


def give_cpus(spawner):
    """Start a learner's server on the share that the fewest others have."""
    taken = list(given.values())
    share = given.setdefault(spawner.user.name, min(SHARES, key=taken.count))
    spawner.cmd = ["taskset", "--cpu-list", share, "jupyterhub-singleuser"]
    others = taken.count(share)
    spawner.log.info("%s works on CPUs %s, with %d others", spawner.user.name, share, others)
    # With DockerSpawner, instead of cmd:
    # spawner.extra_host_config = {
    #     "cpuset_cpus": share, "mem_limit": "4g", "shm_size": "1g",
    #     "security_opt": ["seccomp=unconfined"],  # for the emulated links
    # }


def take_back(spawner):
    """Give a learner's CPUs to whoever comes next."""
    given.pop(spawner.user.name, None)


c = get_config()  # noqa: F821 (JupyterHub defines it)
c.Spawner.pre_spawn_hook = give_cpus
c.Spawner.post_stop_hook = take_back
c.Spawner.default_url = "/lab/tree/00_start_here.ipynb"
c.Spawner.notebook_dir = "~/course/notebooks"
