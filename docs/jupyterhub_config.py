"""JupyterHub for a room: each learner gets a course and CPUs of their own.

    CPUS_EACH=2 jupyterhub -f docs/jupyterhub_config.py

Whoever is in the machine's group `learners` (or in the one that LEARNERS names) may log in, with
the password of their account. The course is the clone in the learner's home, `~/course`: notebooks
are its copies in `work/`, and answers lie there, too. CPUs are given in the order in which learners
come. A kernel and the ranks that it starts inherit the CPUs of the server. Two learners share CPUs
only when there are more learners than shares; the hub's log says so.
"""

import os
import sys
from pathlib import Path

from tornado.web import HTTPError

LEARNERS = os.environ.get("LEARNERS", "learners")
CPUS_EACH = int(os.environ.get("CPUS_EACH", "2"))
CPUS = sorted(os.sched_getaffinity(0))
SHARES = [
    ",".join(map(str, CPUS[start : start + CPUS_EACH]))
    for start in range(0, len(CPUS) - CPUS_EACH + 1, CPUS_EACH)
]
given = {}
"""Learner -> CPUs."""


def prepare(spawner):
    """Start a learner's server in their clone, on the share that the fewest others have."""
    clone = Path(spawner.user_env({})["HOME"], "course")
    if not (clone / "notebooks").is_dir():
        error = HTTPError(500, f"{clone} is no clone of the course.")
        error.jupyterhub_message = error.log_message  # what the learner sees
        raise error
    programs = Path(sys.executable).parent
    spawner.environment |= {
        "PYTHONPATH": str(clone),  # before the course that is installed for all
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
    taken = list(given.values())
    share = given.setdefault(spawner.user.name, min(SHARES, key=taken.count))
    start = [sys.executable, "-m", "course", "start", "--hub"]
    spawner.cmd = ["taskset", "--cpu-list", share, *start]
    others = taken.count(share)
    spawner.log.info("%s works on CPUs %s, with %d others", spawner.user.name, share, others)
    # With DockerSpawner and the image of the Dockerfile, instead of all this:
    # spawner.cmd = ["python", "-m", "course", "start", "--hub"]
    # spawner.extra_host_config = {
    #     "cpuset_cpus": share, "mem_limit": "4g", "shm_size": "1g",
    #     "security_opt": ["seccomp=unconfined"],  # for the emulated links
    # }


def take_back(spawner):
    """Give a learner's CPUs to whoever comes next."""
    given.pop(spawner.user.name, None)


c = get_config()  # noqa: F821 (JupyterHub defines it)
c.LocalAuthenticator.allowed_groups = {LEARNERS}  # without this JupyterHub lets nobody in
c.Spawner.pre_spawn_hook = prepare
c.Spawner.post_stop_hook = take_back
c.Spawner.default_url = "/lab/tree/work/start.ipynb"
c.Spawner.start_timeout = c.Spawner.http_timeout = 180  # a room that logs in at once
