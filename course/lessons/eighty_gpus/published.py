"""The logs of three GPU clusters, and one simulator's figure: where they are, what they say.

The files in `data/` hold what the lesson needs of the logs, in the units of nccl-tests:
microseconds, GB/s (1e9), out of place. `h100.csv` has medians where a case was run on several
hosts; the others hold single runs, or the median of two.
"""

import csv
from pathlib import Path

from course.published import Published, Source

_DATA = Path(__file__).with_name("data")

H100 = Source(
    "nccl-tests-cluster, example-cluster01: 10 hosts x 8 H100, NCCL 2.29.2, Apache-2.0",
    "https://github.com/xxrjun/nccl-tests-cluster/tree/455de4f/benchmarks/example-cluster01",
    "commit 455de4f, 2026-01-28 and 29",
)
SICK = Source(
    "nccl-tests-cluster, example-cluster00: 17 hosts of H100, NCCL 2.28.7, Apache-2.0",
    "https://github.com/xxrjun/nccl-tests-cluster/tree/455de4f/benchmarks/example-cluster00",
    "commit 455de4f, 2025-11",
)
POLARIS = Source(
    "Polaris, Argonne: up to 540 hosts x 4 A100, NCCL 2.18 and 2.21",
    "https://github.com/argonne-lcf/alcf-nccl-tests/tree/385be33/results_polaris",
    "commit 385be33, runs of 2024-04-29",
)
TUNER = Source(
    "NCCL's tuner: constants, formula and refinements",
    "https://github.com/NVIDIA/nccl/blob/5067397/src/graph/tuning.cc",
    "commit 5067397, 2026-06-11",
)
SIMULATOR = Source(
    "Machine Learning Systems, volume II, lab 03: Communication at Scale",
    "https://github.com/harvard-edge/cs249r_book/blob/098f872/labs/vol2/lab_03_communication.py",
    "commit 098f872",
)
SIMULATOR_LATER = Source(
    "the same book, lab 06: Collective Communication",
    "https://github.com/harvard-edge/cs249r_book/blob/2435443/labs/vol2/lab_06_collective_communication.py",
    "commit 2435443",
)

ONE_CARD = Published(48.89, "GB/s busbw", "632480 27.16 48.89", H100)
EIGHT_CARDS = Published(320.54, "GB/s busbw", "105854 162.30 320.54", H100)
SICK_PAIRS = Published(
    34, "failed tests of 810", "Total tests processed: 810 - PASS: 776 - FAIL: 34", SICK
)
DEFAULT_IS_TCP = Published(
    9.45, "GB/s busbw", "Default settting, no NCCL environement setup. This will use TCP", POLARIS
)


def h100() -> list[dict]:
    """Read the ten hosts' figures.

    Returns:
        Rows with ``collective``, ``hosts``, ``gpus_per_host``, ``bytes``, ``time_us``,
        ``busbw_gbs``, and ``runs``: of how many hosts a row is the median.
    """
    return _rows("h100.csv")


def polaris() -> list[dict]:
    """Read Polaris' all_reduce: rows with ``nccl``, ``hosts``, ``setup``, ``bytes``, and times."""
    return _rows("polaris.csv")


def sick_cluster() -> list[dict]:
    """Read all pairs of the 17 hosts: ``first`` and ``second`` host, three sizes, ``busbw_gbs``."""
    return _rows("sick_cluster.csv")


def sick_cluster_gpus() -> list[dict]:
    """Read which GPUs took part in each sendrecv test of two hosts, by PCI bus address.

    Returns:
        Rows with ``gpus_per_host``, ``first`` and ``second`` host, and for each of them the GPU
        that receives from the other host (``first_from``: the host's lowest rank) and the one that
        sends to it (``first_to``: its highest).
    """
    return _rows("sick_gpus.csv")


def pick(rows: list[dict], **where: object) -> list[dict]:
    """Return the rows whose columns have these values, in the order of their sizes."""
    found = [row for row in rows if all(row[key] == value for key, value in where.items())]
    return sorted(found, key=lambda row: row.get("bytes", 0))


def _rows(name: str) -> list[dict]:
    with (_DATA / name).open(newline="") as file:
        return [{key: _value(text) for key, text in row.items()} for row in csv.DictReader(file)]


def _value(text: str) -> str | int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
