"""Read what `nvidia-smi topo -m` and `p2pBandwidthLatencyTest` print, and nothing else.

Both are tables for people, pasted from terminals: with tabs or spaces, with underline codes in the
header, with columns for network cards and processors that differ between versions.
"""

import re
from dataclasses import dataclass

_UNDERLINE = re.compile(r"\x1b?\[\d*(?:;\d+)*m")  # also where the paste lost the escape byte
_AFTER_DEVICES = re.compile(r"CPU\s+Affinity|NUMA\s+Affinity|GPU\s+NUMA\s+ID")
_CLASS = re.compile(r"X|NV\d+|SYS|NODE|PHB|PXB|PIX|SOC")
_WORD = re.compile(r"\S+")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


class TopologyTextError(ValueError):
    """A table that could not be understood; says at which line and column, and what was expected.

    Attributes:
        line: Counted from 1.
        column: Counted from 1, after terminal codes were taken out.
    """

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.line, self.column, self.message = line, column, message

    def __reduce__(self):  # an exception with several arguments must say so to be pickled
        return type(self), (self.line, self.column, self.message)


@dataclass(frozen=True, slots=True)
class Table:
    """The table as it stands in the text."""

    gpus: tuple[str, ...]
    """`("GPU0", "GPU1", ...)`."""
    nics: tuple[str, ...]
    """Network cards by the names of the legend, such as `mlx5_0`; else of the columns."""
    classes: tuple[tuple[str, ...], ...]
    """`classes[i][j]`: the link from device i to device j, GPUs first, then network cards."""
    cpus: tuple[str | None, ...]
    """Each GPU's CPU affinity, such as `0-31,64-95`."""
    numa: tuple[int | None, ...]
    """Each GPU's NUMA node."""


def read_topology(text: str) -> Table:
    """Read the table that `nvidia-smi topo -m` prints.

    Raises:
        TopologyTextError: at the first thing that is not understood.
    """
    lines = [_UNDERLINE.sub("", line).replace("\xa0", " ") for line in text.splitlines()]
    start = next((i for i, line in enumerate(lines) if re.search(r"\bGPU\d+", line)), None)
    if start is None:
        raise TopologyTextError(
            1, 1, "no line names GPU0. Paste what `nvidia-smi topo -m` prints, with its header."
        )
    devices = _devices(lines[start])
    rows: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(lines[start + 1 :], start + 2):
        if re.match(r"\s*(NIC )?Legend", line):
            break
        if line.strip():
            name = line.split()[0]
            if name not in devices:
                raise TopologyTextError(
                    number,
                    line.index(name) + 1,
                    f"a row called {name!r}; the header has {', '.join(devices)}.",
                )
            rows[name] = number, line
    gpus = [name for name in devices if name.startswith("GPU")]
    for name in gpus:
        if name not in rows:
            raise TopologyTextError(
                len(lines), 1, f"the row of {name} is missing; the header has {len(gpus)} GPUs."
            )
    return _table(devices, gpus, rows, _nic_names(lines))


def _devices(header: str) -> list[str]:
    found = _AFTER_DEVICES.search(header)
    return header[: found.start() if found else None].split()


def _table(devices: list[str], gpus: list[str], rows: dict, legend: dict[str, str]) -> Table:
    order = gpus + [name for name in devices if name not in gpus]
    classes, cpus, numa = [], [], []
    for name in order:
        if name not in rows:  # some versions print no rows for network cards
            break
        cells, rest = _cells(*rows[name], devices)
        classes.append(tuple(cells[devices.index(other)][0] for other in order))
        if name in gpus:
            cpu, node = _affinity(rest)
            cpus.append(cpu)
            numa.append(node)
    _check_symmetry(order, classes, rows, devices)
    nics = tuple(legend.get(name, name) for name in order[len(gpus) :])
    return Table(tuple(gpus), nics, tuple(classes), tuple(cpus), tuple(numa))


def _cells(number: int, line: str, devices: list[str]) -> tuple[list[tuple[str, int]], str]:
    words = list(_WORD.finditer(line))[1 : len(devices) + 1]
    for word in words:
        if not _CLASS.fullmatch(word[0]):
            raise TopologyTextError(
                number,
                word.start() + 1,
                f"{word[0]!r} is not a link class (X, NV1, NV2, ..., PIX, PXB, PHB, NODE, SYS).",
            )
    if len(words) < len(devices):
        raise TopologyTextError(
            number,
            len(line) + 1,
            f"{len(words)} links where the header has {len(devices)} devices.",
        )
    return [(word[0], word.start() + 1) for word in words], line[words[-1].end() :]


def _affinity(rest: str) -> tuple[str | None, int | None]:
    words = rest.split()
    cpu = words[0] if words and re.fullmatch(r"[\d,-]+", words[0]) else None
    node = words[1] if len(words) > 1 and re.fullmatch(r"\d+", words[1]) else None
    return cpu, None if node is None else int(node)


def _check_symmetry(order: list[str], classes: list, rows: dict, devices: list[str]) -> None:
    for i in range(len(classes)):
        for j in range(len(classes)):
            there, back = classes[i][j], classes[j][i]
            if there != back or (there == "X") != (i == j):
                cells, _ = _cells(*rows[order[i]], devices)
                raise TopologyTextError(
                    rows[order[i]][0],
                    cells[devices.index(order[j])][1],
                    f"{order[i]} to {order[j]} is {there}, but {order[j]} to {order[i]} is {back}.",
                )


def _nic_names(lines: list[str]) -> dict[str, str]:
    return dict(re.findall(r"^\s*(NIC\d+):\s*(\S+)", "\n".join(lines), re.MULTILINE))


def read_bandwidths(text: str) -> list[list[float]]:
    r"""Read one matrix that `p2pBandwidthLatencyTest` prints (GB/s); return bytes per second.

    Lines that are not rows of the matrix (titles, the `D\\D` header) are passed over. The diagonal
    is a GPU's copy within its own memory.

    Raises:
        TopologyTextError: a row is too short or too long, out of order, or holds no number.
    """
    rows: list[list[float]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = list(_WORD.finditer(line))
        if not words or not words[0][0].isdigit() or int(words[0][0]) != len(rows):
            continue
        for word in words[1:]:
            if not _NUMBER.fullmatch(word[0]):
                raise TopologyTextError(number, word.start() + 1, f"{word[0]!r} is not a number.")
        rows.append([float(word[0]) * 1e9 for word in words[1:]])
        if len(rows[-1]) != len(rows[0]):
            raise TopologyTextError(
                number, 1, f"{len(rows[-1])} numbers, where row 0 has {len(rows[0])}."
            )
        if len(rows) == len(rows[0]):
            return rows
    raise TopologyTextError(
        len(text.splitlines()) or 1,
        1,
        f"{len(rows)} rows found of a square matrix of {len(rows[0]) if rows else 'unknown'}. "
        "Paste one matrix of p2pBandwidthLatencyTest with its row numbers.",
    )
