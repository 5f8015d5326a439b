"""Make lesson 07's `data/` from the raw logs in two public repositories, at the commits named here.

    python -m tools.eighty_gpus_data NCCL_TESTS_CLUSTER ALCF_NCCL_TESTS

The arguments are clones of github.com/xxrjun/nccl-tests-cluster and, for Polaris, of
github.com/argonne-lcf/alcf-nccl-tests. Sizes are left out, and nothing else.
"""

import csv
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

DATA = Path(__file__).parents[1] / "course/lessons/eighty_gpus/data"
COMMITS = {
    "benchmarks/": "455de4f8dee2fa94cd4044a7109fd8c576f9e6c1",
    "results_polaris": "385be33604ccebd32691c0805b5803eba7109b5d",
}
SIZES, POLARIS_SIZES = (2**25, 2**30, 2**34), (4, 2**30)

_TEST = re.compile(r"Collective test starting: (\w+)_perf")
_RANK = re.compile(r"Rank +(\d+) .* on \w+-(\d+) device +\d+ \[0000:(\w\w):")
_ERROR = re.compile(r"Test NCCL failure (\w+\.cu:\d+) .*((?:\n \.\. .* Test failure .*)*)")
_CALLER = re.compile(r"Test failure (\w+\.cu:\d+)")
_ROW = re.compile(
    r"^ +(\d+) +\d+ +\w+ +\w+ +-?\d+ +([\d.e+]+) +[\d.]+ +([\d.]+) +\S+ +\S+ +\S+ +([\d.]+)", re.M
)  # size; out of place: microseconds, busbw; in place: busbw


def files(clone: str, under: str, like: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Read the files of the commit whose paths match: yields the groups and the text."""
    commit = next(commit for folder, commit in COMMITS.items() if under.startswith(folder))

    def git(*words: str) -> str:
        return subprocess.check_output(["git", "-C", clone, *words], text=True)

    for path in git("ls-tree", "-r", "--name-only", commit, under).splitlines():
        if match := re.search(like, path):
            yield match.groups(), git("show", f"{commit}:{path}")


def tests(text: str) -> Iterator[tuple[str, dict[int, list[str]], dict[int, tuple], str]]:
    """Split a log: collective, slots by host in the order of ranks, size -> figures, its end.

    A test that failed has no figures; some failed before they named any GPU. Its end is the line
    of nccl-tests' source that its error names, with the two lines that called it. It is `cut off`
    where there is neither an error nor an end, and empty where the test was concluded.
    """
    for part in re.split(r"(?=^# nccl-tests version)", text, flags=re.M):
        if name := _TEST.search(part):
            slots: dict[int, list[str]] = {}
            for _, host, slot in sorted(_RANK.findall(part), key=lambda rank: int(rank[0])):
                slots.setdefault(int(host), []).append(slot)
            figures = {int(size): rest for size, *rest in _ROW.findall(part)}
            end = "" if "Collective test concluded" in part else "cut off"
            if error := _ERROR.search(part):
                end = " < ".join([error[1], *_CALLER.findall(error[2])[:2]])
            yield name[1], slots, figures, end


def seventeen_hosts(clone: str) -> Iterator[list]:
    """Return a row for each of the 810 tests of two hosts; a failed one has no figures."""
    like = r"_N2_G(\d)_\w+-(\d+)_\w+-(\d+)\.log"
    for names, text in files(clone, "benchmarks/example-cluster00", like):
        for collective, slots, figures, end in tests(text):
            took_part = ["-".join(slots.get(int(host), [])) for host in names[1:]]
            busbw = [figures[size][1] if size in figures else "" for size in SIZES]
            yield [collective, *map(int, names), *took_part, *busbw, end]


def ten_hosts(clone: str) -> Iterator[list]:
    """Return the medians by collective, hosts, GPUs per host and size."""
    by_test: dict[tuple, list] = {}
    like = r"without-debug/logs/nccl_N(\d+)_G(\d)"
    for names, text in files(clone, "benchmarks/example-cluster01", like):
        for collective, _, figures, _ in tests(text):
            for size, values in figures.items():
                by_test.setdefault((collective, *map(int, names), size), []).append(values)
    for key, logs in sorted(by_test.items()):
        medians = [f"{statistics.median(map(float, each)):.7g}" for each in zip(*logs, strict=True)]
        yield [*key, *medians, len(logs)]


def polaris(clone: str) -> Iterator[list]:
    """Return Polaris' all_reduce rows."""
    like = r"nccl_(2_\d+)/n(\d+)\.g4\.2024.*/all_reduce_output\.dat\.(\d)"
    for (nccl, *names), text in files(clone, "results_polaris", like):
        rows = {int(size): (float(t), float(busbw)) for size, t, busbw, _ in _ROW.findall(text)}
        for size in rows.keys() & POLARIS_SIZES:
            yield [nccl.replace("_", "."), *names, size, *rows[size]]


def write(name: str, columns: str, rows: Iterable[list]) -> None:
    """Write one file of data/."""
    with (DATA / name).open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([columns.split(), *rows])


if __name__ == "__main__":
    cluster, alcf = sys.argv[1:]
    key = "collective gpus_per_host first second first_slots second_slots"
    sizes = "busbw_32MiB busbw_1GiB busbw_16GiB"
    write("seventeen.csv", f"{key} {sizes} ended_at", seventeen_hosts(cluster))
    key = "collective hosts gpus_per_host bytes"
    write("h100.csv", f"{key} time_us busbw_gbs inplace_gbs runs", ten_hosts(cluster))
    write("polaris.csv", "nccl hosts setup bytes time_us busbw_gbs", sorted(polaris(alcf)))
