"""Read what `nvidia-smi topo -m` and `p2pBandwidthLatencyTest` print, and nothing else.

Both are tables for people, pasted from terminals: with tabs or spaces, with underline codes in the
header, with columns for network cards and processors that differ between versions.
"""

import re
from itertools import product

_UNDERLINE = re.compile(r"\x1b?\[\d*(?:;\d+)*m")  # also where the paste lost the escape byte
_AFTER_DEVICES = re.compile(r"CPU\s+Affinity|NUMA\s+Affinity|GPU\s+NUMA\s+ID")
_CLASS = re.compile(r"X|NV[0-9]{1,2}|SYS|NODE|PHB|PXB|PIX|SOC")
_WORD = re.compile(r"\S+")
_NUMBER = re.compile(r"[-+]?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_SMALL = re.compile(r"[0-9]{1,4}")


class TopologyTextError(ValueError):
    """A table that could not be understood; says at which line and column, counted from 1."""


def _error(line: int, column: int, message: str) -> TopologyTextError:
    return TopologyTextError(f"line {line}, column {column}: {message}")


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
        raise _error(1, 1, "no line names GPU0. Paste what `nvidia-smi topo -m` prints, whole.")
    devices = _AFTER_DEVICES.split(lines[start])[0].split()
    rows: dict[str, tuple[int, list[re.Match]]] = {}
    for number, line in enumerate(lines[start + 1 :], start + 2):
        if re.match(r"\s*(NIC )?Legend", line):
            break
        words = list(_WORD.finditer(line))
        if words:
            _check_row(number, line, words, devices)
            rows[words[0][0]] = number, words
    gpus = [name for name in devices if name.startswith("GPU")]
    for name in gpus:
        if name not in rows:
            raise _error(
                len(lines), 1, f"the row of {name} is missing; the header has {len(gpus)} GPUs."
            )
    place = {name: devices.index(name) + 1 for name in gpus}
    classes = {(a, b): rows[a][1][place[b]][0] for a, b in product(gpus, gpus)}
    for a, b in product(gpus, gpus):
        there, back = classes[a, b], classes[b, a]
        if there != back or (there == "X") != (a == b):
            number, words = rows[a]
            message = f"{a} to {b} is {there}, but {b} to {a} is {back}."
            raise _error(number, words[place[b]].start() + 1, message)
    numa = tuple(_numa([word[0] for word in rows[name][1][len(devices) + 1 :]]) for name in gpus)
    return tuple(tuple(classes[a, b] for b in gpus) for a in gpus), numa


def _check_row(number: int, line: str, words: list[re.Match], devices: list[str]) -> None:
    name, links = words[0], words[1 : len(devices) + 1]
    if name[0] not in devices:
        message = f"a row called {name[0]!r}; the header has {', '.join(devices)}."
        raise _error(number, name.start() + 1, message)
    for word in links:
        if not _CLASS.fullmatch(word[0]):
            message = f"{word[0]!r} is not a link class (X, NV1, NV2, ..., PIX, ..., SYS)."
            raise _error(number, word.start() + 1, message)
    if len(links) < len(devices):
        message = f"{len(links)} links where the header has {len(devices)} devices."
        raise _error(number, len(line) + 1, message)


def _numa(rest: list[str]) -> int | None:
    """Return the NUMA node from what stands behind a row's links: the CPUs, the node."""
    return int(rest[1]) if len(rest) > 1 and _SMALL.fullmatch(rest[1]) else None


def read_bandwidths(text: str) -> list[list[float]]:
    r"""Read one matrix that `p2pBandwidthLatencyTest` prints (GB/s); return bytes per second.

    Lines that are not rows of the matrix (titles, the `D\\D` header) are passed over. The diagonal
    is a GPU's copy within its own memory.

    Raises:
        TopologyTextError: A row is too short or too long, out of order, or holds no number.
    """
    rows: list[list[float]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = list(_WORD.finditer(line))
        if not words or not _SMALL.fullmatch(words[0][0]) or int(words[0][0]) != len(rows):
            continue
        for word in words[1:]:
            if not _NUMBER.fullmatch(word[0]):
                raise _error(number, word.start() + 1, f"{word[0]!r} is not a number.")
        rows.append([float(word[0]) * 1e9 for word in words[1:]])
        if len(rows[-1]) != len(rows[0]):
            raise _error(number, 1, f"{len(rows[-1])} numbers, where row 0 has {len(rows[0])}.")
        if len(rows) == len(rows[0]):
            return rows
    raise _error(
        len(text.splitlines()) or 1,
        1,
        f"{len(rows)} rows found of a square matrix of {len(rows[0]) if rows else 'unknown'}. "
        "Paste one matrix of p2pBandwidthLatencyTest with its row numbers.",
    )
