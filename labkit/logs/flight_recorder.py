"""Read the dumps of torch's flight recorder, one of each rank: who stands in which call.

Source: torch/csrc/distributed/c10d/FlightRecorder.hpp, version 2.10.
"""

from __future__ import annotations

import io
import itertools
import json
import math
import pickle
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.logs.origins import Devices, Say, case_name, whole
from labkit.measure.records import COLLECTIVES, Record, Tier
from labkit.measure.untrusted import one_line

RECORDER = "flight recorder"
_Times = dict[int, dict[int, float]]
"""By rank and number of the call: seconds."""


def _together(times: _Times) -> tuple[list[int], list[list[float]]]:
    """Return ranks and their samples of the calls that all have; of one rank if there are none."""
    common = set.intersection(*(set(own) for own in times.values()))
    if not common:
        times = dict([max(times.items(), key=lambda item: len(item[1]))])
        common = set(*times.values())
    ranks = sorted(times)
    return ranks, [[times[rank][call] for call in sorted(common)] for rank in ranks]


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
            collective = name if name in COLLECTIVES and n > 1 else None
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
