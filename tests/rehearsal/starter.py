"""Starts scripts in a box by forks of one process that has imported torch: each starts at once.

The server of a script's ranks is such a fork, too.

It reads a job a line from its standard input, and answers each with a line, once the job has ended.
"""

import json
import os
import runpy
import signal
import sys
import time

from labkit.ranks import server
from tests.kernels import ForkedServer, import_once


def become(job, variables, argv):
    """Run a job's script in this process, which was forked for it, and end."""
    os.setpgid(0, 0)
    for descriptor, name in enumerate((os.devnull, job["out"], job["err"])):
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(name, flags), descriptor)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(job["folder"])
    if "RANK" not in variables:  # torchrun's ranks are there, and nobody starts others
        server._server = ForkedServer(variables)
    if argv[0] == "-m":
        sys.argv[:] = argv[1:]
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = argv
        runpy.run_path(argv[0], run_name="__main__")
    sys.exit()  # or the fork would go on as the starter


def run(job):
    """Start a process for each set of variables; return how each ended, those last that were ended.

    As torchrun does, end the others once one has failed.
    """
    pids = []
    for variables in job["variables"]:
        pid = os.fork()
        if pid == 0:
            become(job, variables, job["argv"])
        pids.append(pid)
    statuses, limit = {}, time.monotonic() + job["timeout"]
    while len(statuses) < len(pids):
        for pid in set(pids) - statuses.keys():
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                statuses[pid] = os.waitstatus_to_exitcode(status)
        late = time.monotonic() > limit
        if late or any(statuses.values()):
            for pid in set(pids) - statuses.keys():
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
            time.sleep(0.05)
        time.sleep(0.01)
    return [statuses[pid] for pid in pids]


def main():
    """Answer jobs until the input ends."""
    import_once("torch.distributed", "matplotlib.pyplot", "networkx")
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
