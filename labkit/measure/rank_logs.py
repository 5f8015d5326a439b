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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from labkit.measure.origins import Devices, Say, case_name, lines_of
from labkit.measure.records import Record, Tier

INSPECTOR, RECORDER = "NCCL Inspector", "flight recorder"
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
            try:
                entry = json.loads(pending)
            except json.JSONDecodeError:
                continue  # an object over several lines, or a damaged one
            pending = ""
            try:
                if "header" in entry:
                    above = entry  # newer versions write it once for many calls
                if kind := next(
                    (kind for kind in ("coll", "p2p") if f"{kind}_perf" in entry), None
                ):
                    self._add(above | entry, kind)
            except (KeyError, TypeError, ValueError) as error:
                say(number, f"no whole call: {error!r}")
        if pending.strip():
            say(begun, "cut short: not a whole object")

    def _add(self, entry: dict, kind: str) -> None:
        header, about = entry["header"], entry.get("metadata") or {}
        perf = entry[f"{kind}_perf"]
        micros, size = perf[f"{kind}_exec_time_us"], perf[f"{kind}_msg_size_bytes"]
        n, rank = header["n_ranks"], header["rank"]
        # What is called the size is a rank's part in some collectives: the bandwidth tells.
        parts = perf[f"{kind}_algobw_gbs"] * 1e3 * micros / size if size else 1.0
        nbytes = int(size * n if n > 1 and abs(parts / n - 1) < 0.1 else size)
        if micros > 0:
            key = header["id"], n, header.get("nnodes"), perf[kind], nbytes
            self.times[key][rank][perf[f"{kind}_sn"]] = micros / 1e6
            self.hosts[header["id"]][rank] = str(about.get("hostname", ""))
            self.date = self.date or about.get("dump_timestamp_us", 0) / 1e6

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
                       nbytes=nbytes, values=values)
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
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds") if seconds else ""


# torch's flight recorder. Source: torch/csrc/distributed/c10d/FlightRecorder.hpp, version 2.10.


class _Plain(pickle.Unpickler):
    """Reads numbers, text, lists and dicts, and nothing that would run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which a dump never needs")


class Dumped:
    """The dumps of the ranks of a job, one file each."""

    def __init__(self) -> None:
        self.dumps: list[tuple[int, dict]] = []

    def read(self, path: Path, say: Say, told: Callable[[int], None]) -> None:
        """Read one rank's dump, a pickle or JSON; the file's name ends with the rank."""
        raw = path.read_bytes()
        told(len(raw))
        try:
            dump = json.loads(raw) if raw.lstrip()[:1] == b"{" else _Plain(io.BytesIO(raw)).load()
            for entry in dump["entries"]:
                _ = entry["process_group"], entry["profiling_name"], entry["is_p2p"]
        except Exception as error:  # a damaged pickle may raise anything
            say(None, f"cut short, damaged or no dump: {error}")
            return
        if found := re.search(r"(\d+)(?:\.\w+)?$", path.name):
            self.dumps.append((int(found[1]), dump))
        else:
            say(None, "its name does not end with a rank")

    def records(self) -> list[Record]:
        """Make a record per group, collective and size, of the calls that have a duration.

        They have one under TORCH_NCCL_ENABLE_TIMING=1 only.
        """
        calls: dict[tuple, _Times] = defaultdict(lambda: defaultdict(dict))
        for rank, dump in self.dumps:
            for entry in dump["entries"]:
                if entry.get("duration_ms"):
                    nbytes = max(_nbytes(entry, side) for side in ("input", "output"))
                    name = entry["profiling_name"].rpartition(":")[2]
                    key = tuple(entry["process_group"]), _TORCH.get(name, name), nbytes
                    calls[key][rank][_number(entry)] = entry["duration_ms"] / 1e3
        library = next((dump.get("comm_lib_version") for _, dump in self.dumps), None)
        where = Devices().provenance(library=f"NCCL {library or ''}".strip())
        records = []
        for (group, name, nbytes), times in calls.items():
            ranks, samples = _together(times)
            params = {"world_size": len(ranks), "group": group[1]}
            collective = name if name in _COLLECTIVES.values() else None
            case = case_name(name, nbytes, params)
            records.append(
                Record(RECORDER, case, params, samples, Tier.RECORDED, where, collective=collective,
                       nbytes=nbytes, values={"ranks": ranks})
            )  # fmt: skip
        return records

    def findings(self) -> list[str]:
        """Say, for each group, which ranks stand in which collective and which are not there."""
        last: dict[tuple, dict[int, dict]] = defaultdict(dict)
        members: dict[tuple, set[int]] = defaultdict(set)
        for rank, dump in self.dumps:
            for entry in dump["entries"]:
                if not entry["is_p2p"]:
                    group = tuple(entry["process_group"])
                    told = (dump.get("pg_config") or {}).get(group[0]) or {}
                    members[group] |= {rank, *json.loads(told.get("ranks", "[]"))}
                    last[group][rank] = entry
        return [line for group in last for line in _stand(group[1], members[group], last[group])]


def _stand(group: str, members: set[int], last: dict[int, dict]) -> Iterator[str]:
    """Say who stands where in one group: its ranks, and the last collective that each entered."""
    if all(entry.get("retired") or entry["state"] == "completed" for entry in last.values()):
        return
    front = max(map(_number, last.values()))
    there = [rank for rank in sorted(last) if _number(last[rank]) == front]
    names = sorted({last[rank]["profiling_name"] for rank in there})
    yield f"group {group}: ranks {there} are in number {front}, {' and '.join(names)}"
    if len(names) > 1:
        yield f"group {group}: number {front} is not the same collective on all ranks"
    for rank in sorted(members - set(there)):
        if rank not in last:
            yield f"group {group}: there is no dump of rank {rank}"
            continue
        frame = next(iter(last[rank].get("frames") or []), None)
        at = f", called at {Path(frame['filename']).name}:{frame['line']}" if frame else ""
        yield (
            f"group {group}: rank {rank} came to number {_number(last[rank])} only "
            f"({last[rank]['profiling_name']}{at}); the others wait for it"
        )


def _number(entry: dict) -> int:
    return entry["p2p_seq_id" if entry["is_p2p"] else "collective_seq_id"]


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
    return sum(math.prod(shape) * _ITEM.get(dtype, 1) for shape, dtype in pairs)
