"""What NCCL says of itself under NCCL_DEBUG=INFO: network, GPUDirect, channels, rings, choices.

The same line comes from every rank: it is kept once, with the number of lines and the first of
them, so that whoever doubts a statement can look it up. Interfaces and cards are named, addresses
are not. RCCL prints the same. Beside them stand the calls in which torch's watchdog found a rank.
Source: github.com/NVIDIA/nccl, src/init.cc, src/transport/net*.cc, src/enqueue.cc, 2.4 to 2.29.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from course.logs.layout import NETWORK_ADDRESS
from labkit.measure.untrusted import one_line

TOOL = "NCCL_DEBUG"
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
"""By the numbers that NCCL prints. Source: nccl, src/include/nccl_common.h and device.h."""
_NARROW = 0.8
"""A slot that carries less than this share of its card's link is narrow."""
_MOST = 2000
_LONG = 400
"""Letters of a warning that are kept: a card's name stands behind two addresses."""
"""Different statements that are kept of one file."""
_OWN = re.compile(r"NCCL (INFO|WARN) +(.*\S)")
_SPEAKER = re.compile(r"([^\s:\[\]<>()]+):(\d+):\d+ \[(-?\d+)\]")
"""Before what NCCL says: the host, the process, the thread and the GPU."""
_TIME = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\]")
"""Before a warning: the default of NCCL_DEBUG_TIMESTAMP_FORMAT (source: nccl, src/debug.cc)."""
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
_OWN_ADDRESS = re.compile(r"^(?:Bootstrap|NET/\w+) ?: Using .*")
"""A line that names the addresses of the host that says it: of its interfaces, or for OOB."""
_NETWORK = re.compile(r"^Using (?:internal )?[Nn]etwork (\S.*)|\bvia NET/(\w+)/\d+")
_NO_VERBS = re.compile(r"(?:Count|Could) not open libibverbs|[Ff]ailed to open libibverbs")
"""The first is NCCL's own spelling (source: nccl, src/misc/ibvsymbols.cc)."""
WATCHDOG = "Watchdog caught collective operation timeout"
"""What torch's ProcessGroupNCCL says of a call that took too long, on every rank that waits."""
SPEAKS = ("CCL INFO", "CCL WARN", WATCHDOG)
"""By which a log is known that has such lines."""
_TIMEOUT = re.compile(
    r"\[Rank (\d+)\] " + WATCHDOG + r": WorkNCCL\(SeqNum=(\d+), OpType=(\w+)"
    r"(?:, NumelIn=(\d+), NumelOut=(\d+))?[^)]*\(ms\)=(\d+)\)"
)
"""Source: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp."""
_GIVES_UP = re.compile(r"^\S+:\d+ -> [1-6]\b")
"""An error on its way up through NCCL; 7 is ncclInProgress (source: nccl.h, ncclResult_t)."""
_VERSION = re.compile(r"\b([NR]CCL) version (\d+\.[\d.]*\d)")
_SETTING = re.compile(r"\b([NR]CCL_[A-Z0-9_]+)(?:=| set by environment to | set to )([^\s'\"`;]+)")
_PROXY = ", by way of another GPU (PXN)"
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
        (
            "path",
            r"^(?:Channel|Ring) \d+(?:/\d+)? : .*-> .*\bvia ((?:P2P|SHM|NET|COLLNET)/\S.*|SHM)",
        ),
        ("GPUDirect RDMA", r"GPU Direct RDMA (Enabled|Disabled)"),
        ("rings", r"^Connected all (rings.*|trees)"),
        ("channels", r"^(\d+ coll channels.*)"),
        ("ring", r"^Channel (\d+/\d+ : (?: *\d+)+)$"),
        ("tree", r"^Trees (\[0\].*)"),
        ("NVLink SHARP", r"^(NVLS (?:multicast support is (?:not )?\w+|comm .*nHeads \d+))"),
        ("PCI Express", r"^\+ PCI\[([\d.]+\] - (?:NIC|GPU))/"),
        ("network link", r"^\+ NET\[([\d.]+)\] - NET/"),
        ("communicator", r"^(?:ncclCommInit\w* )?comm \w+ rank \d+ (n[Rr]anks \d+)"),
    )
]
_NODES = re.compile(r"\bnNodes (\d+)(?: localRanks (\d+))?")
_CARDS = re.compile(r"^NET/g?IB\w* ?: Using ((?:\[\d+\] ?\S+ ?)+)")
_BETWEEN = re.compile(r"\bvia NET/[^/]+/(\d+)(\(\d+\))?")
_RINGS = re.compile(r"^(?:Channel \d+/)?(\d+)(?: : +\d+(?: +\d+)+$| coll channels)")
_SLOT = re.compile(r"^\+ PCI\[([\d.]+)\] - ((?:NIC|GPU)/\S+)")
_LINK = re.compile(r"^\+ NET\[([\d.]+)\] - NET/")
_CHOICE = re.compile(r"^(?:(\w+): *)?(\d+) Bytes *-> *Algo (\w+) proto (\w+)")
ORDER = (
    "version",
    "network",
    "cards",
    "interfaces",
    "plug-in",
    "GPUDirect RDMA",
    "path",
    "PCI Express",
    "network link",
    "communicator",
    "channels",
    "rings",
    "ring",
    "tree",
    "NVLink SHARP",
    "algorithm",
    "setting",
    "warning",
)
"""In which statements are shown."""
_MANY = {"algorithm": 40, "setting": 40, "warning": 20, "ring": 2, "tree": 2}
"""How many different statements of a kind are shown; of the others eight."""


# fmt: off
FATAL = {
    r"status=(?:IBV_WC_RETRY_EXC_ERR\()?12\b|error 12\b": "the other side did not answer, in spite "
    "of retries: packets are lost, or its port, path or process is gone",
    r"status=(?:\w+\()?13\b|error 13\b": "the receiver was not ready, in spite of retries",
    r"status=(?:\w+\()?5\b|error 5\b": "flushed: a consequence, look for the first error",
    r"status=(?:\w+\()?4\b|error 4\b": "the card may not use this memory: GPUDirect, its module",
    r"Got completion .*(?:status|error)": "a transfer of the card failed",
    r"Connection closed by remote peer": "a peer ended: look for the first error, in its log",
    r"Mismatched NCCL version": "the ranks run different versions of NCCL",
    r"mixed local Net device counts": "hosts with different numbers of network cards",
    r"Duplicate GPU detected|using the same GPU": "two ranks of the communicator have one GPU",
    r"Cuda failure|CUDA error": "CUDA failed: look for an XID in dmesg",
    r"creating shared memory segment": "no room in /dev/shm",
    r"ibv_modify_qp failed|[Cc]onnect.* (?:failed|timed out|refused)": "two hosts do not reach "
    "each other, over this interface or with this GID",
    r"collective mismatch": "ranks are in different calls, or call with different sizes",
}
# fmt: on
"""Warnings that end a job, by what they say -> what that means. Numbers are those of ibv_wc_status.
Source: nccl, src/transport/net_ib/p2p.cc, src/init.cc, src/misc/socket.cc, ibvcore.h."""
_FATAL = [(re.compile(pattern), meaning) for pattern, meaning in FATAL.items()]


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that NCCL says, by whatever number of ranks."""

    topic: str
    says: str
    row: str
    """The first line that says so: ``"job.log, line 12"``."""
    count: int


@dataclass(slots=True)
class Warned:
    """A warning of NCCL's, said by any number of processes."""

    says: str
    row: str
    """The first line that says so: ``"job.log, line 12"``."""
    count: int = 0
    ended: bool = False
    """Whether a process that said so then gave up: its call returned an error."""
    at: str = ""
    """When it was first said, where the line has its time: ``"2026-03-01 02:59:07"``."""
    hosts: set[str] = field(default_factory=set)
    """Who said it."""
    peers: set[str] = field(default_factory=set, repr=False)
    """Addresses that it names; `Job.peers` turns them into hosts."""

    @property
    def meaning(self) -> str:
        """What it means, if it is known to end a job; else nothing."""
        return next((text for pattern, text in _FATAL if pattern.search(self.says)), "")

    @property
    def fatal(self) -> bool:
        """Whether it is known to end a job, or did."""
        return self.ended or bool(self.meaning)


class Timeout(NamedTuple):
    """A call in which torch's watchdog found a rank when its time was up."""

    call: str
    """With its number in its group: ``"ALLREDUCE #1580 of 466119168 elements"``."""
    seconds: float
    """That were allowed."""
    row: str


@dataclass(slots=True)
class Job:
    """What lines say of the job as a whole, and which do, as ``"job.log, line 12"``."""

    speakers: set[str] = field(default_factory=set)
    """Hosts that speak; more may take part."""
    nodes: int = 0
    """Hosts of the largest communicator; 0 if no line says it (before NCCL 2.19)."""
    ranks: dict[str, int] = field(default_factory=dict)
    """By host: how many of the largest communicator's are on it (since NCCL 2.19)."""
    devices: dict[str, set[str]] = field(default_factory=dict)
    """By host: the numbers of the GPUs that speak."""
    cards: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    """By host: the cards that NCCL names, and the line."""
    versions: dict[str, str] = field(default_factory=dict)
    """With the line of each."""
    runs: dict[str, set[str]] = field(default_factory=dict)
    """By version: the hosts that say that they run it."""
    networks: dict[str, dict[str, str]] = field(default_factory=dict)
    """By host: the networks that it names, such as ``"IB"``, and the first line of each."""
    direct: dict[str, set[bool]] = field(default_factory=dict)
    """By host: whether its paths to others have GPUDirect RDMA."""
    without_verbs: dict[str, str] = field(default_factory=dict)
    """By host: the line by which its libibverbs is missing."""
    addresses: dict[str, str] = field(default_factory=dict, repr=False)
    """By address: the host that calls it its own."""
    channels: dict[int, str] = field(default_factory=dict)
    """Number of channels -> the line."""
    used: set[str] = field(default_factory=set)
    """Numbers of the cards that paths between hosts use."""
    slots: dict[str, tuple[float, str]] = field(default_factory=dict)
    """GB/s of the PCI Express link of cards and GPUs, by name, and the line (NCCL_DEBUG_SUBSYS with
    GRAPH)."""
    narrow: dict[str, tuple[float, float, str]] = field(default_factory=dict)
    """Cards whose slot carries less than their link: GB/s of both, and the line."""
    warnings: dict[str, Warned] = field(default_factory=dict)
    timeouts: dict[int, Timeout] = field(default_factory=dict)
    """By rank: the first call in which torch's watchdog found it."""

    def add(self, other: "Job") -> None:
        """Take what other lines of the same job say: of another host, or another process."""
        self.speakers |= other.speakers
        self.used |= other.used
        self.nodes = max(self.nodes, other.nodes)
        for host, devices in other.devices.items():
            self.devices[host] = self.devices.get(host, set()) | devices
        for host, count in other.ranks.items():
            self.ranks[host] = max(self.ranks.get(host, 0), count)
        once = ("cards", "versions", "channels", "slots", "narrow", "without_verbs", "addresses")
        for name in (*once, "timeouts"):
            mine = getattr(self, name)
            for key, value in getattr(other, name).items():
                mine.setdefault(key, value)
        for name in ("runs", "direct"):
            mine = getattr(self, name)
            for key, values in getattr(other, name).items():
                mine[key] = mine.get(key, set()) | values
        for host, networks in other.networks.items():
            self.networks[host] = networks | self.networks.get(host, {})
        for says, theirs in other.warnings.items():
            mine = self.warnings.setdefault(
                says, replace(theirs, count=0, hosts=set(), peers=set())
            )
            mine.count, mine.ended = mine.count + theirs.count, mine.ended or theirs.ended
            mine.hosts |= theirs.hosts
            mine.peers |= theirs.peers
            if theirs.at and theirs.at < mine.at:
                mine.at, mine.row = theirs.at, theirs.row

    def warned(self) -> list[Warned]:
        """Return the warnings in the order of their times; those without one as they were read."""
        return sorted(self.warnings.values(), key=lambda one: (not one.at, one.at))

    def peers(self, warned: Warned) -> list[str]:
        """Name the hosts whose addresses a warning names, as far as a line says whose they are."""
        return sorted({self.addresses[one] for one in warned.peers if one in self.addresses})

    @property
    def several(self) -> bool | None:
        """Whether the job has several hosts; None where the lines do not say."""
        if self.nodes > 1 or len(self.speakers) > 1 or self.used:
            return True
        return False if self.nodes == 1 else None

    @property
    def gpus(self) -> dict[str, int]:
        """GPUs that each host has in the job, as far as its lines say."""
        return {host: self.ranks.get(host) or len(used) for host, used in self.devices.items()}


class DebugLines:
    """Collects what NCCL says in one file, line by line."""

    def __init__(self, name: str) -> None:
        self._name = one_line(name, 80)
        self._first: dict[tuple[str, str], int] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self.job = Job()
        self._warned: dict[tuple[str, str], Warned] = {}
        """By process: the last warning that it gave."""
        self._unnamed: dict[str, str] = {}
        """Hosts whose name is an address, and what they are called instead."""
        self._card: dict[tuple[str, str], str] = {}
        """By process: the card of the topology that it named last."""

    def add(self, number: int, line: str) -> None:
        """Take a line of the file, NCCL's or not."""
        if "CCL" not in line:
            return
        version = ""
        if match := _VERSION.search(line):
            version = " ".join(match.groups())
            self.job.versions.setdefault(version, f"{self._name}, line {number}")
            self._keep("version", version, number)
        if match := _TIMEOUT.search(line):
            rank, number_of, kind, numel, _, allowed = match.groups()
            call = f"{kind} #{number_of[:18]}" + (f" of {numel[:18]} elements" if numel else "")
            row = f"{self._name}, line {number}"
            waited = Timeout(one_line(call, 80), int(allowed[:12]) / 1e3, row)
            self.job.timeouts.setdefault(int(rank[:9]), waited)
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
        if speaker := _SPEAKER.search(line, 0, prefix.start()):
            host, process, device = speaker.groups()
            if NETWORK_ADDRESS.search(host):
                host = self._unnamed.setdefault(host, f"host {len(self._unnamed) + 1}")
            host = one_line(host, 60)
            if version:
                self.job.runs.setdefault(version, set()).add(host)
            time = _TIME.search(line, 0, prefix.start())
            self._of_the_job(number, level, text, host, process, device, time[1] if time else "")

    def _of_the_job(
        self, number: int, level: str, text: str, host: str, process: str, device: str, time: str
    ) -> None:
        """Learn from a line what it says of the job as a whole."""
        job, row = self.job, f"{self._name}, line {number}"
        job.speakers.add(host)
        job.devices.setdefault(host, set()).add(device)
        if _OWN_ADDRESS.match(text):
            for address in _ADDRESS.findall(text):
                job.addresses.setdefault(address, host)
        if match := _NETWORK.search(text):
            job.networks.setdefault(host, {}).setdefault(match[1] or match[2], row)
            if match[2] and match[2] != "Socket":
                job.direct.setdefault(host, set()).add("GDRDMA" in text)
        if level == "WARN":
            says = one_line(_without_addresses(text), _LONG)
            if says in job.warnings or len(job.warnings) < _MOST:
                warned = job.warnings.setdefault(says, Warned(says, row, at=time))
                warned.count += 1
                warned.hosts.add(host)
                warned.peers.update(_ADDRESS.findall(text))
                self._warned[host, process] = warned
        elif "->" in text and (host, process) in self._warned and _GIVES_UP.match(text):
            self._warned.pop((host, process)).ended = True
        elif _NO_VERBS.search(text):
            job.without_verbs.setdefault(host, row)
        elif match := _NODES.search(text):
            job.nodes = max(job.nodes, int(match[1]))
            job.ranks[host] = max(job.ranks.get(host, 0), int(match[2] or 0))
        elif text.startswith("NET/") and (match := _CARDS.match(text)):
            job.cards.setdefault(host, (tuple(re.findall(r"\[\d+\] ?([^\s;]+)", match[1])), row))
        elif match := _BETWEEN.search(text):
            job.used.add(match[1])
        elif match := _RINGS.match(text):
            job.channels.setdefault(int(match[1]), row)
        elif match := _SLOT.match(text):
            name = self._card[host, process] = f"{host}: {match[2]}"
            job.slots.setdefault(name, (float(match[1]), row))
        elif (match := _LINK.match(text)) and (name := self._card.get((host, process))):
            slot, link = job.slots[name][0], float(match[1])
            if "NIC/" in name and slot < _NARROW * link:
                job.narrow.setdefault(name, (slot, link, row))

    def _keep(self, topic: str, says: str, number: int) -> None:
        key = topic, one_line(_without_addresses(says), _LONG if topic == "warning" else 160)
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


def conclusions(statements: list[Statement], job: Job | None = None) -> Iterator[tuple[str, str]]:
    """Yield what follows for the speed, each with the row that it follows from.

    What is said of the network is passed over where the job has one host.
    """
    by_kind: dict[str, list[Statement]] = {}
    for one in statements:
        by_kind.setdefault(one.topic, []).append(one)
    paths = by_kind.get("path", [])
    between = [one for one in paths if one.says.startswith("NET/")]
    several = job.several if job else None
    if several is not False or between:
        yield from _of_the_network(by_kind, between, known=several is not None)
    for one in paths:
        if one.says.startswith("SHM"):
            yield "some GPUs of a host talk through its memory (SHM), not from GPU to GPU", one.row
            break


def _of_the_network(
    by_kind: dict[str, list[Statement]], between: list[Statement], *, known: bool
) -> Iterator[tuple[str, str]]:
    if_several = "" if known or between else ", if it has other hosts: these lines do not say"
    for one in between or by_kind.get("network", []):
        if "Socket" in one.says:
            yield (
                f"bytes between hosts go through TCP sockets, not through RDMA{if_several}",
                one.row,
            )
            break
    for one in by_kind.get("network", []):
        if one.says.startswith("No device"):
            yield f"NCCL found no InfiniBand or RoCE card that it may use{if_several}", one.row
    fast = [one for one in between if "Socket" not in one.says]
    direct = [one for one in fast if "GDRDMA" in one.says]
    if direct:
        yield "GPUDirect RDMA is on: cards read and write GPU memory", direct[0].row
    if set(fast) - set(direct):
        row = next(one.row for one in fast if one not in direct)
        yield "GPUDirect RDMA is off on these paths: bytes are staged in the host's memory", row
    for one in between:
        if one.says.endswith(_PROXY):
            yield "PXN: some GPUs send by way of the card beside another GPU of their host", one.row
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
        by_way = re.search(r"/\d+\(\d+\)", text)  # the number of the card, and of the other rank
        text = re.sub(r"/\d+(?:\(\d+\))?(?=/|$)", "", text).removesuffix("/Shared")
        return text + (_PROXY if by_way and text.startswith("NET/") else "")
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
