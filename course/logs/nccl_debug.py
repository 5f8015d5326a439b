"""What NCCL says of itself under NCCL_DEBUG=INFO: network, GPUDirect, channels, rings, choices.

The same line comes from every rank: it is kept once, with the number of lines and the first of
them, so that whoever doubts a statement can look it up. Interfaces and cards are named, addresses
are not. RCCL prints the same.
Source: github.com/NVIDIA/nccl, src/init.cc, src/transport/net*.cc, src/enqueue.cc, 2.4 to 2.29.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from labkit.logs.layout import NETWORK_ADDRESS
from labkit.measure.untrusted import one_line

TOOL = "NCCL_DEBUG"
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
"""By the numbers that NCCL prints. Source: nccl, src/include/nccl_common.h and device.h."""
_MOST = 2000
"""Different statements that are kept of one file."""
_OWN = re.compile(r"NCCL (INFO|WARN) +(.*\S)")
_VERSION = re.compile(r"\b([NR]CCL) version (\d+\.[\d.]*\d)")
_SETTING = re.compile(r"\b([NR]CCL_[A-Z0-9_]+)(?:=| set by environment to | set to )([^\s'\"`;]+)")
_TALK = re.compile(r".CCL_(?:DEBUG|HOSTID)")
_PATTERNS = [
    (name, re.compile(pattern))
    for name, pattern in (
        ("network", r"^Using (?:internal )?[Nn]etwork (\S.*)"),
        ("network", r"^NET/IB ?: (No device found)"),
        ("cards", r"^NET/g?IB\w* ?: Using ((?:\[\d+\] ?\S+ ?)+)"),
        ("cards", r"^NET/OFI (Selected [Pp]rovider is [^,]*)"),
        ("interfaces", r"^NET/Socket ?: Using ((?:\[\d+\]\S+ ?)+)"),
        ("plug-in", r"^NET/(?:Plugin|OFI) ?:? ((?:Loaded|No plugin|Could not find|Using aws).*)"),
        ("path", r"^(?:Channel|Ring) \d+(?:/\d+)? : .*-> .*\bvia (\S.*)"),
        ("GPUDirect RDMA", r"GPU Direct RDMA (Enabled|Disabled)"),
        ("rings", r"^Connected all (rings.*|trees)"),
        ("channels", r"^(\d+ coll channels.*)"),
        ("ring", r"^Channel (\d+/\d+ : (?: *\d+)+)$"),
        ("tree", r"^Trees (\[0\].*)"),
        ("NVLink SHARP", r"^(NVLS (?:multicast support is (?:not )?\w+|comm .*nHeads \d+))"),
        ("communicator", r"^(?:ncclCommInit\w* )?comm \w+ rank \d+ (n[Rr]anks \d+)"),
    )
]
_CHOICE = re.compile(r"^(?:(\w+): *)?(\d+) Bytes *-> *Algo (\w+) proto (\w+)")
ORDER = ("version", "network", "cards", "interfaces", "plug-in", "GPUDirect RDMA", "path",
         "communicator", "channels", "rings", "ring", "tree", "NVLink SHARP", "algorithm",
         "setting", "warning")  # fmt: skip
"""In which statements are shown."""
_MANY = {"algorithm": 40, "setting": 40, "warning": 20, "ring": 2, "tree": 2}
"""How many different statements of a kind are shown; of the others eight."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that NCCL says, by whatever number of ranks."""

    topic: str
    says: str
    row: str
    """The first line that says so: ``"job.log, line 12"``."""
    count: int


class DebugLines:
    """Collects what NCCL says in one file, line by line."""

    def __init__(self, name: str) -> None:
        self._name = one_line(name, 80)
        self._first: dict[tuple[str, str], int] = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, number: int, line: str) -> None:
        """Take a line of the file, NCCL's or not."""
        if "CCL" not in line:
            return
        if match := _VERSION.search(line):
            self._keep("version", " ".join(match.groups()), number)
        if not (prefix := _OWN.search(line)):
            return
        level, text = prefix.groups()
        if level == "WARN":
            self._keep("warning", text, number)
        for name, value in settings(text).items():
            self._keep("setting", f"{name}={value}", number)
        if match := _CHOICE.match(text):
            self._keep("algorithm", _choice(*match.groups()), number)
        for topic, pattern in _PATTERNS:
            if match := pattern.search(text):
                self._keep(topic, _tidy(topic, match[1]), number)

    def _keep(self, topic: str, says: str, number: int) -> None:
        key = topic, one_line(_without_addresses(says), 160)
        if key in self._first or len(self._first) < _MOST:
            self._first.setdefault(key, number)
            self._counts[key] += 1

    def statements(self) -> list[Statement]:
        """Return what was said, in the order of `ORDER`, the most frequent first."""
        statements = []
        for topic in ORDER:
            keys = [key for key in self._first if key[0] == topic]
            if topic != "algorithm":
                keys.sort(key=lambda key: (-self._counts[key], self._first[key]))
            for key in keys[: _MANY.get(topic, 8)]:
                row = f"{self._name}, line {self._first[key]}"
                statements.append(Statement(topic, key[1], row, self._counts[key]))
        return statements


def merge(statements: list[Statement]) -> list[Statement]:
    """Return each statement once, with the lines of all files counted and the first row named."""
    first: dict[tuple[str, str], Statement] = {}
    for one in statements:
        known = first.get((one.topic, one.says))
        count = one.count + (known.count if known else 0)
        first[one.topic, one.says] = replace(known or one, count=count)
    return sorted(first.values(), key=lambda one: ORDER.index(one.topic))


def conclusions(statements: list[Statement]) -> Iterator[tuple[str, str]]:
    """Yield what follows for the speed between hosts, each with the row that it follows from."""
    by_kind: dict[str, list[Statement]] = {}
    for one in statements:
        by_kind.setdefault(one.topic, []).append(one)
    paths = by_kind.get("path", [])
    between = [one for one in paths if one.says.startswith("NET/")]
    networks = between or by_kind.get("network", [])
    for one in networks:
        if "Socket" in one.says:
            yield "bytes between hosts go through TCP sockets, not through RDMA", one.row
            break
    for one in by_kind.get("network", []):
        if one.says.startswith("No device"):
            yield "NCCL found no InfiniBand or RoCE card that it may use", one.row
    fast = [one for one in between if "Socket" not in one.says]
    direct = [one for one in fast if "GDRDMA" in one.says]
    if direct:
        yield "GPUDirect RDMA is on: cards read and write GPU memory", direct[0].row
    if set(fast) - set(direct):
        row = next(one.row for one in fast if one not in direct)
        yield "GPUDirect RDMA is off on these paths: bytes are staged in the host's memory", row
    for one in paths:
        if one.says.startswith("SHM"):
            yield "some GPUs of a host talk through its memory (SHM), not from GPU to GPU", one.row
            break


def settings(text: str) -> dict[str, str]:
    """Return the variables of NCCL that a text sets, but for paths and addresses.

    Example:
        >>> settings("mpirun -x NCCL_ALGO=Ring -x NCCL_TOPO_FILE=/home/me/topo.xml all_reduce_perf")
        {'NCCL_ALGO': 'Ring'}
    """
    return {
        name: one_line(value.rstrip("."), 60)
        for name, value in _SETTING.findall(text)
        if "/" not in value and not NETWORK_ADDRESS.search(value) and not _TALK.match(name)
    }


def version(code: int) -> str:
    """Write NCCL's version number as its name: 22807 is 2.28.7, 2708 was 2.7.8."""
    base = 10000 if code >= 10000 else 1000
    return f"{code // base}.{code % base // 100}.{code % 100}"


def _choice(collective: str | None, nbytes: str, algorithm: str, protocol: str) -> str:
    def name(word: str, names: tuple[str, ...]) -> str:
        known = word.isdigit() and int(word[:3]) < len(names)
        return names[int(word)] if known else word

    what = f"{collective or 'a collective'}, {nbytes[:18]} bytes"
    return f"{what}: {name(algorithm, ALGORITHMS)}, {name(protocol, PROTOCOLS)}"


def _tidy(topic: str, text: str) -> str:
    if topic == "path":  # the same transport on another card is the same statement
        return re.sub(r"/\d+(?=/|$)", "", text).removesuffix("/Shared")
    if topic == "communicator":
        return text.lower()
    if topic == "interfaces":
        return " ".join(re.findall(r"\[\d+\]([^:\s]+):", text))
    if topic == "NVLink SHARP":
        return re.sub(r"comm \w+ headRank -?\d+ ", "", text)
    return text.strip()


def _without_addresses(text: str) -> str:
    text = re.sub(r"\d+\.\d+\.\d+\.\d+(?::\d+|<\d+>)*", "ADDRESS", text)
    return re.sub(
        r"(?:[0-9a-f]{1,4}:){2,}[0-9a-f:]*(?:%\w+)?(?:<\d+>)?|/(?:home|users)/\S+", "ADDRESS", text
    )
