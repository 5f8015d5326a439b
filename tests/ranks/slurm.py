"""A Slurm cluster of two nodes on this machine: its own daemons, with their files in one folder."""

import getpass
import os
import shutil
import subprocess
import time
from contextlib import ExitStack, contextmanager

from tests.ranks.nodes import environment, free_port

PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
NODES = ("127.0.0.2", "127.0.0.3")  # names that resolve, as those of a cluster's nodes do
UNFINISHED = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"}
CONFIGURATION = """\
ClusterName=course
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
{nodes}
PartitionName=all Nodes=ALL Default=YES
"""


def is_installed():
    return all(shutil.which(name, path=PATH) for name in ("munged", "slurmctld", "slurmd"))


def wait_until(met, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not met():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.1)


class Cluster:
    """Slurm's commands, as far as the tests use them."""

    def __init__(self, folder):
        self.variables = environment(SLURM_CONF=str(folder / "slurm.conf"))

    def ask(self, *command, check=True, **more):
        done = subprocess.run(
            command, env=self.variables, stdout=subprocess.PIPE, text=True, check=check, **more
        )
        return done.stdout.strip()

    def submit(self, script, folder, *options):
        """Let sbatch run the script in the folder; returns the job's number."""
        files = ("--output=out", "--error=err")
        return self.ask("sbatch", "--parsable", *files, *options, input=script, cwd=folder)

    def state(self, job):
        return self.ask("squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job}")

    def end_of(self, job):
        """Wait until the job has ended on all nodes; returns the state in which it did."""
        wait_until(lambda: self.state(job) not in UNFINISHED, f"the end of job {job}")
        return self.state(job)

    def is_ready(self):
        found = self.ask("sinfo", "--noheader", "--format=%D %T", check=False)
        return found == f"{len(NODES)} idle"

    def clear(self):
        self.ask("scancel", "--partition=all")
        wait_until(lambda: not self.ask("squeue", "--noheader"), "the end of all jobs")


@contextmanager
def running(folder):
    """Start the daemons; at the end cancel what still runs, then stop them."""
    _configure(folder)
    cluster = Cluster(folder)
    with ExitStack() as stack:
        stack.enter_context(_daemon(folder, "munged", "--foreground", "--force", *_munge(folder)))
        wait_until((folder / "munge.socket").exists, f"munged (its words are in {folder})")
        stack.enter_context(_daemon(folder, "slurmctld", "-D"))
        for name in NODES:
            stack.enter_context(_daemon(folder, "slurmd", "-D", "-N", name))
        wait_until(cluster.is_ready, f"nodes that are ready (the daemons' words are in {folder})")
        stack.callback(cluster.clear)
        yield cluster


def _configure(folder):
    nodes = [f"NodeName={name} NodeHostname=localhost Port={free_port()}" for name in NODES]
    own = {"folder": folder, "user": getpass.getuser(), "port": free_port()}
    text = CONFIGURATION.format(**own, nodes="\n".join(nodes))
    (folder / "slurm.conf").write_text(text)
    for name in NODES:
        (folder / name).mkdir()


def _munge(folder):
    """Make a key; returns the options that keep munged to it and to the folder."""
    key = folder / "munge.key-file"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    names = ("key-file", "socket", "pid-file", "seed-file", "log-file")
    return [f"--{name}={folder / 'munge'}.{name}" for name in names]


@contextmanager
def _daemon(folder, *command):
    variables = environment(SLURM_CONF=str(folder / "slurm.conf"), PATH=PATH)
    with (folder / f"{command[0]}.log").open("a") as log:
        process = subprocess.Popen(
            command, env=variables, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
