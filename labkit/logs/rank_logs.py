"""Read what each rank of a job logs by itself: NCCL Inspector's calls, flight recorder dumps."""

from __future__ import annotations

import io
import itertools
import json
import math
import pickle
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from labkit.logs.origins import Devices, Say, case_name, lines_of, whole
from labkit.measure.records import Record, Tier
from labkit.measure.untrusted import one_line

INSPECTOR, RECORDER = "NCCL Inspector", "flight recorder"
_LONGEST = 2**16
"""Characters of one object, at most."""
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
_Times = dict[int, dict[int, float]]
"""By rank and number of the call: seconds."""

# NCCL Inspector. Source: github.com/NVIDIA/nccl, plugins/profiler/inspector, format v4.0.

_COLLECTIVES = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "AlltoAll": "all_to_all",
    "AllToAll": "all_to_all",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "Gather": "gather",
    "Scatter": "scatter",
    "Send": "send",
    "Recv": "send",
    "SendRecv": "send",
}


class Inspected:
    """The calls that the ranks of a job noted, one file each."""

    def __init__(self) -> None:
        self.times: dict[tuple, _Times] = defaultdict(lambda: defaultdict(dict))
        """By communicator, ranks, nodes, name, size; then by rank and the call's number."""
        self.hosts: dict[str, dict[int, str]] = defaultdict(dict)
        self.date = 0.0

    def read(self, path: Path, say: Say, told: Callable[[int], None]) -> None:
        """Read one rank's file: an object per call, usually one in a line."""
        begun, pending, above = 0, "", {}
        for number, line in enumerate(lines_of(path, told), 1):
            if line[:1] == "{":
                if pending:
                    say(begun, "cut short: not a whole object")
                begun, pending = number, ""
            pending += line
            if not line.rstrip().endswith("}") and len(pending) < _LONGEST:
                continue  # an object over several lines
            try:
                entry = json.loads(pending)
                if "header" in entry:
                    above = entry  # newer versions write it once for many calls
                kind = next((kind for kind in ("coll", "p2p") if f"{kind}_perf" in entry), None)
                if kind:
                    self._add(above | entry, kind)
            except json.JSONDecodeError:
                if len(pending) < _LONGEST:
                    continue
                say(begun, "not a whole object")
            except (*_DAMAGE, RecursionError) as error:
                say(number, f"no whole call: {error!r}")
            pending = ""
        if pending.strip():
            say(begun, "cut short: not a whole object")

    def _add(self, entry: dict, kind: str) -> None:
        header, about = entry["header"], entry.get("metadata") or {}
        perf = entry[f"{kind}_perf"]
        micros, size = float(perf[f"{kind}_exec_time_us"]), whole(perf[f"{kind}_msg_size_bytes"])
        n, rank, name = whole(header["n_ranks"]), whole(header["rank"]), one_line(perf[kind], 40)
        if not (0 < micros < 1e15 and 0 <= size < 1e18 and 0 < n < 1e7):
            return
        # What is called the size is a rank's part in some collectives: the bandwidth tells.
        parts = float(perf[f"{kind}_algobw_gbs"]) * 1e3 * micros / size if size else 1.0
        nbytes = size * n if n > 1 and abs(parts / n - 1) < 0.1 else size
        communicator, nodes = one_line(header["id"], 40), whole(header.get("nnodes") or 0)
        number = whole(perf[f"{kind}_sn"])
        self.times[communicator, n, nodes, name, nbytes][rank][number] = micros / 1e6
        self.hosts[communicator][rank] = str(about.get("hostname", ""))
        self.date = self.date or float(about.get("dump_timestamp_us", 0)) / 1e6

    def findings(self) -> list[str]:
        """Say nothing: what there is to say is in the records."""
        return []

    def records(self) -> list[Record]:
        """Make a record per communicator, call and size; samples by rank.

        The time is the kernel's on each rank. A rank that comes early waits in its kernel, so the
        shortest time of a call is the last rank's, and nearest to what moving the bytes took; a
        rank that has the shortest again and again keeps the others waiting.
        """
        records = []
        for (communicator, n, nodes, name, nbytes), times in self.times.items():
            ranks, samples = _together(times)
            devices = Devices([(host, "") for _, host in sorted(self.hosts[communicator].items())])
            each = list(zip(*samples, strict=True))
            first = [ranks[own.index(min(own))] for own in each]
            values = {
                "ranks": ranks,
                "hosts": devices.hosts,
                "shortest": {rank: first.count(rank) / len(first) for rank in ranks},
                "spread": statistics.median(max(own) - min(own) for own in each),
            }
            params = {"hosts": nodes, "world_size": n, "communicator": communicator}
            where = devices.provenance(library="NCCL", date=_date(self.date))
            known = _COLLECTIVES.get(name)
            case = case_name(known or name, nbytes, params)
            records.append(
                Record(INSPECTOR, case, params, samples, Tier.RECORDED, where, collective=known,
                       nbytes=nbytes or None, values=values)
            )  # fmt: skip
        return records


def _together(times: _Times) -> tuple[list[int], list[list[float]]]:
    """Return ranks and their samples of the calls that all have; of one rank if there are none."""
    common = set.intersection(*(set(own) for own in times.values()))
    if not common:
        times = dict([max(times.items(), key=lambda item: len(item[1]))])
        common = set(*times.values())
    ranks = sorted(times)
    return ranks, [[times[rank][call] for call in sorted(common)] for rank in ranks]


def _date(seconds: float) -> str:
    known = 0 < seconds < 2**32
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds") if known else ""


# torch's flight recorder. Source: torch/csrc/distributed/c10d/FlightRecorder.hpp, version 2.10.


class _Plain(pickle.Unpickler):
    """Reads numbers, text, lists and dicts, and nothing that would run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which a dump never needs")


@dataclass(frozen=True, slots=True)
class _Entry:
    """What a dump says of one call."""

    group: tuple[str, str]
    """Number and name."""
    name: str
    number: int
    p2p: bool
    done: bool
    seconds: float
    """0 where the dump has no duration."""
    nbytes: int
    where: str
    """The innermost line of Python: ``"train.py:88"``."""

    @classmethod
    def of(cls, entry: dict) -> _Entry:
        number, label = entry["process_group"]
        p2p = bool(entry["is_p2p"])
        frame = next(iter(entry.get("frames") or []), None)
        seconds = float(entry.get("duration_ms") or 0.0) / 1e3
        return cls(
            (one_line(number, 60), one_line(label, 60)),
            one_line(entry["profiling_name"], 60),
            whole(entry["p2p_seq_id" if p2p else "collective_seq_id"]),
            p2p,
            bool(entry.get("retired")) or entry.get("state") == "completed",
            seconds if 0 < seconds < 1e9 else 0.0,
            max(_nbytes(entry, side) for side in ("input", "output")),
            one_line(f"{Path(frame['filename']).name}:{frame['line']}", 80) if frame else "",
        )


class Dumped:
    """The dumps of the ranks of a job, one file each."""

    def __init__(self) -> None:
        self.entries: dict[int, list[_Entry]] = {}
        self.members: dict[tuple[str, str], set[int]] = defaultdict(set)
        self.library = ""

    def read(self, path: Path, say: Say, told: Callable[[int], None]) -> None:
        """Read one rank's dump, a pickle or JSON; the file's name ends with the rank."""
        if not (found := re.search(r"(\d{1,7})(?:\.\w+)?$", path.name)):
            say(None, "its name does not end with a rank")
            return
        raw, rank = path.read_bytes(), int(found[1])
        told(len(raw))
        try:
            dump = json.loads(raw) if raw.lstrip()[:1] == b"{" else _Plain(io.BytesIO(raw)).load()
            entries = [_Entry.of(entry) for entry in dump["entries"]]
            groups = dump.get("pg_config") or {}
            for group in {entry.group for entry in entries}:
                told_ranks = json.loads((groups.get(group[0]) or {}).get("ranks", "[]"))
                self.members[group] |= {rank, *map(whole, told_ranks)}
        except Exception as error:  # a damaged pickle may raise anything
            say(None, f"cut short, damaged or no dump: {error}")
            return
        self.entries[rank] = entries
        self.library = self.library or one_line(dump.get("comm_lib_version") or "", 40)

    def records(self) -> list[Record]:
        """Make a record per group, collective and size, of the calls that have a duration.

        They have one under TORCH_NCCL_ENABLE_TIMING=1 only.
        """
        calls: dict[tuple, _Times] = defaultdict(lambda: defaultdict(dict))
        for rank, entries in self.entries.items():
            for entry in entries:
                if entry.seconds:
                    name = entry.name.rpartition(":")[2]
                    key = entry.group, _TORCH.get(name, name), entry.nbytes
                    calls[key][rank][entry.number] = entry.seconds
        where = Devices().provenance(library=f"NCCL {self.library}".strip())
        records = []
        for (group, name, nbytes), times in calls.items():
            ranks, samples = _together(times)
            n = max(len(self.members[group]), len(ranks))
            params = {"world_size": n, "group": group[1]}
            collective = name if name in _COLLECTIVES.values() and n > 1 else None
            case = case_name(name, nbytes, params)
            records.append(
                Record(RECORDER, case, params, samples, Tier.RECORDED, where, collective=collective,
                       nbytes=nbytes or None, values={"ranks": ranks})
            )  # fmt: skip
        return records

    def findings(self) -> list[str]:
        """Say, for each group, which ranks stand in which collective and which are not there."""
        last: dict[tuple, dict[int, _Entry]] = defaultdict(dict)
        for rank, entries in self.entries.items():
            for entry in entries:
                if not entry.p2p:
                    last[entry.group][rank] = entry
        return [line for group in last for line in _stand(self.members[group], last[group])]


def _stand(members: set[int], last: dict[int, _Entry]) -> Iterator[str]:
    """Say who stands where in one group: its ranks, and the last collective that each entered."""
    if all(entry.done for entry in last.values()):
        return
    front = max(entry.number for entry in last.values())
    there = [rank for rank in sorted(last) if last[rank].number == front]
    names = sorted({last[rank].name for rank in there})
    group = f"group {last[there[0]].group[1]}"
    yield f"{group}: ranks {there} are in number {front}, {' and '.join(names)}"
    if len(names) > 1:
        yield f"{group}: number {front} is not the same collective on all ranks"
    for rank in sorted(members - set(there)):
        if rank not in last:
            yield f"{group}: there is no dump of rank {rank}"
            continue
        at = f", called at {last[rank].where}" if last[rank].where else ""
        came = f"rank {rank} came to number {last[rank].number} only ({last[rank].name}{at})"
        yield f"{group}: {came}; the others wait for it"


_TORCH = {
    "_all_gather_base": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "all_to_all_base": "all_to_all",
}
_ITEM = {"Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2}


def _nbytes(entry: dict, side: str) -> int:
    shapes, types = entry.get(f"{side}_sizes") or [], entry.get(f"{side}_dtypes") or []
    pairs = itertools.zip_longest(shapes, types[: len(shapes)], fillvalue=(types or ["Byte"])[0])
    total = sum(math.prod(map(whole, shape)) * _ITEM.get(dtype, 1) for shape, dtype in pairs)
    return min(max(total, 0), 10**18)
