"""Makes the files in data/ from the raw logs that two public repositories hold.

    python -m course.lessons.eighty_gpus.make_data NCCL_TESTS_CLUSTER ALCF_NCCL_TESTS

where both are clones of the repositories named below. The files are read at the commits named
here, whatever is checked out. Nothing is left out but sizes: three for the sick cluster, two for
Polaris.
"""

import csv
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

CLUSTERS = ("github.com/xxrjun/nccl-tests-cluster", "455de4f8dee2fa94cd4044a7109fd8c576f9e6c1")
POLARIS = ("github.com/argonne-lcf/alcf-nccl-tests", "385be33604ccebd32691c0805b5803eba7109b5d")
DATA = Path(__file__).with_name("data")
SICK_SIZES = (2**25, 2**30, 2**34)
POLARIS_SIZES = (4, 2**30)
_RESULTS = "benchmarks/example-cluster0{}/nccl-benchmark-results"

_TEST = re.compile(r"Collective test starting: (\w+)_perf")
_RANK = re.compile(r"Rank +(\d+) .* on \w+-(\d+) device +\d+ \[0000:(\w\w):")
_ROW = re.compile(
    r"^ +(\d+) +\d+ +\w+ +\w+ +-?\d+ +([\d.e+]+) +[\d.]+ +([\d.]+) +\S+ +\S+ +\S+ +([\d.]+)", re.M
)  # size, out of place: microseconds and busbw, in place: busbw


def files(clone: str, commit: str, *, under: str, like: str) -> Iterator[tuple[re.Match, str]]:
    """Read the files of a commit whose path matches: yields the match and the text."""
    git = ["git", "-C", clone]
    paths = subprocess.check_output([*git, "ls-tree", "-r", "--name-only", commit, under])
    for path in paths.decode().splitlines():
        if match := re.search(like, path):
            yield match, subprocess.check_output([*git, "show", f"{commit}:{path}"]).decode()


def tests(text: str) -> Iterator[tuple[str, dict[int, list[str]], dict[int, tuple]]]:
    """Split a log: collective, slots by host in the order of ranks, size -> figures (or nothing).

    A test that failed has no rows; some failed before they named any GPU.
    """
    for part in re.split(r"(?=^# nccl-tests version)", text, flags=re.M):
        if name := _TEST.search(part):
            slots: dict[int, list[str]] = {}
            for _, host, slot in sorted(_RANK.findall(part), key=lambda rank: int(rank[0])):
                slots.setdefault(int(host), []).append(slot)
            yield name[1], slots, {int(n): (t, out, own) for n, t, out, own in _ROW.findall(part)}


def sick(clone: str) -> Iterator[list]:
    """Return a row for each of the 810 tests of two hosts; a failed one has no figures."""
    like = r"_N2_G(\d)_\w+-(\d+)_\w+-(\d+)\.log"
    where = {"under": _RESULTS.format(0), "like": like}
    for match, text in files(clone, CLUSTERS[1], **where):
        gpus, first, second = map(int, match.groups())
        for collective, slots, found in tests(text):
            named = ["-".join(slots.get(host, [])) for host in (first, second)]
            figures = [found[size][1] if size in found else "" for size in SICK_SIZES]
            yield [collective, gpus, first, second, *named, *figures]


def h100(clone: str) -> Iterator[list]:
    """Return the ten hosts' medians by collective, hosts, GPUs per host and size."""
    found: dict[tuple, list[tuple[float, ...]]] = {}
    where = {"under": _RESULTS.format(1), "like": r"without-debug/logs/nccl_N(\d+)_G(\d)"}
    for match, text in files(clone, CLUSTERS[1], **where):
        hosts, gpus = map(int, match.groups())
        for collective, _, figures in tests(text):
            for size, values in figures.items():
                numbers = tuple(map(float, values))
                found.setdefault((collective, hosts, gpus, size), []).append(numbers)
    for key, runs in sorted(found.items()):
        medians = [f"{statistics.median(values):.7g}" for values in zip(*runs, strict=True)]
        yield [*key, *medians, len(runs)]


def polaris(clone: str) -> Iterator[list]:
    """Return Polaris' all_reduce rows, the median where a case was run twice."""
    like = r"nccl_(2_\d+)/n(\d+)\.g4\.2024.*/all_reduce_output\.dat\.(\d)"
    for match, text in files(clone, POLARIS[1], under="results_polaris", like=like):
        rows: dict[int, list] = {}
        for size, t, busbw, _ in _ROW.findall(text):
            rows.setdefault(int(size), []).append((float(t), float(busbw)))
        for size in POLARIS_SIZES:
            if size in rows:
                medians = [statistics.median(each) for each in zip(*rows[size], strict=True)]
                yield [match[1].replace("_", "."), *match.groups()[1:], size, *medians]


def write(name: str, columns: str, rows: Iterable[list]) -> None:
    """Write one file of data/."""
    with (DATA / name).open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([columns.split(), *rows])


if __name__ == "__main__":
    cluster, alcf = sys.argv[1:]
    ends = "collective gpus_per_host first second first_slots second_slots"
    write("sick.csv", f"{ends} busbw_32MiB busbw_1GiB busbw_16GiB", sick(cluster))
    columns = "collective hosts gpus_per_host bytes time_us busbw_gbs inplace_gbs runs"
    write("h100.csv", columns, h100(cluster))
    write("polaris.csv", "nccl hosts setup bytes time_us busbw_gbs", polaris(alcf))
