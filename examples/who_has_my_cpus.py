"""Who has my CPUs? Start a program under this script, and see what kept it off the CPUs.

    python examples/who_has_my_cpus.py -- python3 test.py 8

It says *mask* (the program may run on a few of the CPUs only), *quota* (its cgroup has used up the
CPU time that it may have), *neighbours* (other programs had the CPUs) or *none of these*, with the
figures. Linux, and nothing but Python; the program's exit status is handed on.

Sources: proc(5), the kernel's sched-stats.rst, sched-bwc.rst and cgroup-v2.rst (not run here).
"""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
EVERY, LEAST = 0.1, 1.0  # seconds between two looks; and of a program that something is said of
THROTTLED = 0.1  # share of the periods from which on a quota is to blame
WAITED = 0.5, 0.05  # of the time on a CPU, and CPUs' worth: with less of either, nobody waits
OTHERS = 0.5  # what others used, in what we used, from which on they are to blame


def main(arguments):
    """Run the command, report on standard error, and return the command's exit status."""
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not command:
        sys.exit("usage: python who_has_my_cpus.py -- COMMAND...")
    if not sys.platform.startswith("linux"):
        sys.exit("who_has_my_cpus reads Linux's /proc, which this system does not have.")
    if not any(schedstat(PROC / "self/task")):
        sys.exit("This kernel keeps no schedstat (CONFIG_SCHED_INFO): nothing can be said.")
    start, group, busy = time.monotonic(), tightest(), busy_seconds()
    before = counters(group)
    try:
        running = subprocess.Popen(command)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")
    threads, family = {}, {running.pid}
    while running.returncode is None:
        look(threads, family)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            running.wait(EVERY)
    wall, after = time.monotonic() - start, counters(group)
    status = 128 - running.returncode if running.returncode < 0 else running.returncode
    if wall < LEAST:
        print(f"{command[0]} ended after {wall:.2f} s: too soon to say anything.", file=sys.stderr)
        return status
    on_cpu, waiting = (sum(thread[k] for thread in threads.values()) / 1e9 for k in (0, 1))
    masks = [thread[2] for thread in threads.values() if sum(thread[:2]) > 1e7 * (on_cpu + waiting)]
    allowed = set().union(*masks) or os.sched_getaffinity(0)
    used = {cpu: seconds - busy.get(cpu, 0) for cpu, seconds in busy_seconds().items()}
    others = max(0.0, sum(used.get(cpu, 0) for cpu in allowed) - on_cpu)
    periods, throttled, stopped = (new - old for new, old in zip(after, before, strict=True))
    report = [
        f"on a CPU      {on_cpu:.2f} s in {wall:.2f} s: {on_cpu / wall:.2f} CPUs, all threads",
        f"waiting       {waiting:.2f} s for a CPU, all threads",
        f"mask          {len(allowed)} of {len(used)} CPUs: {', '.join(map(str, sorted(allowed)))}",
        f"quota         {limit(group) if group else 'none'}"
        + (f" CPUs; stopped in {throttled} of {periods} periods, {stopped:.2f} s" if group else ""),
        f"others        {others / wall:.2f} CPUs, on the CPUs of the mask",
    ]
    verdict = judge(wall, on_cpu, waiting, len(allowed) / len(used), others, periods, throttled)
    print("", *report, verdict, sep="\n", file=sys.stderr)
    return status


def judge(wall, on_cpu, waiting, mask, others, periods, throttled):
    """Name what kept a program off the CPUs; `mask` is the share of them that it may run on."""
    if periods and throttled >= THROTTLED * periods:
        return "=> quota: its cgroup had used up its CPU time, and was stopped."
    if waiting < WAITED[0] * on_cpu or waiting < WAITED[1] * wall:
        return "=> none of these: its threads hardly waited for a CPU."
    if others >= OTHERS * on_cpu:
        return "=> neighbours: other programs used the CPUs that it waited for."
    if mask < 1:
        return "=> mask: its threads waited for each other on the few CPUs that they may use."
    return "=> none of these: its own threads fill all CPUs of the machine."


def look(threads, family):
    """Note what all threads of a program and its children have used, and where they may run."""
    parents = {}
    for status in PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    size = 0
    while size != len(family):
        size = len(family)
        family |= {child for child, parent in parents.items() if parent in family}
    for process in family & parents.keys():
        for on_cpu, waiting, task in schedstat(PROC / f"{process}/task"):
            with contextlib.suppress(OSError):
                threads[task.name] = on_cpu, waiting, os.sched_getaffinity(int(task.name))


def schedstat(tasks):
    """Yield each thread's nanoseconds on a CPU, those of waiting for one, and its folder."""
    with contextlib.suppress(OSError):
        for task in tasks.iterdir():
            on_cpu, waiting, _ = map(int, (task / "schedstat").read_text().split())
            if on_cpu:
                yield on_cpu, waiting, task


def busy_seconds():
    """Return the seconds that each CPU has worked for anybody: user, nice and system come first."""
    lines = [line.split() for line in (PROC / "stat").read_text().splitlines()]
    rows = [row for row in lines if row[0].startswith("cpu") and row[0] != "cpu"]
    return {int(row[0][3:]): sum(map(int, row[1:4])) / os.sysconf("SC_CLK_TCK") for row in rows}


def tightest(root=CGROUPS, groups=PROC / "self/cgroup"):
    """Return the cgroup around this process with the least quota; None where none has one."""
    folders = []
    with contextlib.suppress(OSError):
        for line in groups.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            for top in (root / controllers, root):
                inside = top / path.strip("/")
                folders += [inside, *inside.parents]
    return min(filter(limit, folders), key=limit, default=None)


def limit(folder):
    """Return a cgroup's quota in CPUs; None where it has none. Version 2, then version 1."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text().split()
        return int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError):
        quota, period = (int((folder / f"cpu.cfs_{k}_us").read_text()) for k in ("quota", "period"))
        return quota / period if quota > 0 else None
    return None


def counters(folder):
    """Return a cgroup's periods, those in which it was stopped, and for how many seconds."""
    if folder is None:
        return 0, 0, 0.0
    pairs = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
    stopped = int(pairs.get("throttled_usec", 0)) / 1e6 + int(pairs.get("throttled_time", 0)) / 1e9
    return int(pairs["nr_periods"]), int(pairs["nr_throttled"]), stopped


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
