"""Read what `nvidia-smi topo -m` and `p2pBandwidthLatencyTest` print, and nothing else.

Both are tables for people, pasted from terminals: with tabs or spaces, with underline codes in the
header, with columns for network cards and processors that differ between versions.
"""

import re
from itertools import product

_UNDERLINE = re.compile(r"\x1b?\[\d*(?:;\d+)*m")  # also where the paste lost the escape byte
_AFTER_DEVICES = re.compile(r"CPU\s+Affinity|NUMA\s+Affinity|GPU\s+NUMA\s+ID")
_CLASS = re.compile(r"X|NV[0-9]{1,2}|SYS|NODE|PHB|PXB|PIX|SOC")
_NUMBER = re.compile(r"[-+]?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_SMALL = re.compile(r"[0-9]{1,4}")


class TopologyTextError(ValueError):
    """A table that could not be understood; says at which line, counted from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")


def read_topology(text: str) -> tuple[tuple[tuple[str, ...], ...], tuple[int | None, ...]]:
    """Read the table that `nvidia-smi topo -m` prints; network cards are passed over.

    Returns:
        `classes[i][j]`, the link class from GPU i to GPU j, and each GPU's NUMA node.

    Raises:
        TopologyTextError: At the first thing that is not understood.
    """
    lines = [_UNDERLINE.sub("", line).replace("\xa0", " ") for line in text.splitlines()]
    start = next((i for i, line in enumerate(lines) if re.search(r"\bGPU\d+", line)), None)
    if start is None:
        raise TopologyTextError(1, "no line names GPU0. Paste all of `nvidia-smi topo -m`.")
    devices = _AFTER_DEVICES.split(lines[start])[0].split()
    rows: dict[str, tuple[int, list[str]]] = {}
    for number, line in enumerate(lines[start + 1 :], start + 2):
        if re.match(r"\s*(NIC )?Legend", line):
            break
        if words := line.split():
            _check_row(number, words, devices)
            rows[words[0]] = number, words
    gpus = [name for name in devices if name.startswith("GPU")]
    for name in gpus:
        if name not in rows:
            message = f"the row of {name} is missing; the header has {len(gpus)} GPUs."
            raise TopologyTextError(len(lines), message)
    place = {name: devices.index(name) + 1 for name in gpus}
    classes = {(a, b): rows[a][1][place[b]] for a, b in product(gpus, gpus)}
    for a, b in product(gpus, gpus):
        there, back = classes[a, b], classes[b, a]
        if there != back or (there == "X") != (a == b):
            raise TopologyTextError(rows[a][0], f"{a} to {b} is {there}, but {b} to {a} is {back}.")
    numa = tuple(_numa(rows[name][1][len(devices) + 1 :]) for name in gpus)
    return tuple(tuple(classes[a, b] for b in gpus) for a in gpus), numa


def _check_row(number: int, words: list[str], devices: list[str]) -> None:
    name, *links = words[: len(devices) + 1]
    if name not in devices:
        message = f"a row called {name!r}; the header has {', '.join(devices)}."
        raise TopologyTextError(number, message)
    for word in links:
        if not _CLASS.fullmatch(word):
            message = f"{word!r} is not a link class (X, NV1, NV2, ..., PIX, ..., SYS)."
            raise TopologyTextError(number, message)
    if len(links) < len(devices):
        message = f"{len(links)} links where the header has {len(devices)} devices."
        raise TopologyTextError(number, message)


def _numa(rest: list[str]) -> int | None:
    """Return the NUMA node from what stands behind a row's links: the CPUs, the node."""
    return int(rest[1]) if len(rest) > 1 and _SMALL.fullmatch(rest[1]) else None


def read_bandwidths(text: str) -> list[list[float]]:
    r"""Read one matrix that `p2pBandwidthLatencyTest` prints (GB/s); return bytes per second.

    Lines that are not rows of the matrix (titles, the `D\D` header) are passed over. The diagonal
    is a GPU's copy within its own memory.

    Raises:
        TopologyTextError: A row is too short or too long, out of order, or holds no number.
    """
    rows: list[list[float]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or not _SMALL.fullmatch(words[0]) or int(words[0]) != len(rows):
            continue
        wrong = next((word for word in words[1:] if not _NUMBER.fullmatch(word)), None)
        if wrong is not None:
            raise TopologyTextError(number, f"{wrong!r} is not a number.")
        rows.append([float(word) * 1e9 for word in words[1:]])
        if len(rows[-1]) != len(rows[0]):
            message = f"{len(rows[-1])} numbers, where row 0 has {len(rows[0])}."
            raise TopologyTextError(number, message)
        if len(rows) == len(rows[0]):
            return rows
    message = f"{len(rows)} rows found of a square matrix. Paste one matrix with its row numbers."
    raise TopologyTextError(len(text.splitlines()) or 1, message)
