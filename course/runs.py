"""Run what an experiment measures, and note what other programs did meanwhile."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from course import other_programs
from labkit.measure.records import Record, Tier
from labkit.ranks import torchrun
from labkit.ranks.launcher import launch

Say = Callable[[str], object]  # what is told, line by line, how a measurement goes on


def quiet(text: str) -> None:
    """Say nothing."""


def shell() -> Any:
    """Return the IPython that runs this; None outside of one."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def in_notebook() -> bool:
    """Tell whether there is a notebook to display in."""
    return hasattr(shell(), "kernel")


def nobody_answers() -> bool:
    """Tell whether a notebook runs without anybody in front of it, as under nbval or nbconvert.

    Such programs allow a cell no input; JupyterLab and its like do.
    """
    kernel = getattr(shell(), "kernel", None)
    request = getattr(kernel, "get_parent", dict)()
    return not request.get("content", {}).get("allow_stdin", True)


BRIEF = 2.0  # seconds for which a measurement says nothing
_telling = threading.Lock()
"""Held by whoever tells how long a measurement takes: what is watched inside of it says nothing."""


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Below a cell whose measurement is not `BRIEF`, say for how long it goes on, in one line."""
    is_read = in_notebook() and not nobody_answers()
    if not is_read or not _telling.acquire(blocking=False):
        yield
        return
    from IPython.display import display

    ended, start, handles = threading.Event(), time.monotonic(), []

    def say(verb: str) -> None:
        text = {"text/plain": f"{verb} on this machine: {time.monotonic() - start:.0f} s"}
        if handles:
            handles[0].update(text, raw=True)
        else:
            handles.append(display(text, raw=True, display_id=True))

    def tick() -> None:
        while not ended.wait(1.0 if handles else BRIEF):
            say("measuring")

    ticking = threading.Thread(target=tick, daemon=True)
    ticking.start()
    try:
        yield
    finally:
        ended.set()
        ticking.join()
        _telling.release()
        if handles:
            say("measured")


def by_case(records: Iterable[Record]) -> dict[str, Record]:
    """Return records by the name of their case."""
    return {record.case: record for record in records}


def in_world(records: Iterable[Record], world: str) -> list[Record]:
    """Return the records of the world in which this suspect is guilty; "" is a lesson's own."""
    return [record for record in records if record.params.get("world", "") == world]


def watched(measure: Callable[[], list[Record]]) -> list[Record]:
    """Measure, and note in each record how many CPUs other programs used meanwhile.

    Watch one launch or a few, not an hour: the figure is an average. What was watched inside
    `measure` already, and what was not measured here and now, stays as it is.
    """
    with other_programs.watch() as others, _told():
        records = measure()
    cpus = others.cpus
    on_nodes = launch(lambda: cpus, init=False) if torchrun.is_here() else [cpus]
    most = max((seen for seen in on_nodes if seen is not None), default=None)
    return [
        replace(record, others=most)
        if record.others is None and record.tier in (Tier.MEASURED, Tier.EMULATED)
        else record
        for record in records
    ]
